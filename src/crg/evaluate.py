"""Evaluation: a method meets a stream, and afterwards its predictions meet the labels.

This is the one place where labels meet predictions. The method has answered for an image
before its label is looked at, and never learns it.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from crg.adapter import Adapter, create
from crg.encoders import equipped
from crg.features.files import Features
from crg.methods.registry import BASELINE, DEFAULT, get_method
from crg.resources import GENERATED
from crg.results.measurements import Measurements
from crg.results.schema import Data, Result
from crg.streams import Scenario
from crg.streams.label_noise import LabelNoise
from crg.streams.orders import NO_CLASS, Stream, lay_out
from crg.threads import one_blas_thread
from crg.types import InputError, SampleId, Step

N_CHECKPOINTS = 20
_BLOCK = 32  # images that share one check of their features

Numbers = np.ndarray[Any, Any]
Order = Sequence[int] | Numbers


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
    labels: Numbers | None = None,
) -> Iterator[Step]:
    """One step per image of ``order``; at ``checkpoints`` with the purity of the cache.

    The adapter takes ``block`` images at a time, never beyond a checkpoint; with more than
    one it is ahead of what was yielded, and the time of a step is the mean of its block.
    ``labels`` stand in for those of the file; an image of no class has -1 there, counts as
    wrong wherever it is cached, and has no label in its step.
    """
    stops = evenly_spaced(len(order)) if checkpoints is None else checkpoints
    ids = features.sample_ids
    truth = _truth(features, features.labels if labels is None else labels)
    n_seen = features.n_views - _hidden_views(adapter, features)
    counted = rightly = 0.0  # what images counted for, in a method that learns from all of them
    for places in _blocks(len(order), block, stops):
        rows = [int(order[place]) for place in places]
        names = [ids[row] for row in rows]
        views = np.stack([features.views(row)[:n_seen] for row in rows])
        start = time.process_time_ns()  # without the wait for other processes
        predictions = adapter.step_many(views, names)
        milliseconds = (time.process_time_ns() - start) / 1e6 / len(rows)
        for place, name, prediction in zip(places, names, predictions, strict=True):
            label = truth.get(name, NO_CLASS)
            if (learnt := prediction.diagnostics.learnt) is not None:  # (K,)
                counted += float(learnt.sum())
                rightly += float(learnt[label]) if label != NO_CLASS else 0.0
            purity = None
            if truth and place in stops:
                purity = rightly / counted if counted else _purity(adapter, truth)
            known = None if label == NO_CLASS else label
            yield Step(place, name, known, prediction, milliseconds, purity)


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
    method: str = DEFAULT,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    on_step: Callable[[Step], None] = lambda step: None,
    scenario: Scenario | None = None,
) -> Result:
    """Run one method over the whole stream and measure it, beside zero-shot on the same stream.

    The stream is shuffled by ``seed`` unless a ``scenario`` says otherwise; ``on_step`` is called
    with every step. The metrics ``correct``, ``predicted`` and ``right_in_order`` hold one value
    per image: ``crg.results.measurements`` unpacks them.
    """
    if not isinstance(features, Features):
        raise InputError(
            f"The features are a {type(features).__name__}: read a file with crg.read_features."
        )
    start, scenario = time.perf_counter(), scenario or Scenario()
    stream = lay_out(features, scenario, seed)
    task = equipped(stream.features.task, get_method(method).needs, features.model)
    adapter = create(method, task, **dict(options or {}))
    noise = _with_label_noise(adapter, stream, scenario.mislabelled, seed)
    if scenario.order == "out_of_distribution":
        adapter.decide()  # so that the ranking by ``outside`` is measured
    measured = _measured(adapter, stream, on_step, noise)
    if scenario.passes == 2:
        measured = _measured_again(adapter, stream, measured.get("mislabelled"))
    seconds = time.perf_counter() - start
    settings = dataclasses.asdict(adapter.config)
    if method == BASELINE and settings == dataclasses.asdict(get_method(BASELINE).Config()):
        baseline = measured
    else:
        baseline = _zero_shot(features, replace(scenario, passes=1), seed)
    return Result(
        data=Data("", features.sha256),
        method=method,
        given=dict(options or {}),
        seed=seed,
        scenario=scenario,
        options=settings,
        metrics=measured,
        zero_shot=baseline,
        n_samples=len(stream.rows),
        seconds=seconds,
    )


@functools.lru_cache(maxsize=16)
def _zero_shot(features: Features, scenario: Scenario, seed: int) -> dict[str, Any]:
    """Zero-shot on a stream: the same for all methods that meet it."""
    stream = lay_out(features, scenario, seed)
    return _measured(create(BASELINE, stream.features.task), stream)


def _measured(
    adapter: Adapter,
    stream: Stream,
    on_step: Callable[[Step], None] = lambda step: None,
    noise: LabelNoise | None = None,
) -> dict[str, Any]:
    measured = Measurements()
    with one_blas_thread():
        for step in iter_run(adapter, stream.features, stream.rows, None, _BLOCK, stream.labels):
            measured.add(step)
            on_step(step)
    return measured.figures(stream, None if noise is None else noise.as_record())


def _measured_again(adapter: Adapter, stream: Stream, mislabelled: Any) -> dict[str, Any]:
    """The second pass: every image is answered with what all of them taught."""
    measured, features = Measurements(), stream.features
    truth = _truth(features, stream.labels)
    n_seen = features.n_views - _hidden_views(adapter, features)
    images = [(features.sample_ids[int(row)], int(row)) for row in stream.rows]
    with one_blas_thread():
        start = time.process_time_ns()
        adapter.finish((name, features.views(row)[:n_seen]) for name, row in images)
        for place, (name, row) in enumerate(images):
            prediction = adapter.answer(features.views(row)[:n_seen], name)
            milliseconds = (time.process_time_ns() - start) / 1e6
            label = truth.get(name, NO_CLASS)
            known = None if label == NO_CLASS else label
            measured.add(Step(place, name, known, prediction, milliseconds, None))
            start = time.process_time_ns()
    return measured.figures(stream, mislabelled)


def _with_label_noise(
    adapter: Adapter, stream: Stream, share: float, seed: int
) -> LabelNoise | None:
    """Let the method learn a fraction of the images under a wrong class, if it learns any."""
    if share == 0.0:
        return None
    truth = _truth(stream.features, stream.labels)
    noise = LabelNoise(share, truth, adapter.task.n_classes, seed)
    return noise if adapter._method.file_with(noise) else None


def _truth(features: Features, labels: Numbers | None) -> dict[SampleId, int]:
    """The true class of each image by its name, -1 for one of no class; empty if unknown."""
    return {} if labels is None else dict(zip(features.sample_ids, labels.tolist(), strict=True))


def _purity(adapter: Adapter, truth: Mapping[SampleId, int]) -> float | None:
    """Fraction of cached images in the queue of the right class; None for an empty cache."""
    queues = enumerate(adapter.cache.values())
    cached = ((queue, each.sample_id) for queue, entries in queues for each in entries)
    right = [queue == truth[name] for queue, name in cached if name is not None]  # without seeds
    return sum(right) / len(right) if right else None
