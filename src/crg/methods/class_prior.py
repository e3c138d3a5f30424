"""Class prior and logit bias, two baselines: zero-shot plus or minus the frequency of its answers.

``class_prior`` adds the logarithm of the running mean of the zero-shot probabilities to the
logits: strong where few of the names are present, ruinous elsewhere. ``logit_bias`` takes it
away, so that every class is chosen equally often in the long run: strong where classes come
equally often, harmful where they do not.

| equation | function | symbols |
| --- | --- | --- |
| logits = z + ln m, or z - ln m | step | z zero-shot logits |
| m, mean of softmax(z) over the images before | _log_mean | with ``prior`` images of each class |
"""

from __future__ import annotations

from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.ops import softmax
from crg.types import Array, Prediction, Sample, namespace


@register
class ClassPrior(Method):
    """Adds the running class frequencies to the zero-shot logits."""

    name = "class_prior"
    paper = "A baseline without a paper: the zero-shot logits plus their running log-mean"
    _rows = ("sums",)
    _sign = 1.0

    @dataclass(frozen=True)
    class Config:
        """The weight of the prior."""

        prior: float = option(1.0, "images of uniform prior per class", at_least=1e-9, at_most=1e9)

    def reset(self) -> None:
        """Nothing has been seen."""
        text = self.task.text_features
        xp = namespace(text)
        self.sums = xp.zeros(text.shape[0], dtype=xp.float64, device=text.device)  # of p, (K,)

    def step(self, sample: Sample) -> Prediction:
        """Answer the original view, then learn how often zero-shot says each class."""
        z, xp = self._zero_shot(sample.views[0, :]), namespace(self.sums)
        logits = z + xp.astype(self._sign * self._log_mean(self.config.prior), z.dtype)
        self.sums = self.sums + xp.astype(softmax(z), xp.float64)
        return self._predicted_plainly(logits)

    def _log_mean(self, prior: float) -> Array:
        """ln m, (K,), in double precision."""
        xp, sums = namespace(self.sums), self.sums + prior
        return xp.log(sums / xp.sum(sums))

    def _is_sound(self) -> bool:
        return bool(namespace(self.sums).all(self.sums >= 0.0))


@register
class LogitBias(ClassPrior):
    """Takes the running class frequencies out of the zero-shot logits."""

    name = "logit_bias"
    paper = "A baseline without a paper: the zero-shot logits less their running log-mean"
    _sign = -1.0

    @dataclass(frozen=True)
    class Config:
        """The weight of the prior."""

        prior: float = option(1.0, "images of uniform prior, all together", at_least=1e-9,
                               at_most=1e9)  # fmt: skip

    def _log_mean(self, prior: float) -> Array:
        return super()._log_mean(prior / self.task.n_classes)
