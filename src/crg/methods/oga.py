"""OGA: online Gaussian adaptation (Fuchs et al., 2025).

Each class keeps the images of lowest zero-shot entropy. A Gaussian per class with a shared
covariance is read from them, and its discriminant is added to the zero-shot logits.

| equation | function | symbols |
| --- | --- | --- |
| mu_k = t_k, from two entries on their sum / capacity | _place | shrunk until the queue is full |
| M = covariance of x - mu_label over all n entries | _scatter | (n - 1) M |
| P = D ((n - 1) M + tr(M) I)^-1, M^+ for n > 4 D | _fit, _take | D width |
| logits = z + 0.05 h, h_k = x.P mu_k - 1/2 mu_k.P mu_k | step | z zero-shot logits |

P is D I until a class has more than two entries.

Differs from the paper: tr(M) moves on a grid of 2% steps, as the ridge of CRG does, so that between
two steps the inverse follows the few rank-one terms by which a new entry changes (n - 1) M; of
several views the original counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.ops import softmax_and_entropy
from crg.parts.cache import Cache, Insertion
from crg.parts.precision import inverse, on_grid
from crg.types import Array, Diagnostics, Prediction, Sample, namespace

_NO_SPREAD = 1e-9  # the trace of M where all entries coincide
_REFIT_AFTER = 64  # changes that the inverse follows before it is recomputed


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
        self._derive()

    def step(self, sample: Sample) -> Prediction:
        """Cache the image, then add what the Gaussian says to the zero-shot logits."""
        x = sample.views[0, :]
        xp, zero_shot = namespace(x), self._zero_shot(x)
        probs, uncertainty = softmax_and_entropy(zero_shot)
        label, h = int(xp.argmax(probs)), float(uncertainty)
        change = self.cache.offer(label, x, h, sample.id)
        if change is not None:
            self._follow(change)
        gaussian = self.solved @ xp.astype(x, xp.float64) - 0.5 * self.quadratic  # h, (K,)
        logits = zero_shot + xp.astype(self.config.weight * gaussian, zero_shot.dtype)
        return self._predicted(logits, Diagnostics(h, label, change is not None, self.cache.fill))

    def _derive(self) -> None:
        """Compute all that follows from the queues."""
        features = self.cache.features
        xp, (n_classes, _, width) = namespace(features), features.shape
        rows = xp.astype(xp.reshape(features, (-1, width)), xp.float64)
        self.squares = rows.T @ rows  # sum of x x^T over the entries; empty slots are zero
        self.sums = xp.astype(xp.sum(features, axis=1), xp.float64)  # s, (K, D)
        self.means = xp.zeros_like(self.sums)  # mu, (K, D)
        for k in range(n_classes):
            self._place(k)
        self._fit()

    def _follow(self, change: Insertion) -> None:
        """The sums take in one entry and give back another, and the inverse follows."""
        xp, k = namespace(change.added), change.label
        rows = [(1.0, xp.astype(change.added, xp.float64))]
        if change.removed is not None:
            rows += [(-1.0, xp.astype(change.removed, xp.float64))]
        before = self._around(k, change.count - len(rows) % 2)
        for sign, row in rows:
            self.squares += sign * (row[:, None] * row)
            self.sums[k, :] += sign * row
        self._place(k)
        after = self._around(k, change.count)
        terms = [*rows, *((-weight, row) for weight, row in before), *after]
        self.trace += sum(weight * float(row @ row) for weight, row in terms)
        self.n_since_fit += 1
        near = 0.0 < self.ridge == self._ridge() and self.n_since_fit <= _REFIT_AFTER
        if near and change.count > 2:
            self._take(k, terms)
        else:
            self._fit()

    def _place(self, k: int) -> None:
        """The mean of a class: its text until it has two entries."""
        xp, shrunk = namespace(self.means), self.sums[k, :] / self.config.queue_size
        text = xp.astype(self.task.text_features[k, :], xp.float64)
        self.means[k, :] = shrunk if self.cache.counts[k] >= 2 else text

    def _around(self, k: int, count: int) -> list[tuple[float, Array]]:
        """What (n - 1) M has of class k, with ``count`` entries, beside x x^T: (a, u) for a u u^T.

        The second u is the sum over all entries of x - mu.
        """
        xp, size, counts = namespace(self.sums), self.config.queue_size, self.cache.counts
        n = xp.asarray(counts, dtype=xp.float64, device=self.sums.device)
        residual = xp.sum(self.sums, axis=0) - n @ self.means
        residual = residual + (float(n[k]) - count) * self.means[k, :]
        total = int(counts.sum()) + count - int(counts[k])
        return [((count - 2.0 * size) / size**2, self.sums[k, :] + 0.0),
                (-1.0 / max(total, 1), residual)]  # fmt: skip

    def _take(self, k: int, terms: list[tuple[float, Array]]) -> None:
        """The inverse B takes in a u u^T for each term (Woodbury), and P mu follows."""
        xp = namespace(self.inverse)
        u = xp.stack([row for _, row in terms])  # (J, D)
        weights = xp.asarray([weight for weight, _ in terms], dtype=u.dtype, device=u.device)
        y = u @ self.inverse
        inner = y @ u.T + xp.eye(len(terms), dtype=u.dtype, device=u.device) / weights
        z = xp.linalg.solve(inner, y)
        self.inverse -= y.T @ z
        self.solved -= u.shape[1] * ((self.means @ y.T) @ z)
        self.solved[k, :] = u.shape[1] * (self.inverse @ self.means[k, :])
        self.quadratic = xp.sum(self.solved * self.means, axis=1)

    def _fit(self) -> None:
        """P as the queues are now, P mu_k and mu_k . P mu_k."""
        xp, (_, width) = namespace(self.means), self.means.shape
        eye = xp.eye(width, dtype=xp.float64, device=self.means.device)
        scatter, total = self._scatter(), int(self.cache.counts.sum())
        self.trace, self.n_since_fit = float(xp.linalg.trace(scatter)), 0
        self.ridge = self._ridge()
        if self.ridge < 0.0:
            self.inverse, precision = eye, width * eye
        elif self.ridge == 0.0:
            self.inverse = eye
            precision = xp.linalg.pinv(scatter / (total - 1.0))
        else:
            found = inverse(scatter, self.ridge)
            self.inverse = eye / self.ridge if found is None else found
            precision = width * self.inverse
        self.solved = self.means @ precision
        self.quadratic = xp.sum(self.solved * self.means, axis=1)

    def _ridge(self) -> float:
        """tr(M) on its grid; 0 where M^+ is wanted instead, and below 0 where D I is."""
        total = int(self.cache.counts.sum())
        if int(self.cache.counts.max()) <= 2:
            return -1.0
        if total > 4 * self.means.shape[1]:
            return 0.0
        return on_grid(max(self.trace / (total - 1.0), _NO_SPREAD))

    def _scatter(self) -> Array:
        """(n - 1) M: sum (x - mu)(x - mu)^T = sum x x^T - s mu^T - mu s^T + n mu mu^T per class."""
        xp, sums, means = namespace(self.sums), self.sums, self.means
        n = xp.asarray(self.cache.counts, dtype=xp.float64, device=means.device)[:, None]
        residual = xp.sum(sums - n * means, axis=0)
        cross = (0.5 * n * means - sums).T @ means
        total = max(float(xp.sum(n)), 1.0)
        return self.squares + cross + cross.T - residual[:, None] * residual / total
