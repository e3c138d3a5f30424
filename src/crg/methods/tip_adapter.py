"""Tip-Adapter: a training-free cache of labelled images (Zhang et al., ECCV 2022).

The features of a few labelled images per class are keys, their one-hot labels are values.
An image asks all keys how near they are, and what the values say together is added to the
zero-shot logits. Nothing is learnt and nothing changes while images are predicted.

| equation | function | symbols |
| --- | --- | --- |
| phi(x) = exp(-beta (1 - x)), affinity to the keys | parts.cache | f feature, beta sharpness |
| logits = alpha phi(f F^T) L + f W^T | step | F keys, L one-hot values, alpha weight, W text |

As in the paper, L adds up the shots of a class and takes no mean: with 16 shots the cache
weighs up to 16 times as much as with one, and a class with fewer shots weighs less. The
scale s of the zero-shot term is the model's own, 100 for CLIP as in the authors' code, and
touches the cosine to the text only.

Differs from the paper: alpha 1 and beta 5.5 stay as they are, whereas the authors search both
on validation images, which a user need not have. A key is the feature of one image as it
was encoded; theirs is the normalised mean over ten random crops.
"""

from __future__ import annotations

from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.parts.cache import labelled_queues
from crg.resources import FEW
from crg.types import Prediction, Sample, namespace


@register
class TipAdapter(Method):
    """Zero-shot plus a fixed cache of labelled images; predicts the original view."""

    name = "tip_adapter"
    forgets = True
    needs = (FEW,)
    _not_saved = Method._not_saved | {"keys"}  # the labelled images are saved with the task
    paper = (
        "Zhang et al., Tip-Adapter: Training-free Adaption of CLIP for Few-shot Classification, "
        "ECCV 2022"
    )

    @dataclass(frozen=True)
    class Config:
        """One setting for all datasets."""

        shots: int = option(16, "labelled images per class; 0 takes all", at_least=0)
        alpha: float = option(1.0, "weight of the cache", at_least=0, at_most=1e6)
        beta: float = option(5.5, "sharpness of the affinity", at_least=0, at_most=50)

    def reset(self) -> None:
        """There is nothing to forget, only the labelled images."""
        self.keys = labelled_queues(self.task, self.config.shots)  # F, (K, M, D)

    _derive = reset  # a class that was added has no labelled images

    def step(self, sample: Sample) -> Prediction:
        """logits = s f . t + alpha sum over the class's keys of exp(-beta (1 - f . key))."""
        f = sample.views[0, :]
        logits = self._zero_shot(f)
        facts, _ = self._facts(logits)
        affinity = self.keys.affinity(f, self.config.beta)
        cached = namespace(affinity).sum(affinity, axis=1)  # phi(f F^T) L, one-hot L
        return self._predicted(logits + self.config.alpha * cached, facts)
