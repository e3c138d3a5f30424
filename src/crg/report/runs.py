"""What the runs of one method, one per stream order, amount to: answers, figures and curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crg import metrics
from crg.report.contrasts import Answers, Contrast, Numbers, judged, spread
from crg.results.measurements import unpacked_bits
from crg.results.schema import Metrics, Run
from crg.streams import SHUFFLED
from crg.streams.orders import shuffled

FIRST = (50, 100, 200, 500)  # images of a cold start
_N_PLACES = 60  # of a curve
_FIRST_PLACE = 20  # the accuracy over fewer images says nothing

Curve = tuple[tuple[float, float, float], ...]  # x, mean, standard deviation


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """A run as the statistics need it."""

    run: Run
    line: int
    own: Metrics
    base: Metrics

    @property
    def n_scored(self) -> int:
        """How many images were scored."""
        return self.run.n_samples if self.own.n_scored is None else self.own.n_scored


def answers_of(
    runs: Sequence[MeasuredRun], which: Callable[[MeasuredRun], Metrics], once: bool
) -> Answers | None:
    """The answers of a method; None where there were no labels to judge them by."""
    texts = [which(run).correct for run in runs]
    known = [text for text in texts if text is not None]
    if len(known) < len(runs) or len(set(map(len, known))) != 1:
        return None  # or other images, as when a file was replaced between the runs
    width = 4 * len(known[0])  # four bits a digit; the last ones may mean nothing
    right = np.stack([unpacked_bits(text, width) for text in known])
    seen = np.stack([
        np.arange(width) < run.n_scored
        if run.own.streamed is None
        else unpacked_bits(run.own.streamed, width)
        for run in runs
    ])  # fmt: skip
    return Answers(tuple(run.run.seed for run in runs), right & seen, seen, once)


def _streams(runs: Sequence[MeasuredRun], which: Callable[[MeasuredRun], Metrics]) -> list[Numbers]:
    """Right or wrong in the order of the stream, per run; empty where one of them lacks it."""
    found = [
        unpacked_bits(text, run.n_scored)
        for run in runs
        if (text := which(run).right_in_order) is not None
    ]
    return found if len(found) == len(runs) else []


def figures_of(runs: Sequence[MeasuredRun], once: bool) -> dict[str, Any]:
    """Everything measured of a method over its orders, by the names of ``MethodResult``."""
    own = [run.own for run in runs]
    counts = [each.mislabelled for each in own if each.mislabelled]
    insertions = sum(each.insertions for each in counts)
    wrong = sum(each.mislabelled for each in counts)
    return {
        "accuracy": spread([each.accuracy for each in own]),
        "ece": spread([each.ece for each in own]),
        "nll": spread([each.nll for each in own]),
        "worst_class": spread([each.worst_class_accuracy for each in own]),
        "purity": spread([each.purity for each in own]),
        "peak_bytes": max((each.peak_bytes for each in own if each.peak_bytes), default=None),
        "mislabelled": wrong / insertions if insertions else None,
        "reliability": _reliability(own),
        "learning": _learning(runs, once),
        "purity_over_time": _purity_over_time(own),
        "lines": tuple(run.line for run in runs),
    }


def _reliability(own: Iterable[Metrics]) -> tuple[tuple[int, float, float], ...]:
    """The bins of all orders together, without the empty ones."""
    tables = [each.reliability for each in own if each.reliability]
    if len({len(each) for each in tables}) != 1:
        return ()  # none, or bins of several sizes
    rows = np.array(tables, dtype=float)  # (orders, bins, 3); None has become NaN
    counts = rows[:, :, 0]
    sums = np.nansum(rows[:, :, 1:] * counts[:, :, None], axis=0)
    return tuple(
        (int(total), float(confidence / total), float(right / total))
        for total, (confidence, right) in zip(counts.sum(axis=0), sums, strict=True)
        if total
    )


def _learning(runs: Sequence[MeasuredRun], once: bool) -> Curve:
    """Running accuracy at about sixty places, from the twentieth image on.

    Of a method that is run once it is level: as far as the order is up to chance, any part of
    the stream is expected to have the accuracy of the whole.
    """
    streams = _streams(runs, lambda run: run.own)
    length = min(map(len, streams), default=0)
    if not length:
        return ()
    places = np.unique(np.linspace(min(_FIRST_PLACE, length), length, _N_PLACES).astype(int))
    if once:
        places, streams = places[[0, -1]], [np.full(length, stream.mean()) for stream in streams]
    return _curve(places, np.stack([np.cumsum(each)[places - 1] / places for each in streams]))


def _purity_over_time(own: Sequence[Metrics]) -> Curve:
    """Purity of the cache at the checkpoints that lie within every order's."""
    tracks = [np.array(each.purity_over_time, dtype=float) for each in own]
    if not tracks or not all(len(track) for track in tracks):
        return ()
    start, end = max(track[0, 0] for track in tracks), min(track[-1, 0] for track in tracks)
    places = np.array([x for x in tracks[0][:, 0] if start <= x <= end])
    if not len(places):
        return ()
    return _curve(places, np.stack([np.interp(places, *track.T) for track in tracks]))


def _curve(places: Numbers, values: Numbers) -> Curve:
    """The mean of ``values`` (orders, places) and its standard deviation."""
    means = values.mean(axis=0)
    stds = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(means)
    return tuple(zip(places.astype(float).tolist(), means.tolist(), stds.tolist(), strict=True))


def first_gains(runs: Sequence[MeasuredRun], label: str) -> Mapping[int, Contrast]:
    """The gain over zero-shot on the first n images, where every stream has so many.

    Orders begin with other images, but some come early in several: where the orders are known, an
    image is drawn in all of them at once, otherwise the bootstrap is nested.
    """
    mine, base = _streams(runs, lambda run: run.own), _streams(runs, lambda run: run.base)
    if not mine or not base:
        return {}
    orders, gains = _orders_of(runs), {}
    for n in [n for n in FIRST if n <= min(map(len, mine))]:
        if orders is None:
            right, wrong = (np.stack([each[:n] for each in some]) for some in (mine, base))
            interval = metrics.nested_interval(right, wrong)
        else:
            own, other, rows = orders
            seen = np.zeros_like(own.seen)
            for place, order in enumerate(rows):
                seen[place, order[:n]] = True
            interval = metrics.paired_interval(own.right, other.right, seen)
        gains[n] = judged(label, interval, len(runs), n)
    return gains


def _orders_of(runs: Sequence[MeasuredRun]) -> tuple[Answers, Answers, list[Numbers]] | None:
    """Both answers and the rows as they came; None where the answers do not fit the orders."""
    own = answers_of(runs, lambda run: run.own, False)
    base = answers_of(runs, lambda run: run.base, False)
    if own is None or base is None:
        return None
    if any(run.run.scenario.get("order", SHUFFLED) != SHUFFLED for run in runs):
        return None
    orders = [shuffled(run.n_scored, run.run.seed) for run in runs]
    streams = _streams(runs, lambda run: run.own)
    fits = all(
        len(order) == len(stream) and np.array_equal(own.right[place, order], stream)
        for place, (order, stream) in enumerate(zip(orders, streams, strict=True))
    )
    return (own, base, orders) if fits else None
