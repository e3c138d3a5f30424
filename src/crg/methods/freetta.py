"""FreeTTA: online EM on one Gaussian per class (Dai and Yang, "Free on the Fly", CVPR 2025).

The test stream is modelled as a mixture of Gaussians with a shared covariance, whose means start at
the text. Each image is answered by the zero-shot logits plus the Gaussian discriminant; then one
step of EM takes it in, with less weight the less certain zero-shot is.

| equation | function | symbols |
| --- | --- | --- |
| g_k = mu_k.P x - 1/2 mu_k.P mu_k + ln(N_k / n) | _discriminant | N_k from 1/K, n from 1 |
| logits = z + alpha g | step | z zero-shot logits, p = softmax(z) |
| E: gamma = softmax(g), w = exp(-beta H(p) / ln K) | _expect | H entropy |
| M: n += w, N_k += w gamma_k, mu_k <- mu_k + w gamma_k / N_k (x - mu_k) | _maximise | |
| M: Sigma <- Sigma + w / (n - 1) sum_k gamma_k (x - mu_k)(x - mu_k)^T | _spread | from I; new mu |
| P = D ((n - 1) Sigma + tr(Sigma) I)^-1 | _invert | D width; I before the first image |

Uncertain: the authors published no code; these equations come from summaries of the paper and from
public ports, which disagree. The form `paper` follows them to the letter and hardly leaves
zero-shot: the printed Sigma has n - 1 above and below the line, so it never falls below its start
I, next to which cosines differ little; gamma is then nearly uniform, and all means drift to the
mean of all images. The authors report gains, so they may have run something else. Other readings:

- `joint`: gamma = softmax(z + alpha g), as the abstract ("zero-shot predictions as priors") and
  some ports have it, and Sigma <- (n_old Sigma + w sum_k ...) / n, a mean in which I counts as the
  one image that n and the N_k start with.
- `simple`, another port: no Sigma and no N_k / n, gamma = p, mu_k normalised, g_k = s x.mu_k.

Sources also differ in H (in nats or over ln K), in P (as above, that over D^2, or the inverse of
Sigma + 1e-4 I) and in whether mu_k is normalised.

Differs from the paper: one setting for all datasets, where ports tune alpha from 0.02 to 0.8 and
beta from 1.5 to 4 per dataset; these are the geometric means of the two ends, chosen before any
run. P follows when images worth `refresh` of n have come, not at every image; until then mu.P mu is
updated exactly. With several views, x is the normalised mean of the confident ones, as in TDA.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.ops import normalize, softmax
from crg.parts.precision import inverse
from crg.types import Array, Diagnostics, Prediction, Sample, namespace

_FORMS = ("paper", "joint", "simple")
_NEGLIGIBLE = 1e-9  # a class of which an image is a smaller fraction adds nothing to Sigma


@register
class FreeTTA(Method):
    """Online EM on one Gaussian per class, each image weighted by its zero-shot certainty."""

    name = "freetta"
    paper = "Dai and Yang, Free on the Fly: Flexibility in TTA with Online EM, CVPR 2025"
    _rows, _text_rows = ("learnt", "lengths"), ("means",)

    @dataclass(frozen=True)
    class Config:
        """The middle of what public ports use, one setting for all datasets."""

        view_share: float = option(0.1, "fraction of views kept", above=0, at_most=1)
        form: str = option("paper", "equations as printed, or another reading", choices=_FORMS)
        alpha: float = option(0.13, "weight of the Gaussian", at_least=0, at_most=1e6)
        beta: float = option(2.45, "how much less unsure images count", at_least=0, at_most=50)
        refresh: float = option(0.02, "growth of n before P follows", at_least=0, at_most=1)

    def reset(self) -> None:
        """Means at the text, a uniform prior, and I for the covariance."""
        text = self.task.text_features
        xp, (n_classes, width) = namespace(text), text.shape
        wide = {"dtype": xp.float64, "device": text.device}
        self.filing = None
        self.weight = 0.0  # n - 1, the sum of w
        self.learnt = xp.zeros(n_classes, **wide)  # N - 1/K, (K,)
        self.means = xp.astype(text, xp.float64)  # mu, (K, D)
        self.covariance = xp.eye(width, **wide)  # Sigma, (D, D)
        self.precision = xp.eye(width, **wide)  # P, (D, D)
        self.lengths = xp.sum(self.means * self.means, axis=1)  # mu . P mu, (K,)
        self.stale = 0.0  # fraction of n that P has not taken in

    def step(self, sample: Sample) -> Prediction:
        """Answer one image, then take it in by one step of EM."""
        seen = self._confident(sample.views)
        zero_shot = self._zero_shot(seen.feature)
        xp = namespace(zero_shot)
        x = xp.astype(seen.feature, xp.float64)
        g = self._discriminant(x)
        logits = xp.astype(zero_shot, xp.float64) + self.config.alpha * g
        w, gamma = self._expect(g, logits, seen.probs, seen.entropy)
        learnt = w * self._filed(gamma, seen.label, sample.id)
        self._maximise(x, learnt)
        facts = Diagnostics(seen.entropy, seen.label, learnt=learnt)
        return self._predicted(xp.astype(logits, zero_shot.dtype), facts)

    def _discriminant(self, x: Array) -> Array:
        """g_k = mu_k . P x - 1/2 mu_k . P mu_k + ln(N_k / n), or s x . mu_k, (K,)."""
        if self.config.form == "simple":
            return self.task.logit_scale * (self.means @ x)
        prior = namespace(x).log(self._counts() / (1.0 + self.weight))
        return self.means @ (self.precision @ x) - 0.5 * self.lengths + prior

    def _counts(self) -> Array:
        """N_k, (K,): 1/K and the images so far."""
        return self.learnt + 1.0 / self.task.n_classes

    def _expect(self, g: Array, logits: Array, probs: Array, entropy: float) -> tuple[float, Array]:
        """The weight w of an image and its responsibilities gamma (K,)."""
        xp, form = namespace(g), self.config.form
        uncertainty = min(1.0, entropy / math.log(self.task.n_classes))
        gamma = xp.astype(probs, xp.float64)
        if form != "simple":
            gamma = softmax(g if form == "paper" else logits)
        return math.exp(-self.config.beta * uncertainty), gamma

    def _maximise(self, x: Array, y: Array) -> None:
        """Take in ``x`` (D,), which counts ``y`` = w gamma (K,) for the classes."""
        self.learnt = self.learnt + y
        gain, d = y / self._counts(), x - self.means
        if self.config.form == "simple":
            self.means = normalize(self.means + gain[:, None] * d)
            return
        px = self.precision @ x
        left = 1.0 - gain  # mu P mu of (1 - gain) mu + gain x
        self.lengths = left * (left * self.lengths + 2.0 * gain * (self.means @ px))
        self.lengths = self.lengths + gain * gain * (x @ px)
        self.means = self.means + gain[:, None] * d
        self._spread(left[:, None] * d, y)

    def _spread(self, d: Array, y: Array) -> None:
        """Sigma takes in sum_k y_k d_k d_k^T with ``d`` = x - mu (K, D); P may follow."""
        xp, w = namespace(y), float(namespace(y).sum(y))
        self.weight += w
        felt = xp.nonzero(y > _NEGLIGIBLE * w)[0]
        change = (d[felt, :].T * y[felt]) @ d[felt, :]
        n = 1.0 + self.weight
        if self.config.form == "paper":
            self.covariance = self.covariance + change / self.weight
        else:
            self.covariance = self.covariance + (change - w * self.covariance) / n
        self.stale += w / n
        if self.stale >= self.config.refresh:
            self._invert()

    def _invert(self) -> None:
        """P = D ((n - 1) Sigma + tr(Sigma) I)^-1 and mu . P mu; where there is none, P stays."""
        xp, width = namespace(self.means), self.means.shape[1]
        found = inverse(self.weight * self.covariance, float(xp.linalg.trace(self.covariance)))
        self.precision = self.precision if found is None else width * found
        self.lengths = xp.sum((self.means @ self.precision) * self.means, axis=1)
        self.stale = 0.0

    def add_class(self, text: Array) -> None:
        """The new class starts at its text; the counts of all start from the new 1/K."""
        super().add_class(text)
        mean = self.means[-1, :]
        self.lengths[-1] = mean @ self.precision @ mean

    def _is_sound(self) -> bool:
        return bool(namespace(self.learnt).all(self.learnt >= 0.0)) and self.weight >= 0.0
