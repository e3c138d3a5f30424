"""Runs as a results file holds them, and the answers in them, ready to be paired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crg.report.evidence.study import Trace
from crg.results.measurements import correct_rows, right_in_order, scored_rows

Bits = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class Run:
    """One line of a results file."""

    record: Mapping[str, Any]
    trace: Trace

    @property
    def seed(self) -> int:
        """Which stream order it was."""
        return int(self.record["seed"])

    @property
    def metrics(self) -> Mapping[str, Any]:
        """What was measured of the method."""
        found: Mapping[str, Any] = self.record["metrics"]
        return found

    @property
    def zero_shot(self) -> Mapping[str, Any]:
        """What was measured of zero-shot on the same stream."""
        found: Mapping[str, Any] = self.record["zero_shot"]
        return found

    @property
    def n_scored(self) -> int:
        """How many images were scored."""
        return int(self.metrics.get("n_scored", self.record["n_samples"]))


@dataclass(frozen=True, eq=False)
class Answers:
    """Which images were answered rightly, by row of the file, in each of some orders.

    ``for_all_orders``: there is one order only, because the answers are the same in every one.
    """

    seeds: tuple[int, ...]
    right: np.ndarray[Any, Any]  # (orders, N); bool, or a difference of two such
    seen: Bits  # (orders, N): which images were scored
    for_all_orders: bool = False

    def of(self, seeds: Sequence[int]) -> Answers:
        """The same in the orders of ``seeds``, each of which there must be."""
        if self.for_all_orders:
            shape = (len(seeds), self.right.shape[1])
            right, seen = np.broadcast_to(self.right, shape), np.broadcast_to(self.seen, shape)
            return Answers(tuple(seeds), right, seen)
        places = [self.seeds.index(seed) for seed in seeds]
        return Answers(tuple(seeds), self.right[places], self.seen[places])


def answers_of(runs: Sequence[Run], for_all_orders: bool) -> Answers | None:
    """The answers of a row; None where there were no labels to judge them by."""
    return _stacked(runs, [run.metrics for run in runs], for_all_orders)


def zero_shot_answers(runs: Sequence[Run], for_all_orders: bool) -> Answers | None:
    """Those of zero-shot on the very same streams."""
    return _stacked(runs, [run.zero_shot for run in runs], for_all_orders)


def shared_seeds(one: Answers, other: Answers) -> tuple[int, ...]:
    """The orders that both have answers for."""
    if one.for_all_orders:
        return other.seeds
    if other.for_all_orders:
        return one.seeds
    return tuple(seed for seed in one.seeds if seed in other.seeds)


def in_order(metrics: Mapping[str, Any]) -> Bits | None:
    """Right or wrong, image by image as they came; None where it was not kept."""
    return right_in_order(metrics) if "right_in_order" in metrics else None


def _stacked(
    runs: Sequence[Run], measured: Sequence[Mapping[str, Any]], for_all_orders: bool
) -> Answers | None:
    if not runs or any("correct" not in metrics for metrics in measured):
        return None
    width = 4 * len(measured[0]["correct"])  # four bits a digit; the last ones may mean nothing
    if any(4 * len(metrics["correct"]) != width for metrics in measured):
        return None  # other images, as when a file was replaced between the runs
    right = np.stack([correct_rows(metrics, width) for metrics in measured])
    seen = np.stack([_seen(run, width) for run in runs])
    return Answers(tuple(run.seed for run in runs), right & seen, seen, for_all_orders)


def _seen(run: Run, width: int) -> Bits:
    if "streamed" in run.metrics:
        return scored_rows(run.metrics, width)
    return np.arange(width) < run.n_scored
