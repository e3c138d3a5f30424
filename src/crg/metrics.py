"""Metrics: pure functions on arrays. Shares are fractions between 0 and 1."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Interval:
    """A difference with its 95% confidence interval."""

    mean: float
    low: float
    high: float


def accuracy(predicted: Numbers, labels: Numbers) -> float:
    """Share of pictures that are predicted rightly.

    >>> accuracy(np.array([0, 1, 1, 1]), np.array([0, 1, 1, 0]))
    0.75
    """
    return float(np.mean(predicted == labels))


def per_class_accuracy(predicted: Numbers, labels: Numbers, n_classes: int) -> Numbers:
    """The accuracy of each class (K,); NaN for a class without pictures."""
    seen = np.bincount(labels, minlength=n_classes)
    right = np.bincount(labels[predicted == labels], minlength=n_classes)
    return np.where(seen > 0, right / np.maximum(seen, 1), np.nan)


def worst_class_accuracy(predicted: Numbers, labels: Numbers, n_classes: int) -> float:
    """The accuracy of the class that fares worst, of those that have pictures."""
    return float(np.nanmin(per_class_accuracy(predicted, labels, n_classes)))


def expected_calibration_error(confidence: Numbers, correct: Numbers, n_bins: int = 15) -> float:
    """How far confidence and accuracy lie apart, over bins of equal width.

    ECE = sum over bins b of (n_b / N) |accuracy_b - mean confidence_b|. A confidence on the
    border of two bins belongs to the lower one.
    """
    inner_edges = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    bins = np.digitize(confidence, inner_edges, right=True)
    surplus = np.bincount(bins, weights=confidence - correct.astype(float), minlength=n_bins)
    return float(np.abs(surplus).sum() / len(confidence))


def surprises(logits: Numbers, labels: Numbers) -> Numbers:
    """-ln p of the true class (N,), straight from logits (N, K): finite for finite logits."""
    wide = logits.astype(np.float64)
    peak = wide.max(axis=-1)
    log_sum = peak + np.log(np.exp(wide - peak[:, None]).sum(axis=-1))
    return np.asarray(log_sum - np.take_along_axis(wide, labels[:, None], axis=-1)[:, 0])


def negative_log_likelihood(logits: Numbers, labels: Numbers) -> float:
    """The mean of -ln p of the true class."""
    return float(surprises(logits, labels).mean())


def cache_purity(cached: Iterable[tuple[int, int]]) -> float | None:
    """Share of cached pictures in the queue of their own class; None for an empty cache.

    ``cached`` holds (class of the queue, true class) for each cached picture.
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
    right: Numbers, baseline: Numbers, n_resamples: int = 2000, seed: int = 0
) -> Interval:
    """Gain in accuracy with a 95% interval that accounts for pictures and for orders.

    ``right`` and ``baseline`` (orders, N) say which pictures were predicted rightly on the
    same streams, so every difference is between two answers to one picture in one order. A
    crossed bootstrap: each resample draws orders and, independently, pictures with
    replacement, and takes the mean difference; the interval spans the middle 95% of the
    resamples. A picture that is drawn is drawn in all orders at once, because its answers
    in different orders are not independent.
    """
    difference = right.astype(np.float64) - baseline.astype(np.float64)  # (orders, N)
    n_orders, n_pictures = difference.shape
    rng = np.random.Generator(np.random.PCG64(seed))
    means = np.empty(n_resamples)
    for place in range(n_resamples):
        times = np.bincount(rng.integers(n_pictures, size=n_pictures), minlength=n_pictures)
        orders = rng.integers(n_orders, size=n_orders)
        means[place] = (difference @ times)[orders].mean() / n_pictures
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(difference.mean()), float(low), float(high))
