"""CoOp: context optimisation (Zhou et al., IJCV 2022).

The words before the class name are replaced by vectors, shared by all classes, that are learnt
from 1 to 16 labelled images per class with cross-entropy, carried back through the text encoder.
Then they are frozen, and prediction is zero-shot with the text features that they give.

| equation | function | symbols |
| --- | --- | --- |
| (2) prompt v_1 ... v_M name | _features | v context vectors, M of them |
| (3) p_y = softmax(s f . t(v))_y, loss -ln p_y | parts.context | f image, s scale |
| SGD, one warm-up epoch, cosine decay | parts.context | epochs by shots: 50, 100, 200 |
| logits = s f_0 . t(v) | step | f_0 original view |

Training happens once, before the first image is answered, and takes seconds to minutes in
proportion to images times epochs. It does not depend on the stream, so ``reset`` keeps the
learnt context, and a saved state holds it: loading one needs no training. The text features of
the task are not used.

Classes that come later, or that have no labelled images, get the same context. The softmax of the
loss is over classes with images.

Differs from the paper: features are stored, so images are not cropped and flipped at random in
training; full precision; the name stands at the end (the paper also tries the middle); one context
for all classes (the paper also tries one for each).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from crg.methods.registry import Method, option, register
from crg.parts.cache import labelled_queues
from crg.parts.context import TrainingPlan, epochs_for, learn_context, starting_context
from crg.parts.prompting import as_tensor, check_width, endings_of, prompt_features
from crg.resources import FEW, TEXT_ENCODER
from crg.types import Array, InputError, Prediction, Sample, Task, like, namespace


@register
class CoOp(Method):
    """Zero-shot with a prompt that is learnt from labelled images; needs torch."""

    name = "coop"
    forgets = True
    paper = "Zhou et al., Learning to Prompt for Vision-Language Models, IJCV 2022"
    needs = (FEW, TEXT_ENCODER)
    _text_rows = ("text",)

    @dataclass(frozen=True)
    class Config:
        """The authors' constants."""

        shots: int = option(16, "labelled images per class that count", at_least=1)
        context_length: int = option(16, "context vectors", at_least=1, at_most=1000)
        context_words: str = option("", "words to start from, as many vectors; else at random")
        epochs: int = option(0, "rounds of training; 0 for 50, 100 or 200 by shots", at_least=0)
        lr: float = option(0.002, "learning rate of SGD", at_least=0, at_most=1)
        batch: int = option(32, "labelled images per step of SGD", at_least=1)
        seed: int = option(0, "of the start and the order of labelled images", at_least=0)
        chunk: int = option(256, "classes at a time, which bounds memory; 0 for all", at_least=0)

    def __init__(self, task: Task, config: Any) -> None:
        super().__init__(task, config)
        c, text = config, task.text_features
        self.context = starting_context(self._encoder, c.context_words, c.context_length, c.seed)
        self.text = namespace(text).asarray(text, copy=True)  # (K, D), until the context is learnt
        self.is_learnt = False
        # Input that does not fit is refused now, before any work.
        labelled_queues(task, c.shots)
        self._features(["a name"])

    def reset(self) -> None:
        """Keep what was learnt: it depends on labelled images, not on the stream."""

    def step(self, sample: Sample) -> Prediction:
        """logits = s f_0 . t(v); the first step trains."""
        if not self.is_learnt:
            self._learn()
        return self._predicted_plainly(self.task.logit_scale * (self.text @ sample.views[0, :]))

    def _learn(self) -> None:
        """Minimise equation (3) over the classes that have labelled images, then freeze."""
        c, encoder = self.config, self._encoder
        classes, images, labels = self._labelled()
        names = [self.task.class_names[k] for k in classes]
        encode = partial(prompt_features, encoder, endings=endings_of(names), chunk=c.chunk)
        epochs = c.epochs or epochs_for(max(Counter(labels).values()))
        plan = TrainingPlan(epochs, c.lr, c.batch, c.seed)
        start, images = self._as_tensor(self.context), self._as_tensor(images)
        learnt = learn_context(encode, start, images, labels, self.task.logit_scale, plan)
        self.context = learnt.cpu().numpy().copy()
        self.text = self._features(self.task.class_names)
        self.is_learnt = True

    def _labelled(self) -> tuple[list[int], Array, list[int]]:
        """Classes that have labelled images (C), the images (F, D), and their indices into C."""
        names, queues = self.task.class_names, labelled_queues(self.task, self.config.shots)
        counts = [int(count) for count in queues.counts]
        # By name, so that the order of classes does not matter.
        classes = sorted((k for k, count in enumerate(counts) if count), key=names.__getitem__)
        if not classes:
            raise InputError("No class has labelled images to learn from: give some.")
        rows = [queues.features[k, : counts[k], :] for k in classes]
        labels = [place for place, k in enumerate(classes) for _ in range(counts[k])]
        return classes, namespace(rows[0]).concat(rows, axis=0), labels

    def _features(self, names: Sequence[str]) -> Array:
        """Equation (2): t(v), text features of names under the context, (K, D)."""
        import torch

        vectors, chunk = self._as_tensor(self.context), self.config.chunk
        with torch.no_grad():
            text = prompt_features(self._encoder, vectors, endings_of(names), chunk)
        check_width(text, self.task, self._encoder.name)
        return like(text, self.task.text_features)

    @property
    def _encoder(self) -> Any:
        return self.task.resources[TEXT_ENCODER]

    def _as_tensor(self, array: Array) -> Any:
        return as_tensor(array, self._encoder.context_of("a"))

    def add_class(self, text: Array) -> None:
        """The new class gets the context that was learnt, and changes no other."""
        super().add_class(text)
        if self.is_learnt:
            self.text[-1, :] = self._features(self.task.class_names[-1:])[0, :]
