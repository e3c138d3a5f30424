"""Differences between methods: always between answers to the same image in the same order.

The interval is that of ``crg.metrics.paired_interval``, a crossed bootstrap over images and orders.
A difference is significant if its 95% interval excludes zero, and only with at least
``ENOUGH_ORDERS`` orders of at least ``ENOUGH_IMAGES`` scored images each.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crg import metrics
from crg.metrics import Interval
from crg.results.schema import ENOUGH_IMAGES, ENOUGH_ORDERS

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over stream orders (None for a single one)."""

    mean: float
    std: float | None
    per_order: tuple[float, ...]


@dataclass(frozen=True)
class Contrast:
    """A method against another on the same streams."""

    against: str  # label of the other one
    interval: Interval
    verdict: str = ""  # "better" or "worse" where the difference is significant
    lacks: str = ""  # "orders" or "images", where there are too few for anything significant

    @property
    def mark(self) -> str:
        """▲ significantly better, ▼ significantly worse, nothing where not significant."""
        return {"better": "▲", "worse": "▼"}.get(self.verdict, "")


@dataclass(frozen=True, eq=False)
class Answers:
    """Which images were answered rightly, by row of the file, in each of some orders."""

    seeds: tuple[int, ...]
    right: Numbers  # (orders, N); bool, or the difference of two such
    seen: Numbers  # (orders, N): which images were scored
    for_all_orders: bool = False  # one order only: the answers are the same in every one

    def of(self, seeds: Sequence[int]) -> Answers:
        """The answers in the orders of ``seeds``, each of which there must be."""
        if self.for_all_orders:
            shape = (len(seeds), self.right.shape[1])
            right, seen = np.broadcast_to(self.right, shape), np.broadcast_to(self.seen, shape)
            return Answers(tuple(seeds), right, seen)
        places = [self.seeds.index(seed) for seed in seeds]
        return Answers(tuple(seeds), self.right[places], self.seen[places])

    def minus(self, other: Answers | None) -> Answers | None:
        """How each answer differs: 1 corrected, -1 broken, 0 as it was."""
        pair = _paired(self, other)
        if pair is None:
            return None
        mine, its = pair
        difference = mine.right.astype(np.int8) - its.right.astype(np.int8)
        for_all = self.for_all_orders and other is not None and other.for_all_orders
        return Answers(mine.seeds, difference, mine.seen & its.seen, for_all)


def _paired(one: Answers | None, other: Answers | None) -> tuple[Answers, Answers] | None:
    """Both in the orders that they share; None where there are none, or the images differ."""
    if one is None or other is None:
        return None
    if one.for_all_orders or other.for_all_orders:
        seeds = other.seeds if one.for_all_orders else one.seeds
    else:
        seeds = tuple(seed for seed in one.seeds if seed in other.seeds)
    if not seeds or one.right.shape[1] != other.right.shape[1]:
        return None
    return one.of(seeds), other.of(seeds)


def contrast(one: Answers | None, other: Answers | None, label: str, n_all: int) -> Contrast | None:
    """``one`` against ``other``; ``n_all`` orders are what a method that is run once stands for."""
    pair = _paired(one, other)
    if pair is None or one is None or other is None:
        return None
    first, second = pair
    seen = first.seen & second.seen
    if not seen.any():
        return None
    if (seen == seen[:1]).all():  # the same images in every order: no others need be drawn
        kept = seen[0]
        interval = metrics.paired_interval(first.right[:, kept], second.right[:, kept])
    else:
        interval = metrics.paired_interval(first.right, second.right, seen)
    n_orders = n_all if one.for_all_orders and other.for_all_orders else len(first.seeds)
    return judged(label, interval, n_orders, int(seen.sum(axis=1).min()))


def judged(label: str, interval: Interval, n_orders: int, n_images: int) -> Contrast:
    """With the verdict that the interval allows; ``n_images`` is of the order with the fewest."""
    lacks = "orders" if n_orders < ENOUGH_ORDERS else ""
    lacks = "images" if n_images < ENOUGH_IMAGES else lacks
    if lacks or interval.low <= 0 <= interval.high:
        return Contrast(label, interval, "", lacks)
    return Contrast(label, interval, "better" if interval.low > 0 else "worse")


def spread(values: Sequence[float | None]) -> Spread | None:
    """Mean and deviation over orders; None where one of them has no value.

    >>> spread([0.5, 0.5])
    Spread(mean=0.5, std=0.0, per_order=(0.5, 0.5))
    """
    known = tuple(float(value) for value in values if value is not None)
    if not known or len(known) < len(values):
        return None
    std = statistics.stdev(known) if len(known) > 1 else None
    return Spread(statistics.fmean(known), std, known)


def tally(contrasts: Iterable[Contrast | None]) -> tuple[int, int, int]:
    """Win, tie, loss: how many are significantly better, not significant, significantly worse."""
    verdicts = [each.verdict for each in contrasts if each is not None]
    return verdicts.count("better"), verdicts.count(""), verdicts.count("worse")
