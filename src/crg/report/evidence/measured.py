"""From the runs of one row, one per stream order, to the figures of its line."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crg.report.evidence.runs import Run, in_order
from crg.report.evidence.study import Bin, Curve, Point, Spread

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
