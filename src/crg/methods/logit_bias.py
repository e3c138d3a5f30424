"""Logit bias, a baseline: zero-shot without its preference for some of the classes.

The logarithm of the running mean of the zero-shot probabilities is taken from the logits, so
that every class is chosen equally often in the long run. Strong where classes come equally
often, harmful where they do not; ``class_prior`` is its mirror image.

| equation | function | symbols |
| --- | --- | --- |
| logits = z - ln m | step | z zero-shot logits, m mean of softmax(z) over the images before |
"""

from __future__ import annotations

from dataclasses import dataclass

from crg.methods.base import Method
from crg.methods.options import option
from crg.methods.registry import register
from crg.ops import softmax
from crg.parts.frequencies import Frequencies
from crg.types import Prediction, Sample, namespace


@register
class LogitBias(Method):
    """Takes the running class frequencies out of the zero-shot logits."""

    name = "logit_bias"
    paper = "A baseline without a paper: the zero-shot logits less their running log-mean"

    @dataclass(frozen=True)
    class Config:
        """The weight of the prior."""

        prior: float = option(
            1.0, "images of uniform prior, all classes together", above=0, at_most=1e9
        )

    def reset(self) -> None:
        """Nothing has been seen."""
        self.seen = Frequencies(self.task.text_features)

    def step(self, sample: Sample) -> Prediction:
        """Answer the original view, then learn how often zero-shot says each class."""
        zero_shot = self.task.logit_scale * (self.task.text_features @ sample.views[0, :])
        log_mean = self.seen.log_mean(self.config.prior / self.task.n_classes)
        self.seen.see(softmax(zero_shot))
        return self._predicted_plainly(
            zero_shot - namespace(log_mean).astype(log_mean, zero_shot.dtype)
        )
