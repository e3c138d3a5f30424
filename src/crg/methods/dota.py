"""DOTA: distributional test-time adaptation (Han et al., NeurIPS 2025).

No cache: every image counts for every class by its zero-shot probability, after it has been
answered. Each class has a mean and a covariance; the covariances are averaged, and the
Gaussian that follows is added to the zero-shot logits with a weight that grows.

| equation | function | symbols |
| --- | --- | --- |
| h_k = x.P mu_k - 1/2 mu_k.P mu_k, P = ((1 - eps) S + eps I)^-1 | _discriminant | S mean of S_k |
| logits = z + min(eta, rho mean(c)) h | step | z zero-shot logits, c_k soft counts |
| mu_k <- (c_k mu_k + y_k x) / (c_k + y_k) | _learn | y zero-shot probabilities |
| S_k <- (c_k S_k + y_k d d^T) / (c_k + y_k) | _learn | d = x - the old mu_k |

Differs from the paper: the mean of the K covariances is kept instead of all of them, so that
memory does not grow with K D^2. With a_k = y_k / (c_k + y_k) it is S <- S + 1/K sum_k a_k
(d_k d_k^T - S), where the paper has S_k for the last S: exact where the classes share their
covariance. P is inverted again when S has changed by `refresh`, not at every image. One setting
for all datasets (the authors have one per dataset; this is ImageNet's).
With several views, x is the normalised mean of the confident ones, as in TDA.
"""

from __future__ import annotations

from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.parts.precision import inverse
from crg.types import Array, Diagnostics, Prediction, Sample, namespace

_START = 1e-3  # every component of a class mean before the first image
_NEGLIGIBLE = 1e-7  # a class that an image counts less for keeps its covariance


@register
class DOTA(Method):
    """One Gaussian per class, learnt from all images weighted by zero-shot probability."""

    name = "dota"
    paper = "Han et al., DOTA: Distributional Test-Time Adaptation of VLMs, NeurIPS 2025"
    _rows = ("counts", "means")

    @dataclass(frozen=True)
    class Config:
        """The authors' setting for ImageNet, used for all datasets."""

        view_share: float = option(0.1, "fraction of views kept", above=0, at_most=1)
        eta: float = option(0.2, "weight of the Gaussian at the most", at_least=0, at_most=1e6)
        rho: float = option(0.005, "weight per image of a class", at_least=0, at_most=1e6)
        sigma: float = option(0.002, "variance before the first image", at_least=1e-9, at_most=1e3)
        eps: float = option(1e-4, "fraction of the identity", at_least=1e-9, at_most=1)
        refresh: float = option(0.02, "change of S before P follows it", at_least=0, at_most=1)

    def reset(self) -> None:
        """Nothing has been seen."""
        text = self.task.text_features
        xp, (n_classes, width) = namespace(text), text.shape
        wide = {"dtype": xp.float64, "device": text.device}
        self.filing = None
        self.counts = xp.ones(n_classes, **wide)  # c, (K,)
        self.means = xp.full((n_classes, width), _START, **wide)  # mu, (K, D)
        self.covariance = self.config.sigma * xp.eye(width, **wide)  # S, (D, D)
        self.precision = xp.eye(width, **wide) / self.config.sigma  # P, (D, D)
        self.stale = 1.0  # by how much S has changed since P was inverted

    def step(self, sample: Sample) -> Prediction:
        """Answer one image, then learn from it."""
        c, seen = self.config, self._confident(sample.views)
        zero_shot = self._zero_shot(seen.feature)
        xp = namespace(zero_shot)
        x = xp.astype(seen.feature, xp.float64)
        weight = min(c.eta, c.rho * float(xp.mean(self.counts)))
        logits = zero_shot + xp.astype(weight * self._discriminant(x), zero_shot.dtype)
        y = self._filed(seen.probs, seen.label, sample.id)
        self._learn(x, xp.astype(y, xp.float64))
        return self._predicted(logits, Diagnostics(seen.entropy, seen.label, learnt=y))

    def _discriminant(self, x: Array) -> Array:
        """h_k = x . P mu_k - 1/2 mu_k . P mu_k, (K,)."""
        onto = self.means @ self.precision  # (K, D)
        return onto @ x - 0.5 * namespace(x).sum(onto * self.means, axis=1)

    def _learn(self, x: Array, y: Array) -> None:
        """Counts, means, the mean covariance and P take in ``x`` (D,) by ``y`` (K,)."""
        xp, gain = namespace(x), y / (self.counts + y)  # a, (K,)
        d = x - self.means
        felt = xp.nonzero(gain > _NEGLIGIBLE)[0]
        change = (d[felt, :].T * gain[felt]) @ d[felt, :] - xp.sum(gain[felt]) * self.covariance
        self.covariance = self.covariance + change / y.shape[0]
        self.means = self.means + gain[:, None] * d
        self.counts = self.counts + y
        self.stale += float(xp.mean(gain))
        if self.stale >= self.config.refresh:
            self._invert()

    def _invert(self) -> None:
        """P = ((1 - eps) S + eps I)^-1; where there is none, P stays."""
        found = inverse((1.0 - self.config.eps) * self.covariance, self.config.eps)
        self.precision = self.precision if found is None else found
        self.stale = 0.0

    def add_class(self, text: Array) -> None:
        """The new class starts as all did."""
        super().add_class(text)
        self.counts[-1], self.means[-1, :] = 1.0, _START

    def _is_sound(self) -> bool:
        return bool(namespace(self.counts).all(self.counts >= 1.0))
