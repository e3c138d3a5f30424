"""The first images of a stream: how many of them are answered rightly, and against zero-shot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crg import metrics
from crg.metrics import Interval
from crg.report.evidence.measured import spread, streams_of
from crg.report.evidence.pairing import RESAMPLES, judged
from crg.report.evidence.runs import Answers, Run, answers_of, zero_shot_answers
from crg.report.evidence.study import Contrast, Spread
from crg.streams.orders import shuffled
from crg.streams.scenario import SHUFFLED

Rows = np.ndarray[Any, Any]
FIRST = (50, 100, 200, 500)  # images of a cold start


def first_ones(runs: Sequence[Run]) -> Mapping[int, Spread]:
    """Accuracy over the first n images, where the stream has so many."""
    streams = streams_of(runs, lambda run: run.metrics)
    found = {n: spread([float(stream[:n].mean()) for stream in streams]) for n in _sizes(streams)}
    return {n: each for n, each in found.items() if each is not None}


def first_gains(runs: Sequence[Run], label: str, n_orders: int) -> Mapping[int, Contrast]:
    """The same against zero-shot."""
    mine = streams_of(runs, lambda run: run.metrics)
    base = streams_of(runs, lambda run: run.zero_shot)
    if not mine or not base:
        return {}
    orders = _orders_of(runs)
    gains: dict[int, Contrast] = {}
    for n in _sizes([*mine, *base]):
        # Orders begin with other images, but some of these come early in several: only where
        # it is known which ones can an image be drawn in all orders at once.
        interval = None if orders is None else _crossed(runs, orders, n)
        if interval is None:
            right, baseline = (np.stack([s[:n] for s in each]) for each in (mine, base))
            interval = metrics.nested_interval(right, baseline, RESAMPLES)
        gains[n] = judged(label, interval, n_orders, n)
    return gains


def _crossed(runs: Sequence[Run], orders: Sequence[Rows], n: int) -> Interval | None:
    """The paired interval over the images that come first, which differ from order to order."""
    mine, base = answers_of(runs, False), zero_shot_answers(runs, False)
    if mine is None or base is None:
        return None
    seen = np.zeros_like(mine.seen)
    for place, order in enumerate(orders):
        seen[place, order[:n]] = True
    return metrics.paired_interval(mine.right, base.right, seen, RESAMPLES)


def _orders_of(runs: Sequence[Run]) -> list[Rows] | None:
    """Rows of the file as they came, by the seed; None where the answers tell another story."""
    answers = answers_of(runs, False)
    if answers is None or any(_order_named(run) != SHUFFLED for run in runs):
        return None
    orders = [shuffled(run.n_scored, run.seed) for run in runs]
    streams = streams_of(runs, lambda run: run.metrics)
    fits = all(_fits(answers, place, order, streams[place]) for place, order in enumerate(orders))
    return orders if fits else None


def _fits(answers: Answers, place: int, order: Rows, stream: Rows) -> bool:
    return len(order) == len(stream) and np.array_equal(answers.right[place, order], stream)


def _order_named(run: Run) -> str:
    return str((run.record.get("scenario") or {}).get("order", SHUFFLED))


def _sizes(streams: Sequence[Rows]) -> list[int]:
    shortest = min((len(stream) for stream in streams), default=0)
    return [n for n in FIRST if n <= shortest]
