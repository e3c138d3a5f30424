"""Metrics: pure functions on arrays. Accuracies and errors are fractions between 0 and 1."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]

RESAMPLES = 10_000  # with fewer, the seed would decide close comparisons
_MOST_REMEMBERED = 100_000_000  # bytes of bootstrap draws to keep in memory
_BLOCK_SIZE = 500_000  # bytes that are drawn and multiplied at once


@dataclass(frozen=True)
class Interval:
    """A difference with its 95% confidence interval."""

    mean: float
    low: float
    high: float


def accuracy(predicted: Numbers, labels: Numbers) -> float:
    """Fraction of images that are predicted correctly.

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
    """The lowest accuracy of any class that has images."""
    return float(np.nanmin(per_class_accuracy(predicted, labels, n_classes)))


def expected_calibration_error(confidence: Numbers, correct: Numbers, n_bins: int = 15) -> float:
    """Expected calibration error over bins of equal width.

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


def risk_coverage_area(confidence: Numbers, correct: Numbers) -> float:
    """Area under the risk-coverage curve: the lower, the better confidence ranks the answers.

    The error among the n most confident answers, mean over n.

    >>> round(risk_coverage_area(np.array([0.9, 0.5, 0.7]), np.array([True, False, True])), 3)
    0.111
    """
    wrong = ~_most_confident_first(confidence, correct)
    return float(np.mean(np.cumsum(wrong) / np.arange(1, len(wrong) + 1)))


def accuracy_at_coverage(confidence: Numbers, correct: Numbers, coverage: float) -> float:
    """Accuracy of the most confident answers, if only this fraction of the images gets one."""
    n_answered = math.ceil(coverage * len(correct))
    return float(np.mean(_most_confident_first(confidence, correct)[:n_answered]))


def _most_confident_first(confidence: Numbers, correct: Numbers) -> Numbers:
    return np.asarray(correct[np.argsort(-confidence, kind="stable")], dtype=bool)


def auroc(scores: Numbers, positive: Numbers) -> float:
    """Chance that a positive scores above a negative, which is the area under the ROC curve.

    >>> auroc(np.array([0.9, 0.4, 0.4, 0.1]), np.array([True, True, False, False]))
    0.875
    """
    negatives = np.sort(scores[~positive])
    below, up_to = (
        np.searchsorted(negatives, scores[positive], side) for side in ("left", "right")
    )
    return float(np.mean(below + up_to) / 2 / len(negatives))


def surprises(logits: Numbers, labels: Numbers) -> Numbers:
    """-ln p of the true class (N,), straight from logits (N, K): finite for finite logits."""
    wide = logits.astype(np.float64)
    peak = wide.max(axis=-1)
    log_sum = peak + np.log(np.exp(wide - peak[:, None]).sum(axis=-1))
    return np.asarray(log_sum - np.take_along_axis(wide, labels[:, None], axis=-1)[:, 0])


def paired_interval(
    right: Numbers,
    baseline: Numbers,
    seen: Numbers | None = None,
    n_resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Gain in accuracy with a 95% interval that accounts for images and for orders.

    ``right`` and ``baseline`` (orders, N) say which images were predicted correctly on the
    same streams, so every difference is between two answers to one image in one order. A
    crossed bootstrap: each resample draws orders and, independently, images with
    replacement, and takes the mean difference; the interval spans the middle 95% of the
    resamples. An image that is drawn is drawn in all orders at once, because its answers
    in different orders are not independent.

    ``seen`` (orders, N) marks the images of each order, if not all: an order's gain is then
    over the images that it has, and the mean is over orders.
    """
    difference = right.astype(np.float64) - baseline.astype(np.float64)  # (orders, N)
    seen = np.ones(difference.shape, dtype=bool) if seen is None else seen
    shown = seen.any(axis=0)  # an image that no order has is no part of the experiment
    seen, gains = seen[:, shown], (difference * seen)[:, shown]
    n_images, totals = seen.shape[1], seen.sum(axis=1)
    counts: Numbers | float = float(n_images)
    if not seen.all():  # an order of which no image was drawn adds nothing
        counts = np.maximum(_sums(seen, n_resamples, seed), 1.0)
    per_order = _sums(gains, n_resamples, seed) / counts  # (R, orders)
    orders = _drawn_orders(len(seen), n_resamples, seed)
    means = np.take_along_axis(per_order, orders, axis=1).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    mean = (gains.sum(axis=1) / np.maximum(totals, 1)).mean()
    return Interval(float(mean), float(low), float(high))


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
        # An image is drawn once on average: 256 times will not happen.
        yield counts.reshape(size, n_images).astype(np.uint8)


@functools.lru_cache(maxsize=3)
def _remembered(n_images: int, n_resamples: int, seed: int) -> tuple[Numbers, ...]:
    """The draws for comparisons of one size, kept because most comparisons share them."""
    return tuple(_drawn_times(n_images, n_resamples, seed))


@functools.lru_cache(maxsize=8)
def _drawn_orders(n_orders: int, n_resamples: int, seed: int) -> Numbers:
    """Which orders each resample draws, (R, orders), independently of the images."""
    rng = np.random.Generator(np.random.PCG64([seed, n_orders]))
    return rng.integers(n_orders, size=(n_resamples, n_orders))
