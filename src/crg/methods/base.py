"""The base class of methods: small objects with a state that see features and nothing else."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from crg.ops import Confident, confident_views, softmax, softmax_and_entropy
from crg.parts.cache import Cache, Filing, one_class
from crg.parts.state import Stateful
from crg.types import Array, Diagnostics, InputError, Prediction, Sample, SampleId, Task, namespace

M = TypeVar("M", bound="Method")


class Method(Stateful, ABC):
    """Subclass, set ``name``, ``paper`` and ``Config``, write ``reset`` and ``step``.

    Attributes set by ``reset`` are the state: arrays, plain values and parts are saved and
    restored without further code. Parts follow when classes come and go, and so do arrays with
    one row per class that are named in ``_rows``; a new row is zero unless ``add_class`` sets it.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    Config: ClassVar[type[Any]]
    needs: ClassVar[tuple[str, ...]] = ()  # names of crg.resources that the task must have
    forgets: ClassVar[bool] = False  # its answer does not depend on the images before
    filing: Filing | None  # None in ``reset`` of a method that learns soft labels, by ``_filed``
    _not_saved: ClassVar[frozenset[str]] = frozenset({"task", "config", "filing"})

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

    @property
    def queues(self) -> Cache | None:
        """The cache to show to people, if the method keeps one as ``self.cache``."""
        cache = getattr(self, "cache", None)
        return cache if isinstance(cache, Cache) else None

    def file_with(self, filing: Filing) -> bool:
        """Let an experiment decide under which class images are learnt; False if none are."""
        learner = self if hasattr(self, "filing") else self.queues
        if learner is not None:
            learner.filing = filing
        return learner is not None

    def _filed(self, weights: Array, label: int, sample_id: SampleId) -> Array:
        """How much an image counts for each class, (K,): by ``weights``, or as it was filed.

        Filed under another class than ``label``, it counts one there and nothing elsewhere.
        """
        if self.filing is None:
            return weights
        filed = self.filing.filed_under(label, sample_id)
        self.filing.was_kept(sample_id)
        return weights if filed == label else one_class(filed, weights)

    def recall(self, sample_id: SampleId) -> Array | None:
        """The feature (D,) of an image that is still kept, by its id."""
        return self._correctable().find(sample_id)

    def correct(self, sample: Sample, label: int) -> None:
        """Learn that an image is of class ``label``: it goes into that queue, at entropy 0."""
        queues = self._correctable()
        queues.forget(sample.id, self.task.text_features)
        queues.keep(label, self._confident(sample.views).feature, sample.id)
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

    def _zero_shot(self, x: Array) -> Array:
        """s x . t, the logits (K,) of a feature (D,) without adaptation."""
        return self.task.logit_scale * (self.task.text_features @ x)

    def _confident(self, views: Array) -> Confident:
        """The fraction ``view_share`` of the views with the lowest zero-shot entropy."""
        share = getattr(self.config, "view_share", 1.0)
        return confident_views(views, self.task.text_features, self.task.logit_scale, share)

    def _predicted(
        self, logits: Array, diagnostics: Diagnostics, probs: Array | None = None
    ) -> Prediction:
        """The answer that follows from ``logits``; give ``probs`` where they are known."""
        label, names = int(namespace(logits).argmax(logits)), self.task.class_names
        probs = softmax(logits) if probs is None else probs
        return Prediction(logits, probs, label, names[label], diagnostics, names)

    def _predicted_plainly(self, logits: Array) -> Prediction:
        """The answer that follows from ``logits`` (K,) without any cache."""
        facts, probs = self._facts(logits)
        return self._predicted(logits, facts, probs)

    def _facts(self, logits: Array) -> tuple[Diagnostics, Array]:
        """The diagnostics that follow from ``logits`` (K,) alone, and their probabilities."""
        probs, entropy = softmax_and_entropy(logits)
        return Diagnostics(float(entropy), int(namespace(logits).argmax(logits))), probs


def copied(method: M) -> M:
    """A copy that shares what no step changes: task, options and resources."""
    shared = (method.task, method.config, *method.task.resources.values())
    return copy.deepcopy(method, {id(each): each for each in shared})
