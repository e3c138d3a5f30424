"""Statistics: what the runs of a method amount to, and how methods differ.

All commands print what this module computes. Every difference is between answers to the same image
in the same stream order. The interval is that of ``crg.metrics.paired_interval``, a crossed
bootstrap over images and orders. A difference is significant if its 95% interval excludes zero, and
only with at least ``ENOUGH_ORDERS`` orders of at least ``ENOUGH_IMAGES`` scored images each.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from crg import metrics
from crg.metrics import Interval
from crg.results.measurements import unpacked_bits
from crg.results.schema import ENOUGH_IMAGES, ENOUGH_ORDERS, Result
from crg.streams.orders import shuffled

FIRST = (50, 100, 200, 500)  # images of a cold start
QUALITY = ("accuracy", "ece", "aurc", "accuracy_at_90", "nll", "worst_class_accuracy")
AVERAGED = (*QUALITY, "outside_auroc", "purity")  # metrics whose mean over orders is shown
_N_PLACES = 60  # of a curve
_FIRST_PLACE = 20  # the accuracy over fewer images is mostly noise

Numbers = np.ndarray[Any, Any]
Point = tuple[float, float, float]  # x, mean, standard deviation
Curve = tuple[Point, ...]
Which: TypeAlias = Literal["metrics", "zero_shot"]


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
    corrected: int = 0  # errors of the other one in the first order
    broken: int = 0  # its correct answers in the first order

    @property
    def mark(self) -> str:
        """▲ significantly better, ▼ significantly worse, nothing where not significant."""
        return {"better": "▲", "worse": "▼"}.get(self.verdict, "")


@dataclass(frozen=True, eq=False)
class Correctness:
    """Which images were predicted correctly, by row of the file, in each of some orders."""

    seeds: tuple[int, ...]
    right: Numbers  # (orders, N)
    seen: Numbers  # (orders, N): which images were scored
    for_all_orders: bool = False  # one order only: the answers are the same in every one

    def of(self, seeds: Sequence[int]) -> tuple[Numbers, Numbers]:
        """``right`` and ``seen`` in the orders of ``seeds``, each of which must be there."""
        places = [0 if self.for_all_orders else self.seeds.index(seed) for seed in seeds]
        return self.right[places], self.seen[places]


def contrast(
    one: Correctness | None, other: Correctness | None, label: str, n_all: int
) -> Contrast | None:
    """``one`` against ``other`` on the images and orders that they share; None without any.

    A method that is run once stands for ``n_all`` orders.
    """
    if one is None or other is None or one.right.shape[1] != other.right.shape[1]:
        return None
    seeds = other.seeds if one.for_all_orders else one.seeds
    if not one.for_all_orders and not other.for_all_orders:
        seeds = tuple(seed for seed in one.seeds if seed in other.seeds)
    (mine, seen), (theirs, also_seen) = one.of(seeds), other.of(seeds)
    seen = seen & also_seen
    if not seen.any():
        return None
    interval = metrics.paired_interval(mine, theirs, seen)
    n_orders = n_all if one.for_all_orders and other.for_all_orders else len(seeds)
    first, other_first = mine[0] & seen[0], theirs[0] & seen[0]
    found = judged(label, interval, n_orders, int(seen.sum(axis=1).min()))
    corrected, broken = int((first & ~other_first).sum()), int((other_first & ~first).sum())
    return replace(found, corrected=corrected, broken=broken)


def judged(label: str, interval: Interval, n_orders: int, n_images: int) -> Contrast:
    """The contrast and its verdict; ``n_images`` is the smallest count of any order."""
    too_few = n_orders < ENOUGH_ORDERS or n_images < ENOUGH_IMAGES
    if too_few or interval.low <= 0 <= interval.high:
        return Contrast(label, interval)
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


def correctness(runs: Sequence[Result], which: Which, once: bool) -> Correctness | None:
    """Of a method, or of zero-shot in the same runs; None without labels."""
    texts = [getattr(run, which).get("correct") for run in runs]
    known = [text for text in texts if text is not None]
    if len(known) < len(runs) or len(set(map(len, known))) != 1:
        return None  # no labels, or the file was replaced between the runs
    width = 4 * len(known[0])  # four bits per digit; the last ones may be padding
    right = np.stack([unpacked_bits(text, width) for text in known])
    seen = np.stack([
        np.arange(width) < run.n_scored
        if (streamed := run.metrics.get("streamed")) is None
        else unpacked_bits(streamed, width)
        for run in runs
    ])  # fmt: skip
    return Correctness(tuple(run.seed for run in runs), right & seen, seen, once)


def _streams(runs: Sequence[Result], which: Which) -> list[Numbers]:
    """Right or wrong by position in the stream, per run; empty if one of the runs lacks it."""
    found = [
        unpacked_bits(text, run.n_scored)
        for run in runs
        if (text := getattr(run, which).get("right_in_order")) is not None
    ]
    return found if len(found) == len(runs) else []


def figures_of(runs: Sequence[Result], once: bool) -> dict[str, Any]:
    """Everything measured of a method over its orders, by the names of ``MethodResult``."""
    own = [run.metrics for run in runs]
    times = [each["ms_per_step_median"] for each in own if each.get("ms_per_step_median")]
    return {
        **{name: spread([each.get(name) for each in own]) for name in AVERAGED},
        "ms_per_step": statistics.median(times) if times else None,
        "peak_bytes": max((each.get("peak_bytes") or 0 for each in own), default=0) or None,
        "learning": _learning(runs, once),
        "baseline_learning": _learning(runs, once, "zero_shot"),
        "purity_over_time": _purity_over_time(own),
    }


def _learning(runs: Sequence[Result], once: bool, which: Which = "metrics") -> Curve:
    """Running accuracy at about sixty positions, from the twentieth image on.

    For a method that is run once it is flat: in random order, every part of the stream has the
    expected accuracy of the whole.
    """
    streams = _streams(runs, which)
    length = min(map(len, streams), default=0)
    if not length:
        return ()
    places = np.unique(np.linspace(min(_FIRST_PLACE, length), length, _N_PLACES).astype(int))
    if once:
        places, streams = places[[0, -1]], [np.full(length, stream.mean()) for stream in streams]
    return _curve(places, np.stack([np.cumsum(each)[places - 1] / places for each in streams]))


def _purity_over_time(own: Sequence[Mapping[str, Any]]) -> Curve:
    """Purity of the cache at the checkpoints that all orders cover."""
    tracks = [np.array(each.get("purity_over_time") or [], dtype=float) for each in own]
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


def first_gains(runs: Sequence[Result], label: str) -> Mapping[int, Contrast]:
    """The gain over zero-shot on the first n images, where every stream has so many.

    Empty where the seed of a run does not give the order of its stream.
    """
    own, base = correctness(runs, "metrics", False), correctness(runs, "zero_shot", False)
    streams = _streams(runs, "metrics")
    if own is None or base is None or not streams:
        return {}
    orders = [shuffled(run.n_scored, run.seed) for run in runs]
    for right, order, stream in zip(own.right, orders, streams, strict=True):
        if len(order) != len(stream) or not np.array_equal(right[order], stream):
            return {}
    gains = {}
    for n in [n for n in FIRST if n <= min(map(len, streams))]:
        seen = np.zeros_like(own.seen)
        for place, order in enumerate(orders):
            seen[place, order[:n]] = True
        interval = metrics.paired_interval(own.right, base.right, seen)
        gains[n] = judged(label, interval, len(runs), n)
    return gains
