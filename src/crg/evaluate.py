"""Evaluation: a method meets a stream, and afterwards its predictions meet the labels.

This is the one place where labels meet predictions. The method has answered for a picture
before its label is looked at, and never learns it.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crg import metrics
from crg.adapter import Adapter, create
from crg.equipment import equipped
from crg.features import Features
from crg.methods.registry import get_method
from crg.resources import GENERATED
from crg.stream import shuffled
from crg.threads import one_blas_thread
from crg.types import InputError, Result, SampleId, Step

BASELINE = "zero_shot"
N_CHECKPOINTS = 20
_BLOCK = 32  # pictures that share one check of their features

Order = Sequence[int] | np.ndarray[Any, Any]


def evenly_spaced(n_steps: int, count: int = N_CHECKPOINTS) -> frozenset[int]:
    """About ``count`` places in a stream of ``n_steps``, the last one always among them.

    >>> sorted(evenly_spaced(10, 3))
    [2, 5, 9]
    """
    return frozenset((n_steps * part) // count - 1 for part in range(1, count + 1)) - {-1}


def iter_run(
    adapter: Adapter,
    features: Features,
    order: Order,
    checkpoints: Collection[int] | None = None,
    block: int = 1,
) -> Iterator[Step]:
    """One step per picture of ``order``; at ``checkpoints`` with the purity of the cache.

    The adapter takes ``block`` pictures at a time, never beyond a checkpoint; with more than
    one it is ahead of what was yielded, and the time of a step is the mean of its block.
    """
    stops = evenly_spaced(len(order)) if checkpoints is None else checkpoints
    ids, labels = features.sample_ids, features.labels
    truth = {} if labels is None else dict(zip(ids, labels.tolist(), strict=True))
    n_seen = features.n_views - _hidden_views(adapter, features)

    def seen(row: int) -> np.ndarray[Any, Any]:
        return features.views(row)[:n_seen]

    for places in _blocks(len(order), block, stops):
        rows = [int(order[place]) for place in places]
        names, views = [ids[row] for row in rows], np.stack([seen(row) for row in rows])
        start = time.perf_counter_ns()
        predictions = adapter.step_many(views, names)
        milliseconds = (time.perf_counter_ns() - start) / 1e6 / len(rows)
        for place, name, prediction in zip(places, names, predictions, strict=True):
            purity = _purity(adapter, truth) if truth and place in stops else None
            yield Step(place, name, truth.get(name), prediction, milliseconds, purity)


def _hidden_views(adapter: Adapter, features: Features) -> int:
    """Views that a generator made are for the methods that ask for them, and for no other."""
    generated = features.task.resources.get(GENERATED) or 0
    return 0 if GENERATED in adapter.needs else int(generated)


def _blocks(n_steps: int, size: int, stops: Collection[int]) -> Iterator[range]:
    """Runs of at most ``size`` places, each ending at a stop or before the next one."""
    first = 0
    for place in range(n_steps):
        if place in stops or place - first + 1 == size or place + 1 == n_steps:
            yield range(first, place + 1)
            first = place + 1


def run(
    features: Features,
    method: str = "crg",
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    order: Order | None = None,
    save_state: str | os.PathLike[str] | None = None,
    on_step: Callable[[Step], None] = lambda step: None,
) -> Result:
    """Run one method over the whole stream and measure it, beside zero-shot on the same stream.

    The stream is shuffled by ``seed`` unless an ``order`` is given; ``save_state`` names a
    file for what the method has learnt by the end; ``on_step`` is told of every step.
    """
    if not isinstance(features, Features):
        raise InputError(
            f"The features are a {type(features).__name__}: read a file with crg.read_features."
        )
    start = time.perf_counter()
    rows = shuffled(len(features), seed) if order is None else _checked_order(order, len(features))
    task = equipped(features.task, get_method(method).needs, features.model)
    adapter = create(method, task, **dict(options or {}))
    measured = _measured(adapter, features, rows, on_step)
    seconds = time.perf_counter() - start
    if save_state is not None:
        adapter.save(save_state)
    if method == BASELINE:
        baseline = measured
    else:
        baseline = _measured(create(BASELINE, features.task), features, rows)
    settings = dataclasses.asdict(adapter.config)
    return Result(method, settings, seed, measured, baseline, len(rows), seconds)


def _checked_order(order: Order, n_rows: int) -> np.ndarray[Any, Any]:
    rows = np.asarray(order)
    whole = rows.ndim == 1 and rows.size and rows.dtype.kind in "iu"
    if not whole or rows.min() < 0 or rows.max() >= n_rows or len(set(rows.tolist())) < len(rows):
        raise InputError(
            f"The order is no list of different rows: give whole numbers from 0 to {n_rows - 1}, "
            "each at most once."
        )
    return rows


def correct_rows(metrics_of_run: Mapping[str, Any], n_rows: int) -> np.ndarray[Any, Any]:
    """Which rows of the file were predicted rightly (N,), from the ``correct`` of a run."""
    packed = np.frombuffer(bytes.fromhex(metrics_of_run["correct"]), dtype=np.uint8)
    return np.unpackbits(packed, count=n_rows).astype(bool)


@dataclass
class _Tally:
    """The few figures per step that the metrics need; logits would fill the memory."""

    predicted: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    surprise: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    purity: list[list[float]] = field(default_factory=list)  # [step, purity]

    def add(self, step: Step) -> None:
        self.predicted.append(step.prediction.label)
        self.confidence.append(float(step.prediction.probs[step.prediction.label]))
        self.milliseconds.append(step.milliseconds)
        if step.label is not None:
            logits = np.asarray(step.prediction.logits)[None, :]
            self.surprise.append(float(metrics.surprises(logits, np.array([step.label]))[0]))
        if step.purity is not None:
            self.purity.append([step.index + 1, step.purity])


def _measured(
    adapter: Adapter,
    features: Features,
    rows: np.ndarray[Any, Any],
    on_step: Callable[[Step], None] = lambda step: None,
) -> dict[str, Any]:
    tally = _Tally()
    with one_blas_thread():
        for step in iter_run(adapter, features, rows, block=_BLOCK):
            tally.add(step)
            on_step(step)
    times = np.array(tally.milliseconds)
    speed = {
        "ms_per_step": metrics.mean_milliseconds(times),
        "ms_per_step_median": metrics.median_milliseconds(times),
    }
    return speed if features.labels is None else {**_quality(tally, features, rows), **speed}


def _quality(tally: _Tally, features: Features, rows: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Everything that needs labels; plain values, ready for JSON."""
    assert features.labels is not None
    names, labels = features.task.class_names, features.labels[rows]
    predicted = np.array(tally.predicted)
    by_class = metrics.per_class_accuracy(predicted, labels, len(names)).tolist()
    return {
        "accuracy": metrics.accuracy(predicted, labels),
        "per_class_accuracy": {
            name: None if np.isnan(share) else share
            for name, share in zip(names, by_class, strict=True)
        },
        "worst_class_accuracy": metrics.worst_class_accuracy(predicted, labels, len(names)),
        "ece": metrics.expected_calibration_error(np.array(tally.confidence), predicted == labels),
        "nll": float(np.mean(tally.surprise)),
        "purity": tally.purity[-1][1] if tally.purity else None,
        "purity_over_time": tally.purity,
        "correct": _packed(predicted == labels, rows, len(features)),
    }


def _packed(correct: np.ndarray[Any, Any], rows: np.ndarray[Any, Any], n_rows: int) -> str:
    """One bit per row of the file, so that runs in different orders pair up picture by picture."""
    by_row = np.zeros(n_rows, dtype=bool)
    by_row[rows] = correct
    return np.packbits(by_row).tobytes().hex()


def _purity(adapter: Adapter, truth: Mapping[SampleId, int]) -> float | None:
    return metrics.cache_purity(_cached(adapter, truth))


def _cached(adapter: Adapter, truth: Mapping[SampleId, int]) -> Iterable[tuple[int, int]]:
    for queue, entries in enumerate(adapter.cache.values()):
        for entry in entries:
            if entry.sample_id is not None:  # a seed is no picture
                yield queue, truth[entry.sample_id]
