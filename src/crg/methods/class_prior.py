"""Class prior, a baseline: zero-shot that expects what it has seen so far.

The logarithm of the running mean of the zero-shot probabilities is added to the logits. Strong
where few of the names are present, ruinous elsewhere; ``logit_bias`` is its mirror image.

| equation | function | symbols |
| --- | --- | --- |
| logits = z + ln m | step | z zero-shot logits, m mean of softmax(z) over the images before |
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
class ClassPrior(Method):
    """Adds the running class frequencies to the zero-shot logits."""

    name = "class_prior"
    paper = "A baseline without a paper: the zero-shot logits plus their running log-mean"

    @dataclass(frozen=True)
    class Config:
        """The weight of the prior."""

        prior: float = option(1.0, "images of uniform prior per class", above=0, at_most=1e9)

    def reset(self) -> None:
        """Nothing has been seen."""
        self.seen = Frequencies(self.task.text_features)

    def step(self, sample: Sample) -> Prediction:
        """Answer the original view, then learn how often zero-shot says each class."""
        zero_shot = self.task.logit_scale * (self.task.text_features @ sample.views[0, :])
        log_mean = self.seen.log_mean(self.config.prior)
        self.seen.see(softmax(zero_shot))
        return self._predicted_plainly(
            zero_shot + namespace(log_mean).astype(log_mean, zero_shot.dtype)
        )
