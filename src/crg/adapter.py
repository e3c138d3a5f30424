"""Adapter: a method at work. It checks what comes in, numbers samples and saves state.

Checks happen before the method sees anything, so a refused sample changes nothing. Whatever
changes the state happens wholly or not at all: after an exception, and so after Ctrl-C, it goes
back to a copy of the method and takes the samples since then again. One thread at a time changes
an adapter; another one waits. Beside the method it keeps decisions, which say whether an image is
of no class: such an image is answered and not learnt.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import operator
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np

from crg import state_file
from crg.atomic import replacing
from crg.methods.base import Method, copied
from crg.methods.options import build_config
from crg.methods.registry import get_method
from crg.parts.cache import Entry
from crg.parts.decisions import Decisions, NoneOfThese
from crg.resources import TEXT_ENCODER, check_needs
from crg.state_file import Saved
from crg.types import (
    Array,
    InputError,
    Prediction,
    Sample,
    SampleId,
    Task,
    as_floats,
    like,
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
    check_needs(method, kind.needs, task)
    try:
        return Adapter(kind(task, config))
    except MemoryError:
        raise InputError(
            f"Method {method!r} does not fit into memory for {task.n_classes} classes of width "
            f"{task.width}: make its queues smaller."
        ) from None


def load(path: str | os.PathLike[str], resources: Mapping[str, Any] | None = None) -> Adapter:
    """The adapter that ``Adapter.save`` wrote, ready to continue where it stopped.

    A text encoder is not in the file: a method that needs one finds it among ``resources``, as
    in ``{"text_encoder": encoder.promptable()}``. ``Classifier.load`` loads the model, too.
    """
    if not isinstance(resources, Mapping | None):
        raise InputError(
            f"The resources are a {type(resources).__name__}: leave them out, because the task is "
            "in the file, or give a mapping of names."
        )
    return restored(state_file.read(path), resources)


def restored(saved: Saved, resources: Mapping[str, Any] | None = None) -> Adapter:
    """The adapter of a state that was read; see ``load``."""
    kind = get_method(saved.method)
    task = saved.task.with_resources(resources or {})
    if TEXT_ENCODER in kind.needs and TEXT_ENCODER not in task.resources:
        raise InputError(
            f"Method {saved.method!r} needs the text encoder of {saved.model!r}: "
            "load the model yourself and give its text encoder among the resources."
        )
    adapter = create(saved.method, task, **saved.options)
    beside = {key: value for key, value in saved.state.items() if key.startswith(_BESIDE)}
    adapter._method.restore({key: saved.state[key] for key in saved.state.keys() - beside.keys()})
    if beside:
        adapter.decisions = Decisions()
        adapter.decisions.restore({key[len(_BESIDE) :]: beside[key] for key in beside})
    adapter.n_steps, adapter.about = saved.n_steps, saved.about
    return adapter


_BESIDE = "@"  # begins the names of what a state holds beside the method, which has none like it
STEPS_PER_COPY = 64  # samples that are taken again, at the most, when a step fails
Safe: TypeAlias = tuple[Method, list[Sample]]  # a copy of the method, and its samples since


class Adapter:
    """Feed it samples one at a time; made by ``crg.create`` or ``crg.load``."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self.n_steps = 0
        self.about: Mapping[str, Any] = {}  # saved with the state, for the owner of the adapter
        self.lock = threading.RLock()  # held by changes; hold it to do several things in one turn
        self._copy: Safe | None = None
        self.decisions = Decisions(is_on=False)  # which are never changed, only replaced
        self._before: tuple[Safe | None, int, int, Decisions] | None = None  # how to go back

    def __repr__(self) -> str:
        return f"<Adapter {self.name}: {self.task.n_classes} classes, {self.n_steps} images seen>"

    @property
    def name(self) -> str:
        """Name of the method."""
        return self._method.name

    @property
    def needs(self) -> tuple[str, ...]:
        """The resources that the method needs beyond class names and text features."""
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
        with self.lock:
            queues, names = self._method.queues, self.task.class_names
            return {} if queues is None else {n: queues.entries(k) for k, n in enumerate(names)}

    def step(self, views: Array, sample_id: SampleId | None = None) -> Prediction:
        """Adapt to one image, (D,) or (V, D) with the original in row 0, and predict it."""
        with self._changing(STEPS_PER_COPY):
            sample = self._sample(views, sample_id)
            [decision], decisions = self.decisions.judged(self.task.text_features, [sample])
            learns = not decision.none_of_these
            prediction = self._method.step(sample) if learns else self._method.answer(sample)
            prediction = decisions.decided(prediction, decision, self.task.class_names)
            if learns and self._copy is not None:  # views are copied: a caller may write over them
                self._copy[1].append(Sample(copy.deepcopy(sample.views), sample.id))
            self.n_steps, self.decisions = self.n_steps + 1, decisions
        return prediction

    def step_many(
        self, stream: Array, sample_ids: Sequence[SampleId] | None = None
    ) -> list[Prediction]:
        """What ``step`` gives for each image of (N, D) or (N, V, D).

        If an image is refused or the call is interrupted, none has been taken.
        """
        with self._changing():
            samples = self._samples(stream, sample_ids)
            judged, decisions = self.decisions.judged(self.task.text_features, samples)
            method, found = self._method, []  # type: Method, list[Prediction]
            pairs = zip(samples, judged, strict=True)
            for foreign, some in itertools.groupby(pairs, lambda pair: pair[1].none_of_these):
                together = [sample for sample, _ in some]
                found += map(method.answer, together) if foreign else method.step_many(together)
            decided, names = decisions.decided, self.task.class_names
            predictions = [decided(*both, names) for both in zip(found, judged, strict=True)]
            self.n_steps, self.decisions = self.n_steps + len(samples), decisions
        return predictions

    def decide(self, none_of_these: NoneOfThese = None, sets: float | None = None) -> None:
        """Have every prediction carry a ``Decision`` from now on.

        ``none_of_these`` is the value of ``outside`` above which an image is taken for none of
        the classes and not learnt, or "auto" for a threshold that the stream gives; ``sets`` is
        how often the set of classes is to hold the true one, with at least 20 corrected images.
        """
        with self._changing():
            self.decisions = Decisions(none_of_these, sets, self.decisions)

    def _samples(self, stream: Array, sample_ids: Sequence[SampleId] | None) -> list[Sample]:
        rows = as_floats(stream, "stream")
        if rows.ndim not in (2, 3):
            raise InputError(
                f"The stream has shape {tuple(rows.shape)}: give images as (N, D) or (N, V, D)."
            )
        n = rows.shape[0]
        given = range(self.n_steps + 1, self.n_steps + n + 1) if sample_ids is None else sample_ids
        if not hasattr(given, "__len__"):
            raise InputError(f"The ids are a {type(given).__name__}: give a list, one per image.")
        if len(given) != n:
            raise InputError(f"There are {n} images but {len(given)} ids: give one id per image.")
        images = rows if rows.ndim == 3 else rows[:, None, :]
        return [
            Sample(self._checked(images[i, :, :], f"views of image {i + 1} of the stream"), each)
            for i, each in enumerate(map(_checked_id, given))
        ]

    def answer(self, views: Array, sample_id: SampleId | None = None) -> Prediction:
        """Predict one image, (D,) or (V, D), with what was learnt so far; nothing is learnt."""
        with self.lock:
            self._undo()
            sample, task = self._sample(views, sample_id), self.task
            decision = self.decisions.on(task.text_features, sample)
            prediction = self._method.answer(sample)
            return self.decisions.decided(prediction, decision, task.class_names)

    def second_pass(self, stream: Iterable[tuple[SampleId, Array]]) -> Iterator[Prediction]:
        """Answer every image of a stream that has ended with what was learnt from all of it.

        ``stream`` has the id and the views of each image that was a step, in the same order,
        and is read twice: first the method may learn them better together, but no image counts
        twice; then they are answered, and nothing more is learnt.
        """
        self.finish(stream)
        for name, views in stream:
            yield self.answer(views, name)

    def finish(self, stream: Iterable[tuple[SampleId, Array]]) -> None:
        """The first half of ``second_pass``: learn the images of a stream better together."""
        with self._changing():
            samples = (self._sample(views, name) for name, views in stream)
            on, text = self.decisions.on, self.task.text_features
            self._method.finish(each for each in samples if not on(text, each).none_of_these)

    def correct(
        self, image: SampleId | Array, class_name: str, sample_id: SampleId | None = None
    ) -> None:
        """Learn what a person says an image shows.

        ``image`` is the id of an image that is still remembered, or a feature (D,) or views
        (V, D). The id of an image that was given none is its number: 7 is the seventh. The earlier
        label is undone, if the image is remembered under its id (with a feature: ``sample_id``).
        """
        with self._changing():
            label, decisions = self.task.index_of(class_name), self.decisions
            sample = self._corrected(image, sample_id)
            if decisions.is_on:
                p = float(self._method.answer(sample).probs[label])
                decisions = decisions.labelled(sample.id, class_name, p)
            self._method.correct(sample, label)
            self.decisions = decisions

    def _corrected(self, image: SampleId | Array, sample_id: SampleId | None) -> Sample:
        if not isinstance(image, (str, int)):
            sample = self._sample(image, sample_id)
            if sample_id is not None:
                return sample
            content = str(sample.views.tolist()).encode()  # the same name for the same features
            name = f"image {hashlib.blake2b(content, digest_size=8).hexdigest()}"
            return Sample(sample.views, name)
        feature = self._method.recall(image)
        if feature is None:
            raise InputError(
                f"The image {image!r} is not remembered by method {self.name!r}: "
                "give its feature too, correct(feature, class_name, sample_id)."
            )
        return Sample(feature[None, :], image)

    def reset(self) -> None:
        """Forget every sample; classes stay as they are."""
        with self._changing():
            self._method.reset()
            asked = self.decisions
            self.decisions = Decisions(asked.none_of_these, asked.sets, is_on=asked.is_on)
            self.n_steps = 0

    def add_class(self, name: str, text_feature: Array) -> None:
        """Add a class to choose from."""
        with self._changing():
            task = self.task.with_class(name, text_feature)
            self._method.task = task
            self._method.add_class(task.text_features[-1, :])

    def remove_class(self, name: str) -> None:
        """Remove a class; what its queue held is forgotten."""
        with self._changing():
            index, task = self.task.index_of(name), self.task.without_class(name)
            self._method.task = task
            self._method.remove_class(index)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, at once or not at all."""
        with replacing(path) as partial:
            partial.write_bytes(self.content())

    def content(self) -> bytes:
        """The content of the file that ``save`` writes."""
        with self.lock:
            self._undo()
            method = self._method
            options, state = asdict(method.config), method.state()
            beside = self.decisions.state() if self.decisions.is_on else {}
            state |= {_BESIDE + key: value for key, value in beside.items()}
            saved = Saved(method.name, options, method.task, self.n_steps, state, self.about)
            return state_file.encoded(saved)

    @contextlib.contextmanager
    def _changing(self, copy_age: int = 0) -> Iterator[None]:
        """Whatever is done inside is done wholly or not at all.

        An earlier copy of the method serves if it is fewer than ``copy_age`` samples old. A method
        that forgets has nothing to lose. A change begins and ends with one assignment.
        """
        with self.lock:
            self._undo()
            safe = self._copy
            try:
                if not self._method.forgets and (safe is None or len(safe[1]) >= copy_age):
                    safe = copied(self._method), []
                n_since = len(safe[1]) if safe else 0
                self._before = safe, n_since, self.n_steps, self.decisions
                self._copy = safe if copy_age else None
                yield
                self._before = None
            except BaseException:
                self._undo()
                raise

    def _undo(self) -> None:
        """Go back to before a change that failed; where that fails, the next use tries again."""
        if self._before is None:
            return
        safe, n_since, n_steps, decisions = self._before
        if safe is not None:
            method = copied(safe[0])
            for sample in safe[1][:n_since]:
                method.step(sample)
            self._method = method
        self.n_steps, self.decisions, self._copy, self._before = n_steps, decisions, None, None

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            self._undo()
            method = copied(self._method)  # it is pickled without the lock
            return {**vars(self), "_method": method, "lock": None, "_copy": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, lock=threading.RLock())

    def _sample(self, views: Array, sample_id: SampleId | None) -> Sample:
        rows = as_floats(views, "views")
        if rows.ndim == 1:
            rows = rows[None, :]
        if rows.ndim != 2:
            raise InputError(
                f"The views have shape {tuple(rows.shape)}: "
                "give one image at a time, (D,) or (V, D)."
            )
        identity = self.n_steps + 1 if sample_id is None else _checked_id(sample_id)
        return Sample(self._checked(rows, "views"), identity)

    def _checked(self, rows: Array, what: str) -> Array:
        """Views as unit rows (V, D) in the library and precision of the task.

        Packed, so that sums over them are rounded alike however they came.
        """
        text, width = self.task.text_features, rows.shape[-1]
        if 0 in rows.shape:
            raise InputError("There are no views: give at least the feature of the original.")
        if width != text.shape[1]:
            raise InputError(
                f"The views are {width} wide but the text features {text.shape[1]}: "
                "encode both with the same model."
            )
        rows = like(rows, text)
        packed = np.ascontiguousarray if isinstance(rows, np.ndarray) else type(rows).contiguous
        return unit_rows(packed(rows), what)


def _checked_id(given: Any) -> SampleId:
    """A sample id that can be saved with the state."""
    if isinstance(given, str):
        return str(given)
    try:
        number = operator.index(given)  # NumPy's integers too
    except TypeError:
        number = 2**63
    if abs(number) >= 2**63:
        raise InputError(
            f"The sample id {given!r} is neither a whole number of 64 bits nor a "
            "text: give one of these."
        )
    return number
