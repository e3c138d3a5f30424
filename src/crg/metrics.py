"""Metrics: pure functions on arrays. Shares are fractions between 0 and 1."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]

RESAMPLES = 10_000  # with fewer, the seed would decide on differences that are close
_MOST_REMEMBERED = 100_000_000  # bytes that the draws of a bootstrap may keep in memory
_BLOCK_SIZE = 500_000  # of them that are drawn and multiplied at once


@dataclass(frozen=True)
class Interval:
    """A difference with its 95% confidence interval."""

    mean: float
    low: float
    high: float


def accuracy(predicted: Numbers, labels: Numbers) -> float:
    """Share of images that are predicted rightly.

    >>> accuracy(np.array([0, 1, 1, 1]), np.array([0, 1, 1, 0]))
    0.75
    """
    return float(np.mean(predicted == labels))


def per_class_accuracy(predicted: Numbers, labels: Numbers, n_classes: int) -> Numbers:
    """The accuracy of each class (K,); NaN for a class without images."""
    seen = np.bincount(labels, minlength=n_classes)
    right = np.bincount(labels[predicted == labels], minlength=n_classes)
    return np.where(seen > 0, right / np.maximum(seen, 1), np.nan)


def worst_class_accuracy(predicted: Numbers, labels: Numbers, n_classes: int) -> float:
    """The accuracy of the class that fares worst, of those that have images."""
    return float(np.nanmin(per_class_accuracy(predicted, labels, n_classes)))


def expected_calibration_error(confidence: Numbers, correct: Numbers, n_bins: int = 15) -> float:
    """How far confidence and accuracy lie apart, over bins of equal width.

    ECE = sum over bins b of (n_b / N) |accuracy_b - mean confidence_b|. A confidence on the
    border of two bins belongs to the lower one.
    """
    bins = _bins(confidence, n_bins)
    surplus = np.bincount(bins, weights=confidence - correct.astype(float), minlength=n_bins)
    return float(np.abs(surplus).sum() / len(confidence))


def reliability(
    confidence: Numbers, correct: Numbers, n_bins: int = 15
) -> list[tuple[int, float | None, float | None]]:
    """Per bin of equal width: how many answers, their mean confidence, and their accuracy.

    The bins are those of the calibration error; an empty one has neither of the means.

    >>> reliability(np.array([0.9, 1.0, 0.2]), np.array([True, False, True]), n_bins=2)
    [(1, 0.2, 1.0), (2, 0.95, 0.5)]
    """
    bins = _bins(confidence, n_bins)
    counts = np.bincount(bins, minlength=n_bins).tolist()
    trust = np.bincount(bins, weights=confidence, minlength=n_bins).tolist()
    right = np.bincount(bins, weights=correct.astype(float), minlength=n_bins).tolist()
    return [
        (n, total / n, hits / n) if n else (0, None, None)
        for n, total, hits in zip(counts, trust, right, strict=True)
    ]


def _bins(confidence: Numbers, n_bins: int) -> Numbers:
    """The bin of each confidence; one on the border of two belongs to the lower one."""
    inner_edges = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    return np.digitize(confidence, inner_edges, right=True)


def surprises(logits: Numbers, labels: Numbers) -> Numbers:
    """-ln p of the true class (N,), straight from logits (N, K): finite for finite logits."""
    wide = logits.astype(np.float64)
    peak = wide.max(axis=-1)
    log_sum = peak + np.log(np.exp(wide - peak[:, None]).sum(axis=-1))
    return np.asarray(log_sum - np.take_along_axis(wide, labels[:, None], axis=-1)[:, 0])


def cache_purity(cached: Iterable[tuple[int, int]]) -> float | None:
    """Share of cached images in the queue of their own class; None for an empty cache.

    ``cached`` holds (class of the queue, true class) for each cached image.
    """
    right = [queue == label for queue, label in cached]
    return sum(right) / len(right) if right else None


def mean_milliseconds(milliseconds: Numbers) -> float:
    """Mean time of a step."""
    return float(np.mean(milliseconds))


def median_milliseconds(milliseconds: Numbers) -> float:
    """Median time of a step, which the first slow steps do not move."""
    return float(np.median(milliseconds))


def paired_interval(
    right: Numbers,
    baseline: Numbers,
    seen: Numbers | None = None,
    n_resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Gain in accuracy with a 95% interval that accounts for images and for orders.

    ``right`` and ``baseline`` (orders, N) say which images were predicted rightly on the
    same streams, so every difference is between two answers to one image in one order. A
    crossed bootstrap: each resample draws orders and, independently, images with
    replacement, and takes the mean difference; the interval spans the middle 95% of the
    resamples. An image that is drawn is drawn in all orders at once, because its answers
    in different orders are not independent.

    ``seen`` (orders, N) says where some streams lack some images: an order's gain is then
    over those that it has, and the mean is over orders.
    """
    difference = right.astype(np.float64) - baseline.astype(np.float64)  # (orders, N)
    if seen is not None and not seen.all():
        shown = seen.any(axis=0)  # what no order has is no part of the experiment
        return _partly_paired(difference[:, shown], seen[:, shown], n_resamples, seed)
    n_orders, n_images = difference.shape
    sums = _sums(difference, n_resamples, seed)  # (R, orders)
    orders = _drawn_orders(n_orders, n_resamples, seed)
    means = np.take_along_axis(sums, orders, axis=1).mean(axis=1) / n_images
    return _middle(float(difference.mean()), means)


