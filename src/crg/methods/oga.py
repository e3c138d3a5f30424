"""OGA: online Gaussian adaptation (Fuchs et al., 2025).

Each class keeps the images of lowest zero-shot entropy. A Gaussian per class with a shared
covariance is read from them, and its discriminant is added to the zero-shot logits.

| equation | function | symbols |
| --- | --- | --- |
| mu_k = t_k, from two entries on their sum / capacity | _place | shrunk until the queue is full |
| M = covariance of x - mu_label over all n entries | _covariance | |
| P = D ((n - 1) M + tr(M) I)^-1, M^+ for n > 4 D | _invert | D width |
| logits = z + 0.05 h, h_k = x.P mu_k - 1/2 mu_k.P mu_k | _discriminant | z zero-shot logits |

P is D I until a class has more than two entries.

Differs from the paper: of several views the original counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from crg.methods.base import Method
from crg.methods.options import option
from crg.methods.registry import register
from crg.ops import softmax_and_entropy
from crg.parts.cache import Cache, Change
from crg.parts.inverse import inverse
from crg.types import Array, Diagnostics, Prediction, Sample, namespace

_NO_SPREAD = 1e-9  # the trace of M where all entries coincide


@register
class OGA(Method):
    """A Gaussian read from the most confident images."""

    name = "oga"
    paper = "Fuchs et al., Online Gaussian Test-Time Adaptation of Vision-Language Models, 2025"

    @dataclass(frozen=True)
    class Config:
        """The authors' constants, one setting for all datasets."""

        queue_size: int = option(8, "slots per queue", at_least=3, at_most=10_000)
        weight: float = option(0.05, "of the Gaussian", at_least=0, at_most=1e6)

    def reset(self) -> None:
        """Empty queues, means at the text."""
        self.cache = Cache(self.task.text_features, self.config.queue_size, seeded=False)
        self._read_cache()

    def step(self, sample: Sample) -> Prediction:
        """Cache the image, then add what the Gaussian says to the zero-shot logits."""
        x = sample.views[0, :]
        xp, zero_shot = namespace(x), self.task.logit_scale * (self.task.text_features @ x)
        probs, uncertainty = softmax_and_entropy(zero_shot)
        label, h = int(xp.argmax(probs)), float(uncertainty)
        change = self.cache.offer(label, x, h, sample.id)
        if change is not None:
            self._follow(change)
        logits = zero_shot + xp.astype(self._discriminant(x), zero_shot.dtype)
        return self._predicted(logits, Diagnostics(h, label, change is not None, self.cache.fill))

    def _discriminant(self, x: Array) -> Array:
        """0.05 h_k, (K,)."""
        xp = namespace(x)
        h = self.solved @ xp.astype(x, xp.float64) - 0.5 * self.quadratic
        return self.config.weight * h

    def _read_cache(self) -> None:
        """Compute all that follows from the queues."""
        features = self.cache.features
        xp, (n_classes, _, width) = namespace(features), features.shape
        rows = xp.astype(xp.reshape(features, (-1, width)), xp.float64)
        self.squares = rows.T @ rows  # sum of x x^T over the entries; empty slots are zero
        self.sums = xp.astype(xp.sum(features, axis=1), xp.float64)  # (K, D)
        self.means = xp.zeros_like(self.sums)  # mu, (K, D)
        for k in range(n_classes):
            self._place(k)
        self._fit()

    def _follow(self, change: Change) -> None:
        """The sums take in one entry and give back another."""
        xp, k = namespace(change.added), change.label
        for row, sign in ((change.added, 1.0), (change.removed, -1.0)):
            if row is not None:
                wide = xp.astype(row, xp.float64)
                self.squares = self.squares + sign * wide[:, None] * wide
                self.sums[k, :] += sign * wide
        self._place(k)
        self._fit()

    def _place(self, k: int) -> None:
        """The mean of a class: its text until it has two entries."""
        xp, shrunk = namespace(self.means), self.sums[k, :] / self.config.queue_size
        text = xp.astype(self.task.text_features[k, :], xp.float64)
        self.means[k, :] = shrunk if self.cache.counts[k] >= 2 else text

    def _fit(self) -> None:
        """P as the queues are now, P mu_k and mu_k . P mu_k."""
        xp = namespace(self.means)
        self.solved = self.means @ self._invert()
        self.quadratic = xp.sum(self.solved * self.means, axis=1)

    def _covariance(self) -> Array:
        """M, from sum (x - mu)(x - mu)^T = sum x x^T - s mu^T - mu s^T + n mu mu^T per class."""
        xp, sums, means = namespace(self.sums), self.sums, self.means
        n = xp.asarray(self.cache.counts, dtype=xp.float64, device=means.device)[:, None]
        residual = xp.sum(sums - n * means, axis=0)
        cross = (0.5 * n * means - sums).T @ means
        total = float(xp.sum(n))
        scatter = self.squares + cross + cross.T
        return (scatter - residual[:, None] * residual / total) / (total - 1.0)

    def _invert(self) -> Array:
        """P = D ((n - 1) M + tr(M) I)^-1, and the pseudo-inverse of M for n > 4 D."""
        xp, width, counts = namespace(self.means), self.means.shape[1], self.cache.counts
        eye = xp.eye(width, dtype=xp.float64, device=self.means.device)
        if int(counts.max()) <= 2:
            return width * eye
        covariance, total = self._covariance(), int(counts.sum())
        if total > 4 * width:
            return xp.linalg.pinv(covariance)
        trace = max(float(xp.linalg.trace(covariance)), _NO_SPREAD)
        found = inverse((total - 1) * covariance + trace * eye)
        return width * (eye / trace if found is None else found)

    def add_class(self, text: Array) -> None:
        """The new class stands at its text."""
        super().add_class(text)
        self._read_cache()

    def remove_class(self, index: int) -> None:
        """Drop the class's queue."""
        super().remove_class(index)
        self._read_cache()

    @property
    def queues(self) -> Cache:
        """The cache of images."""
        return self.cache
