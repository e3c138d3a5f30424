"""Checks of the answer: what a prediction looks like, and that it is finite whatever comes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crg.adapter import Adapter
from crg.checks.base import Check, Make, on_host, require
from crg.checks.fixtures import VIEW_COUNTS, Floats, another_direction, make_stream, make_task
from crg.checks.options import small_queues
from crg.types import Prediction, Task


def predictions_are_consistent(make: Make) -> None:
    """Logits (K,) in the task's dtype, probabilities that sum to one, label and name that agree."""
    for dtype in ("float32", "float64"):
        task = make_task(dtype)
        for views in VIEW_COUNTS:
            adapter = make(task)
            for sample in make_stream(task, 60, views):
                require_sound(adapter.step(sample), task)
            require(adapter.n_steps == 60, f"After 60 steps n_steps is {adapter.n_steps}")


def adversarial_streams_give_finite_logits(make: Make) -> None:
    """Whatever finite samples come, in whatever task, the logits are finite."""
    for name, task, stream in _hostile():
        adapters = [make(task)]
        if options := small_queues(adapters[0].config):
            adapters.append(make(task, **options))
        for adapter in adapters:
            _require_sound_throughout(adapter, stream, name)


def _require_sound_throughout(adapter: Adapter, stream: Floats, name: str) -> None:
    for views in stream:
        require_sound(adapter.step(views), adapter.task, f" (stream: {name})")


def require_sound(prediction: Prediction, task: Task, where: str = "") -> None:
    """One prediction holds together and fits the task."""
    logits, probs = on_host(prediction.logits), on_host(prediction.probs)
    shapes = {logits.shape, probs.shape}
    require(shapes == {(task.n_classes,)}, f"Logits or probs have shape {logits.shape}{where}")
    dtype = on_host(task.text_features).dtype
    require(logits.dtype == dtype, f"Logits are {logits.dtype}, not {dtype} as the task is{where}")
    require(bool(np.all(np.isfinite(logits))), f"Logits are not finite: {logits}{where}")
    total, rounding = float(probs.astype(np.float64).sum()), 16 * float(np.finfo(probs.dtype).eps)
    require(abs(total - 1.0) <= rounding * task.n_classes, f"Probs sum to {total}{where}")
    require(bool(np.all(probs >= 0)), f"A probability is negative{where}")
    label = prediction.label
    require(isinstance(label, int), f"The label is a {type(label).__name__}, not an int{where}")
    require(logits[label] == logits.max(), f"Label {label} has not the largest logit{where}")
    name = task.class_names[label]
    require(prediction.class_name == name, f"Label {label} is not {prediction.class_name!r}{where}")


def _hostile() -> Iterator[tuple[str, Task, Floats]]:
    for dtype in ("float32", "float64"):
        task = make_task(dtype, logit_scale=100.0)
        text, odd = np.asarray(task.text_features), another_direction(task)
        one_class = np.repeat(text[None, :1], 40, axis=0)
        yield "one vector over and over", task, np.tile(odd, (40, 8, 1))
        yield "the text features themselves", task, np.tile(text, (8, 1))[:, None, :]
        yield "one class only", task, one_class
        yield "antipodal views", task, np.stack([np.stack([odd, -odd])] * 40)
        yield "opposite of every text feature", task, np.tile(-text, (8, 1))[:, None, :]
        yield "pure noise", task, make_stream(task, 80, 8, noise=1e6)
        yield "subnormal and enormous views", task, make_stream(task, 2) * _extremes(dtype)
        nearly = Task(task.class_names, text[:1] + 1e-4 * text, 100.0)
        yield "nearly equal classes", nearly, make_stream(nearly, 60, 8)
        equal = Task(task.class_names, np.tile(text[:1], (5, 1)), 100.0)
        yield "equal classes", equal, make_stream(task, 60, 8)
        for scale in (1e-3, 1e6):
            steep = make_task(dtype, logit_scale=scale)
            yield f"logit scale {scale}", steep, make_stream(steep, 60, 8)
        for n_classes, width in ((2, 16), (2, 1), (2, 2), (30, 3)):
            small = make_task(dtype, n_classes=n_classes, width=width)
            yield f"K = {n_classes}, D = {width}", small, make_stream(small, 40, 8)


def _extremes(dtype: str) -> Floats:
    limits = np.finfo(dtype)
    return np.array([limits.tiny, limits.max / 4], dtype=dtype)[:, None, None]


CHECKS: list[Check] = [predictions_are_consistent, adversarial_streams_give_finite_logits]
