"""CoOp: context optimisation (Zhou et al., IJCV 2022).

The words before the class name are replaced by vectors, shared by all classes or one set per
class, that are learnt from 1 to 16 labelled images per class with cross-entropy, carried
back through the text encoder. Then they are frozen, and prediction is zero-shot with the text
features that they give.

| equation | function | symbols |
| --- | --- | --- |
| (2) prompt v_1 ... v_M name | _features | v context vectors, M of them |
| (3) p_y = softmax(s f . t(v))_y, loss -ln p_y | parts.context_training | f image, s scale |
| SGD, one warm-up epoch, cosine decay | parts.context_training | epochs by shots: 50, 100, 200 |
| logits = s f_0 . t(v) | step_many | f_0 original view |

Training happens once, before the first image is answered; in mid-stream that is a pause of
seconds to minutes, in proportion to images times epochs. It depends on nothing that comes
in, so ``reset`` keeps what was learnt, and a saved state holds it. ``save_context`` writes the
context to a file of its own and ``context_file`` takes one, without labelled images and
without training; a state that is saved from there wants the file again when it is loaded. The
text features of the task are not used.

Classes that come later, or that have no labelled images, get the shared context, or the mean
of the contexts of the other classes. The softmax of the loss is over classes with images.

Differs from the paper: features that were stored, so images are not cropped and flipped at
random in training; full precision; the name stands at the end (the paper also tries the
middle); started from words, a context per class starts from a copy of them for each class.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from crg.methods.base import Method
from crg.methods.options import IN_STATE, option
from crg.methods.registry import register
from crg.parts.cache import labelled_queues
from crg.parts.context import (
    Context,
    Numbers,
    TrainingPlan,
    check_fit,
    check_replaceable,
    check_width,
    epochs_for,
    learn_once,
    read_context,
    starting_context,
    write_context,
)
from crg.parts.prompting import as_tensor, endings_of, prompt_features
from crg.resources import FEW, TEXT_ENCODER, check_needs
from crg.types import Array, InputError, Prediction, Sample, Task, like, namespace


@register
class CoOp(Method):
    """A prompt learnt from labelled images."""

    name = "coop"
    forgets = True
    paper = "Zhou et al., Learning to Prompt for Vision-Language Models, IJCV 2022"
    needs = (FEW, TEXT_ENCODER)

    @dataclass(frozen=True)
    class Config:
        """The authors' constants."""

        shots: int = option(16, "labelled images per class that count", at_least=1)
        per_class: bool = option(False, "a context for each class instead of one for all")
        context_length: int = option(16, "context vectors", at_least=1, at_most=1000)
        context_words: str = option("", "words to start from, as many vectors; else at random")
        epochs: int = option(0, "rounds of training; 0 for 50, 100 or 200 by shots", at_least=0)
        lr: float = option(0.002, "learning rate of SGD", at_least=0, at_most=1)
        batch: int = option(32, "labelled images per step of SGD", at_least=1)
        seed: int = option(0, "of the start and the order of labelled images", at_least=0)
        chunk: int = option(
            256, "classes at a time in the text encoder, which bounds memory; 0 for all", at_least=0
        )
        context_file: str = option("", "a learnt context to use, without training", path=True)
        save_context: str = option("", "file to write the learnt context to", path=True)

    @classmethod
    def needs_with(cls, config: Any) -> tuple[str, ...]:
        """A context from a file needs no labelled images."""
        return (TEXT_ENCODER,) if config.context_file else cls.needs

    def __init__(self, task: Task, config: Any) -> None:
        super().__init__(task, config)
        check_needs(self.name, self.needs_with(config), task)
        if config.save_context != IN_STATE:
            _check_folder(config.save_context)
        self.is_learnt = False
        self._begin()
        if config.context_file == IN_STATE:
            pass  # the state that is restored next has the context
        elif config.context_file:
            context = read_context(config.context_file)
            check_fit(context, self._encoder, config.context_file)
            self._take(context)
        else:  # what does not fit is refused now, before any work
            labelled_queues(task, config.shots)
            self._features(self.context[:1] if config.per_class else self.context, ["a name"])

    def reset(self) -> None:
        """Keep what was learnt: it depends on labelled images, not on the stream."""

    def step(self, sample: Sample) -> Prediction:
        """logits = s f_0 . t(v)."""
        self._learn()
        return self._predicted_plainly(self.task.logit_scale * (self.text @ sample.views[0, :]))

    def learnt_context(self) -> Context:
        """What was learnt; it is learnt now if that has not been done yet."""
        self._learn()
        return self._context(self.task.class_names)

    def _learn(self) -> None:
        """Train, if that has not been done yet."""
        if self.is_learnt:
            return
        self._take(self._learnt_from_images())
        if self.config.save_context not in ("", IN_STATE):
            write_context(self.config.save_context, self._context(self.task.class_names))

    def _begin(self) -> None:
        """Context and text features before training, of the right shapes."""
        c, names = self.config, self.task.class_names
        self.words = c.context_words
        self.context = starting_context(
            self._encoder, names if c.per_class else (), c.context_words, c.context_length, c.seed
        )
        self.text = namespace(self.task.text_features).asarray(self.task.text_features, copy=True)

    def _learnt_from_images(self) -> Context:
        """Equation (3), over the classes that have labelled images."""
        c, encoder = self.config, self._encoder
        classes, images, labels = self._labelled()
        names = tuple(self.task.class_names[k] for k in classes)
        reference = encoder.context_of("a")
        start = self.context[classes] if self.context.ndim == 3 else self.context
        shots = max(Counter(labels).values())
        learnt = learn_once(
            partial(prompt_features, encoder, endings=endings_of(names), chunk=c.chunk),
            as_tensor(start, reference),
            as_tensor(images, reference),
            labels,
            self.task.logit_scale,
            TrainingPlan(c.epochs or epochs_for(shots), c.lr, c.batch, seed=c.seed),
        )
        vectors = learnt.context.cpu().numpy().copy()
        return Context(vectors, encoder.name, names if c.per_class else (), self.words)

    def _labelled(self) -> tuple[list[int], Array, list[int]]:
        """The classes that have labelled images (C), these (F, D), and places in the former."""
        names, queues = self.task.class_names, labelled_queues(self.task, self.config.shots)
        counts = [int(count) for count in queues.counts]
        # By name, so that the order of classes does not matter.
        classes = sorted((k for k, count in enumerate(counts) if count), key=names.__getitem__)
        if not classes:
            raise InputError(
                "No class has labelled images to learn from: give some, or a learnt context "
                "as context_file."
            )
        rows = [queues.features[k, : counts[k], :] for k in classes]
        labels = [place for place, k in enumerate(classes) for _ in range(counts[k])]
        return classes, namespace(rows[0]).concat(rows, axis=0), labels

    def _take(self, context: Context) -> None:
        """Freeze a learnt context, with the text features that it gives."""
        names = self.task.class_names
        self.context, self.words = context.for_classes(names), context.words
        self.text = self._features(self.context, names)
        self.is_learnt = True

    def _features(self, context: Numbers, names: Sequence[str]) -> Array:
        """Equation (2): t(v), text features of names under the context, (K, D)."""
        import torch

        vectors = as_tensor(context, self._encoder.context_of("a"))
        with torch.no_grad():
            text = prompt_features(self._encoder, vectors, endings_of(names), self.config.chunk)
        check_width(text, self.task, self._encoder.name)
        return like(text, self.task.text_features)

    def _context(self, names: Sequence[str]) -> Context:
        per_class = tuple(names) if self.context.ndim == 3 else ()
        return Context(self.context, self._encoder.name, per_class, self.words)

    @property
    def _encoder(self) -> Any:
        return self.task.resources[TEXT_ENCODER]

    def add_class(self, text: Array) -> None:
        """The new class gets the shared context, or the mean of the others'."""
        if not self.is_learnt:
            return self._begin()
        *others, name = self.task.class_names
        self.context = self._context(others).for_classes(self.task.class_names)
        own = self.context if self.context.ndim == 2 else self.context[-1:]
        self.text = namespace(self.text).concat([self.text, self._features(own, [name])], axis=0)

    def remove_class(self, index: int) -> None:
        """One row less; what was learnt stays."""
        if not self.is_learnt:
            return self._begin()
        keep = [k for k in range(self.text.shape[0]) if k != index]
        self.context = self.context if self.context.ndim == 2 else self.context[keep]
        self.text = self.text[keep, :]


def save_context(adapter: Any, path: str | os.PathLike[str]) -> None:
    """Write the context of a ``coop`` adapter to a file; learns it first if need be."""
    method = getattr(adapter, "_method", adapter)
    if not isinstance(method, CoOp):
        raise InputError(
            "Only coop learns a context: give an adapter made with crg.create('coop')."
        )
    _check_folder(path)
    write_context(path, method.learnt_context())


def _check_folder(path: str | os.PathLike[str]) -> None:
    if os.fspath(path) and not Path(path).absolute().parent.is_dir():
        raise InputError(
            f"The context cannot be saved to {path} because its folder does not exist: "
            "make the folder first."
        )
    check_replaceable(path)
