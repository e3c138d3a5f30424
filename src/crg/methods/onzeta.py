"""OnZeta: online zero-shot transfer (Qian and Hu, ECCV 2024).

Two classifiers answer together. Zero-shot gets a weight per class that asks for an equal
fraction of the stream for every class; a second one, which starts at the text, is trained to
predict the first. The second counts more the further the stream has gone.

| equation | function | symbols |
| --- | --- | --- |
| p = softmax(s x.t + rho) | step | rho_k >= 0 dual variable of class k |
| rho -= (20 / sqrt i) (p - 1/K), at least 0 | _balance | i images so far, this one included |
| q = softmax(x.w / 0.04), w a step down its cross-entropy to p | _train | w (K, D), from t on |
| answer b q + (1 - b) p, b = 0.8 sqrt(i / n) | step | n length of the stream |

The method must know how long the stream is, and it assumes that classes come equally often.

Differs from the paper: a stream does not say its length, so n is an option (after n images b
stays as it is); 0.04 is meant for s = 100, so it is 4 / s; of several views the original counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.ops import log_probs, normalize, softmax
from crg.types import Array, Prediction, Sample, namespace


@register
class OnZeta(Method):
    """Zero-shot balanced to equal class frequencies, and a second classifier trained on it."""

    name = "onzeta"
    paper = "Qian and Hu, Online Zero-Shot Classification with CLIP, ECCV 2024"
    _rows, _text_rows = ("dual",), ("weights",)

    @dataclass(frozen=True)
    class Config:
        """The authors' constants, one setting for all datasets."""

        length: int = option(2000, "n, images that the stream will have", at_least=1)
        vision_weight: float = option(0.8, "b at the end of the stream", at_least=0, at_most=1)
        vision_scale: float = option(0.25, "scale of q, as a fraction of s", above=0, at_most=100)
        balance_rate: float = option(20.0, "step of rho", at_least=0, at_most=1e6)
        vision_rate: float = option(0.5, "step of w", at_least=0, at_most=1e3)

    def reset(self) -> None:
        """No class is favoured, w stands at the text."""
        text = self.task.text_features
        xp = namespace(text)
        self.n_images = 0  # i
        self.dual = xp.zeros(text.shape[0], dtype=text.dtype, device=text.device)  # rho, (K,)
        self.weights = xp.asarray(text, copy=True)  # w, (K, D)

    def step(self, sample: Sample) -> Prediction:
        """Answer with both classifiers, then move both."""
        x, c, s = sample.views[0, :], self.config, self.task.logit_scale
        p = softmax(self._zero_shot(x) + self.dual)
        q = softmax(c.vision_scale * s * (self.weights @ x))
        self.n_images += 1
        b = c.vision_weight * math.sqrt(min(1.0, self.n_images / c.length))
        self._balance(p)
        self._train(x, q - p)
        return self._predicted_plainly(log_probs(b * q + (1.0 - b) * p))

    def _balance(self, p: Array) -> None:
        """rho_k -= (20 / sqrt i) (p_k - 1/K), at least 0."""
        rate = self.config.balance_rate / math.sqrt(self.n_images)
        self.dual = namespace(p).clip(self.dual - rate * (p - 1.0 / p.shape[0]), 0.0)

    def _train(self, x: Array, excess: Array) -> None:
        """w <- normalise(w - (0.5 / sqrt i) / 0.04 x (q - p)^T)."""
        c = self.config
        rate = c.vision_rate / math.sqrt(self.n_images) * c.vision_scale * self.task.logit_scale
        self.weights = normalize(self.weights - (rate * excess)[:, None] * x)
