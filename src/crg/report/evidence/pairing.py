"""Rows against each other: always answers to the same image in the same stream order.

A row whose answers do not depend on the order was run once and is paired with every order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from crg import metrics
from crg.evaluate import BASELINE
from crg.metrics import Interval
from crg.report.evidence.runs import Answers, shared_seeds
from crg.report.evidence.study import Contrast, Line
from crg.results.outline import ENOUGH_IMAGES, ENOUGH_ORDERS

RESAMPLES = 10_000  # with fewer, the seed would decide over verdicts that are close


@dataclass(frozen=True, eq=False)
class Judged:
    """A line with the answers behind it; ``options`` are all of them, defaults too."""

    line: Line
    answers: Answers | None
    options: Mapping[str, object]
    base: Answers | None = None  # of zero-shot on the same streams; None for zero-shot itself

    @property
    def gains(self) -> Answers | None:
        """What it has over zero-shot, answer by answer: 1 corrected, -1 broken, 0 as it was."""
        return change(self.answers, self.base)


def contrast(one: Answers | None, other: Answers | None, label: str, n_all: int) -> Contrast | None:
    """``one`` against ``other``; ``n_all`` is how many orders an order-free row stands for."""
    if one is None or other is None:
        return None
    seeds = shared_seeds(one, other)
    if not seeds:
        return None
    first, second = one.of(seeds), other.of(seeds)
    if first.right.shape != second.right.shape:
        return None  # other images, as when a file was replaced between the runs
    interval = _interval(first, second)
    if interval is None:
        return None
    n_orders = n_all if one.for_all_orders and other.for_all_orders else len(seeds)
    n_images = int((first.seen & second.seen).sum(axis=1).min())
    return judged(label, interval, n_orders, n_images)


def judged(label: str, interval: Interval, n_orders: int, n_images: int) -> Contrast:
    """With the word that the interval allows; ``n_images`` is of the order with the fewest."""
    lacks = "orders" if n_orders < ENOUGH_ORDERS else ""
    lacks = "images" if n_images < ENOUGH_IMAGES else lacks
    if lacks or interval.low <= 0 <= interval.high:
        return Contrast(label, interval, "", lacks)
    return Contrast(label, interval, "better" if interval.low > 0 else "worse")


def turned(contrast: Contrast, label: str) -> Contrast:
    """The same seen from the other side, which is called ``label``."""
    seen = contrast.interval
    words = {"better": "worse", "worse": "better", "": ""}
    interval = Interval(-seen.mean, -seen.high, -seen.low)
    return replace(contrast, against=label, interval=interval, verdict=words[contrast.verdict])


def _interval(first: Answers, second: Answers) -> Interval | None:
    seen = first.seen & second.seen
    if not seen.any():
        return None
    if (seen == seen[:1]).all():  # the same images in every order: the others need not be drawn
        kept = seen[0]
        right, other = first.right[:, kept], second.right[:, kept]
        return metrics.paired_interval(right, other, n_resamples=RESAMPLES)
    return metrics.paired_interval(first.right, second.right, seen, RESAMPLES)


def best_rival(mine: Judged, all_rows: Iterable[Judged]) -> Judged | None:
    """The other row of highest accuracy that it is fair to be measured against.

    Zero-shot is a yardstick of its own; rows that use labels are rivals of each other only, and
    so are rows that use none.
    """
    group = mine.line.row.uses_labels
    return _best(
        each for each in all_rows if each is not mine and each.line.row.uses_labels == group
    )


def label_free(mine: Judged, all_rows: Iterable[Judged]) -> Judged | None:
    """The row without labels at the same place of the figure, or else the most accurate one."""
    free = [each for each in all_rows if not each.line.row.uses_labels]
    beside = [each for each in free if each.line.row.x is not None and
              each.line.row.x == mine.line.row.x]  # fmt: skip
    return _best(beside or free)


def _best(rows: Iterable[Judged]) -> Judged | None:
    known = [
        (each.line.accuracy.mean, each)
        for each in rows
        if each.line.accuracy is not None and each.line.row.method != BASELINE
    ]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def most_like(mine: Judged, above: Iterable[Judged]) -> Judged | None:
    """Of the rows above with the same method, the one whose options differ least from mine.

    Of several the last one, which is the row that a step was added to.
    """
    same = [each for each in above if each.line.row.method == mine.line.row.method and each.options]
    if not same or not mine.options:
        return None
    return min(reversed(same), key=lambda each: len(different(each.options, mine.options)))


def different(one: Mapping[str, object], other: Mapping[str, object]) -> tuple[str, ...]:
    """The options whose values are not the same."""
    names = dict.fromkeys((*one, *other))
    return tuple(name for name in names if one.get(name) != other.get(name))


def change(later: Answers | None, earlier: Answers | None) -> Answers | None:
    """How each answer changed from one setting to another: 1 corrected, -1 broken, 0 as it was."""
    if later is None or earlier is None:
        return None
    seeds = shared_seeds(later, earlier)
    for_all = later.for_all_orders and earlier.for_all_orders
    after, before = later.of(seeds), earlier.of(seeds)
    if not seeds or after.right.shape != before.right.shape:
        return None
    moved = after.right.astype(np.int8) - before.right.astype(np.int8)
    return Answers(seeds, moved, after.seen & before.seen, for_all)
