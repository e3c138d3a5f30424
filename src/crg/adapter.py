"""Adapter: a method at work. It checks what comes in, numbers samples and saves state.

Checks happen before the method sees anything, so a refused sample changes nothing.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any

from crg import state_file
from crg.encoders import equipped
from crg.methods.base import Method
from crg.methods.options import build_config
from crg.methods.registry import get_method
from crg.needs import check_needs
from crg.parts.cache import Entry
from crg.types import (
    Array,
    InputError,
    Prediction,
    Sample,
    SampleId,
    Task,
    as_floats,
    like,
    namespace,
    unit_rows,
)


def create(method: str, task: Task, **options: Any) -> Adapter:
    """A method by name, with its options, ready for the first sample.

    >>> import numpy as np
    >>> task = Task(["cat", "dog"], np.eye(2, 4))
    >>> create("zero_shot", task).step([0.9, 0.1, 0.0, 0.0]).class_name
    'cat'
    """
    kind = get_method(method)
    if not isinstance(task, Task):
        raise InputError(f"The task is a {type(task).__name__}: make one with crg.Task.")
    config = build_config(method, kind.Config, options)
    check_needs(method, kind.needs_with(config), task)
    try:
        return Adapter(kind(task, config))
    except MemoryError:
        raise InputError(
            f"Method {method!r} does not fit into memory for {task.n_classes} classes of width "
            f"{task.width}: make its queues smaller."
        ) from None


def load(path: str | os.PathLike[str], resources: Mapping[str, Any] | None = None) -> Adapter:
    """The adapter that ``Adapter.save`` wrote, ready to go on where it stopped.

    A text encoder is not in the file: it is loaded by the name of its model, unless it is
    among the ``resources`` that are given.
    """
    saved = state_file.read(path)
    task = saved.task.with_resources(resources or {})
    task = equipped(task, get_method(saved.method).needs, saved.model)
    adapter = create(saved.method, task, **saved.options)
    adapter._method.restore(saved.state)
    adapter.n_steps = saved.n_steps
    return adapter


class Adapter:
    """Feed it samples one at a time; made by ``crg.create`` or ``crg.load``."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self.n_steps = 0

    @property
    def name(self) -> str:
        """Name of the method."""
        return self._method.name

    @property
    def needs(self) -> tuple[str, ...]:
        """What the method needs beyond class names and text features."""
        return self._method.needs

    @property
    def task(self) -> Task:
        """Classes and text features as they are now."""
        return self._method.task

    @property
    def config(self) -> Any:
        """The method's options."""
        return self._method.config

    @property
    def cache(self) -> dict[str, tuple[Entry, ...]]:
        """Per class the cached images, most confident first; empty without a cache."""
        queues = self._method.queues
        if queues is None:
            return {}
        return {name: queues.entries(k) for k, name in enumerate(self.task.class_names)}

    def step(self, views: Array, sample_id: SampleId | None = None) -> Prediction:
        """Adapt to one image, (D,) or (V, D) with the original in row 0, and predict it."""
        prediction = self._method.step(self._sample(views, sample_id))
        self.n_steps += 1
        return prediction

    def step_many(
        self, stream: Array, sample_ids: Sequence[SampleId] | None = None
    ) -> list[Prediction]:
        """What ``step`` gives for each image of (N, D) or (N, V, D), with one check for all.

        If an image is refused, none has been taken.
        """
        rows = as_floats(stream, "stream")
        if rows.ndim not in (2, 3):
            raise InputError(
                f"The stream has shape {tuple(rows.shape)}: give images as (N, D) or (N, V, D)."
            )
        n, n_views = rows.shape[0], 1 if rows.ndim == 2 else rows.shape[1]
        given = range(self.n_steps, self.n_steps + n) if sample_ids is None else sample_ids
        if len(given) != n:
            raise InputError(f"There are {n} images but {len(given)} ids: give one id per image.")
        if n == 0:
            return []
        what = "stream" if n_views == 1 else f"stream ({n_views} rows an image)"
        rows, ids = self._checked(rows, n_views, what), [_checked_id(each) for each in given]
        views = namespace(rows).reshape(rows, (n, n_views, -1))
        samples = [Sample(views[i, :, :], ids[i]) for i in range(n)]
        predictions = self._method.step_many(samples)
        self.n_steps += n
        return predictions

    def correct(
        self, image: SampleId | Array, class_name: str, sample_id: SampleId | None = None
    ) -> None:
        """A person says what an image shows, and the method learns it.

        ``image`` is the id of an image that is still remembered, or a feature (D,) or views
        (V, D). What the image had been taken for before is taken back, if it is remembered
        under its id (with a feature: ``sample_id``).
        """
        label = self.task.index_of(class_name)
        self._method.correct(self._corrected(image, sample_id), label)

    def _corrected(self, image: SampleId | Array, sample_id: SampleId | None) -> Sample:
        if not isinstance(image, (str, int)):
            name = f"correction {self.n_steps}" if sample_id is None else sample_id
            return self._sample(image, name)
        feature = self._method.recall(image)
        if feature is None:
            raise InputError(
                f"The image {image!r} is not remembered by method {self.name!r}: "
                "give its feature too, correct(feature, class_name, sample_id)."
            )
        return Sample(feature[None, :], image)

    def reset(self) -> None:
        """Forget every sample; classes stay as they are."""
        self._method.reset()
        self.n_steps = 0

    def add_class(self, name: str, text_feature: Array) -> None:
        """From now on choose from one class more."""
        self._method.task = task = self.task.with_class(name, text_feature)
        self._method.add_class(task.text_features[-1, :])

    def remove_class(self, name: str) -> None:
        """From now on choose from one class less; what its queue held is forgotten."""
        index, task = self.task.index_of(name), self.task.without_class(name)
        self._method.task = task
        self._method.remove_class(index)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, at once or not at all."""
        method = self._method
        state_file.write(
            path, method.name, method.config, method.task, self.n_steps, method.state()
        )

    def _sample(self, views: Array, sample_id: SampleId | None) -> Sample:
        rows = as_floats(views, "views")
        if rows.ndim == 1:
            rows = rows[None, :]
        if rows.ndim != 2:
            raise InputError(
                f"The views have shape {tuple(rows.shape)}: "
                "give one image at a time, (D,) or (V, D)."
            )
        identity = self.n_steps if sample_id is None else _checked_id(sample_id)
        return Sample(self._checked(rows, rows.shape[0], "views"), identity)

    def _checked(self, rows: Array, n_views: int, what: str) -> Array:
        """Views as unit rows (N, D) in the library and precision of the task."""
        text, width = self.task.text_features, rows.shape[-1]
        if n_views == 0 or width == 0:
            raise InputError("There are no views: give at least the feature of the original.")
        if width != text.shape[1]:
            raise InputError(
                f"The views are {width} wide but the text features {text.shape[1]}: "
                "encode both with the same model."
            )
        flat = rows if rows.ndim == 2 else namespace(rows).reshape(rows, (-1, width))
        return unit_rows(like(flat, text), what)


def _checked_id(given: Any) -> SampleId:
    """A sample id that can be saved with the state."""
    if isinstance(given, str):
        return str(given)
    try:
        return operator.index(given)  # NumPy's integers too
    except TypeError:
        raise InputError(
            f"The sample id {given!r} is neither a whole number nor a text: give one of these."
        ) from None
