"""The base class of methods: small objects with a state that see features and nothing else."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

from crg.ops import confident_views, softmax, softmax_and_entropy
from crg.parts.cache import Cache, Filing
from crg.parts.state import Stateful
from crg.types import (
    Array,
    Diagnostics,
    InputError,
    Prediction,
    Sample,
    SampleId,
    Task,
    namespace,
)

M = TypeVar("M", bound="Method")


class Method(Stateful, ABC):
    """Subclass, set ``name``, ``paper`` and ``Config``, write ``reset`` and ``step``.

    Attributes set by ``reset`` are the state: arrays, plain values and parts are saved
    and restored without further code, and parts follow when classes come and go. A method
    that keeps arrays with one row per class overrides ``add_class`` and
    ``remove_class`` too.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    Config: ClassVar[type[Any]]
    needs: ClassVar[tuple[str, ...]] = ()  # names of crg.resources that the task must have
    forgets: ClassVar[bool] = False  # its answer does not depend on the images before
    _not_saved: ClassVar[frozenset[str]] = frozenset({"task", "config"})

    def __init__(self, task: Task, config: Any) -> None:
        self.task = task
        self.config = config
        self.reset()

    @abstractmethod
    def reset(self) -> None:
        """Forget everything seen so far."""

    @abstractmethod
    def step(self, sample: Sample) -> Prediction:
        """Adapt to one sample and predict it. The sample was checked before."""

    def step_many(self, samples: Sequence[Sample]) -> list[Prediction]:
        """Answers as ``step`` gives them one by one; override where a batch is faster."""
        return [self.step(sample) for sample in samples]

    def answer(self, sample: Sample) -> Prediction:
        """Predict one sample without learning from it.

        Override where a copy of the method for each sample is too slow.
        """
        return (self if self.forgets else copied(self)).step(sample)

    def finish(self, samples: Iterable[Sample]) -> None:
        """The stream has ended; here are all its samples again, before ``answer`` is asked.

        Override where they can be learnt better together than one by one.
        """

    def batches(self, samples: Sequence[Sample]) -> Iterator[Sequence[Sample]]:
        """``samples`` in the portions that one call of ``step_many`` takes."""
        if type(self).step_many is not Method.step_many:
            yield samples
            return
        for sample in samples:
            yield [sample]

    @property
    def queues(self) -> Cache | None:
        """The cache to show to people, if the method keeps one."""
        return None

    def file_with(self, filing: Filing) -> bool:
        """Let an experiment decide under which class images are learnt; False if none are."""
        if self.queues is None:
            return False
        self.queues.filing = filing
        return True

    def recall(self, sample_id: SampleId) -> Array | None:
        """The feature (D,) of an image that is still kept, by its id."""
        return self._correctable().find(sample_id)

    def correct(self, sample: Sample, label: int) -> None:
        """Learn that an image is of class ``label``: it goes into that queue, at entropy 0."""
        queues = self._correctable()
        task, share = self.task, getattr(self.config, "view_share", 1.0)
        seen = confident_views(sample.views, task.text_features, task.logit_scale, share)
        queues.forget(sample.id, task.text_features)
        queues.keep(label, seen.feature, sample.id)
        self._derive()

    def _correctable(self) -> Cache:
        if self.queues is None:
            raise InputError(
                f"Method {self.name!r} cannot be corrected: use one that can, such as 'anchored'."
            )
        return self.queues

    def add_class(self, text: Array) -> None:
        """Add one class, the last of ``task``, with the text feature ``text`` (D,)."""
        super().add_class(text)
        self._derive()

    def remove_class(self, index: int) -> None:
        """Remove the class that was at ``index``; ``task`` has already lost it."""
        super().remove_class(index)
        self._derive()

    def _derive(self) -> None:
        """Recompute whatever follows from the task and the queues; override where anything does."""

    def _predicted(
        self, logits: Array, diagnostics: Diagnostics, probs: Array | None = None
    ) -> Prediction:
        """The answer that follows from ``logits``; give ``probs`` where they are known."""
        label = int(namespace(logits).argmax(logits))
        probs = softmax(logits) if probs is None else probs
        names = self.task.class_names
        return Prediction(logits, probs, label, names[label], diagnostics, names)

    def _predicted_plainly(self, logits: Array) -> Prediction:
        """The answer that follows from ``logits`` (K,) without any cache."""
        probs, entropy = softmax_and_entropy(logits)
        label = int(namespace(logits).argmax(logits))
        return self._predicted(logits, Diagnostics(float(entropy), label), probs)


def copied(method: M) -> M:
    """A copy that shares what no step changes: task, options and resources."""
    shared = (method.task, method.config, *method.task.resources.values())
    return copy.deepcopy(method, {id(each): each for each in shared})