def _partly_paired(difference: Numbers, seen: Numbers, n_resamples: int, seed: int) -> Interval:
    """The same where an order has some of the images only."""
    shown = seen.astype(np.float64)
    gains = difference * shown
    # An order of which no image was drawn adds nothing, for lack of anything better.
    per_order = _sums(gains, n_resamples, seed) / np.maximum(_sums(shown, n_resamples, seed), 1.0)
    orders = _drawn_orders(len(seen), n_resamples, seed)
    means = np.take_along_axis(per_order, orders, axis=1).mean(axis=1)
    return _middle(float((gains.sum(axis=1) / np.maximum(shown.sum(axis=1), 1.0)).mean()), means)


def _sums(values: Numbers, n_resamples: int, seed: int) -> Numbers:
    """The sum of ``values`` (orders, N) over the images of each of R resamples, (R, orders).

    The values are -1, 0 and 1, so that sums of single precision are exact.
    """
    n_images = values.shape[1]
    blocks = _remembered if n_images * n_resamples <= _MOST_REMEMBERED else _drawn_times
    columns = np.ascontiguousarray(values.T, dtype=np.float32)
    parts = [times.astype(np.float32) @ columns for times in blocks(n_images, n_resamples, seed)]
    return np.concatenate(parts).astype(np.float64)


def _drawn_times(n_images: int, n_resamples: int, seed: int) -> Iterator[Numbers]:
    """How often each resample draws each image, (R, N) in blocks of some resamples."""
    rng = np.random.Generator(np.random.PCG64(seed))
    step = max(1, _BLOCK_SIZE // n_images)
    for first in range(0, n_resamples, step):
        size = min(step, n_resamples - first)
        drawn = rng.integers(n_images, size=(size, n_images))
        places = drawn + n_images * np.arange(size)[:, None]
        counts = np.bincount(places.ravel(), minlength=size * n_images)
        # An image is drawn once on average: that it comes 256 times need not be feared.
        yield counts.reshape(size, n_images).astype(np.uint8)


@functools.lru_cache(maxsize=3)
def _remembered(n_images: int, n_resamples: int, seed: int) -> tuple[Numbers, ...]:
    """The same for every comparison of one size, so that most of them need not draw."""
    return tuple(_drawn_times(n_images, n_resamples, seed))


@functools.lru_cache(maxsize=8)
def _drawn_orders(n_orders: int, n_resamples: int, seed: int) -> Numbers:
    """Which orders each resample draws, (R, orders), independently of the images."""
    rng = np.random.Generator(np.random.PCG64([seed, n_orders]))
    return rng.integers(n_orders, size=(n_resamples, n_orders))


def nested_interval(
    right: Numbers, baseline: Numbers, n_resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Gain in accuracy with a 95% interval, where each order shows images of its own.

    ``right`` and ``baseline`` (orders, n) are by place in the stream, such as its first n, so
    that a column is not an image. A nested bootstrap: each resample draws orders and, within
    each that is drawn, images with replacement. As a difference is -1, 0 or 1, what is drawn
    within an order is a multinomial number of each.
    """
    difference = right.astype(np.int64) - baseline.astype(np.int64)  # (orders, n)
    n_orders, n = difference.shape
    shares = np.stack([(difference == gain).mean(axis=1) for gain in (-1, 1, 0)], axis=1)
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = shares[rng.integers(n_orders, size=(n_resamples, n_orders))]  # (R, orders, 3)
    counts = rng.multinomial(n, drawn)
    means = (counts[..., 1] - counts[..., 0]).mean(axis=1) / n
    return _middle(float(difference.mean()), means)


def _middle(mean: float, resampled: Numbers) -> Interval:
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Interval(mean, float(low), float(high))
