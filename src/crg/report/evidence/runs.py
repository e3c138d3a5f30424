"""Runs as a results file holds them, and the figures of a line from its runs, one per order."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crg.report.evidence.study import Bin, Curve, Point, Spread, Trace
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


_N_PLACES = 60
_FIRST_PLACE = 20  # a fraction of fewer images says nothing


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


def spread_of(runs: Sequence[Run], name: str) -> Spread | None:
    """The spread of one of the metrics."""
    return spread([run.metrics.get(name) for run in runs])


def peak_bytes(runs: Sequence[Run]) -> int | None:
    """The largest peak of memory that was measured."""
    known = [run.metrics["peak_bytes"] for run in runs if run.metrics.get("peak_bytes")]
    return max(known, default=None)


def mislabelled(runs: Sequence[Run]) -> float | None:
    """Share of cache insertions that got a wrong label on purpose, over all orders."""
    counts = [run.metrics["mislabelled"] for run in runs if run.metrics.get("mislabelled")]
    insertions = sum(count["insertions"] for count in counts)
    return sum(count["mislabelled"] for count in counts) / insertions if insertions else None


def scored(runs: Iterable[Run]) -> Spread | None:
    """How many images each order scored, over the runs of all rows on the same streams."""
    return spread(list({run.seed: run.n_scored for run in runs}.values()))


def reliability(runs: Sequence[Run]) -> tuple[Bin, ...]:
    """The bins of all orders together, without the empty ones."""
    tables = [run.metrics["reliability"] for run in runs if run.metrics.get("reliability")]
    if not tables:
        return ()
    rows = np.array(tables, dtype=float)  # (orders, bins, 3); null has become NaN
    counts = rows[:, :, 0]
    sums = np.nansum(rows[:, :, 1:] * counts[:, :, None], axis=0)
    totals = counts.sum(axis=0)
    return tuple(
        Bin(int(total), float(confidence / total), float(right / total))
        for total, (confidence, right) in zip(totals, sums, strict=True)
        if total
    )


def learning(runs: Sequence[Run]) -> Curve:
    """Accuracy so far at about sixty places, from the twentieth image on."""
    streams = streams_of(runs, lambda run: run.metrics)
    length = min((len(stream) for stream in streams), default=0)
    if not length:
        return ()
    places = np.unique(np.linspace(min(_FIRST_PLACE, length), length, _N_PLACES).astype(int))
    shares = np.stack([np.cumsum(stream)[places - 1] / places for stream in streams])
    return _curve(places, shares)


def level(curve: Curve, accuracy: Spread | None) -> Curve:
    """The places of a curve, all of them at the accuracy of the whole stream."""
    if accuracy is None:
        return ()
    return tuple(Point(point.x, *[accuracy.mean] * 3) for point in curve)


def purity_over_time(runs: Sequence[Run]) -> Curve:
    """Purity of the cache at the checkpoints that lie within every order's."""
    tracks = [np.array(run.metrics.get("purity_over_time") or [], dtype=float) for run in runs]
    if not tracks or not all(len(track) for track in tracks):
        return ()
    start, end = max(track[0, 0] for track in tracks), min(track[-1, 0] for track in tracks)
    places = np.array([x for x in tracks[0][:, 0] if start <= x <= end])
    if not len(places):
        return ()
    return _curve(places, np.stack([np.interp(places, *track.T) for track in tracks]))


def streams_of(
    runs: Sequence[Run], measured: Callable[[Run], Mapping[str, Any]]
) -> list[np.ndarray[Any, Any]]:
    """Right or wrong in the order of the stream, per run; empty where one of them lacks it."""
    found = [in_order(measured(run)) for run in runs]
    known = [stream for stream in found if stream is not None]
    return known if len(known) == len(found) else []


def _curve(places: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> Curve:
    """The mean of ``values`` (orders, places) with a band of one standard deviation."""
    means = values.mean(axis=0)
    stds = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(means)
    return tuple(
        Point(float(x), float(mean), float(mean - std), float(mean + std))
        for x, mean, std in zip(places, means, stds, strict=True)
    )
