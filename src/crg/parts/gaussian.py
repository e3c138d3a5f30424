"""Gaussian: the cache read as one Gaussian per class with a shared covariance.

    h_k = mu_k . P x - 1/2 mu_k . P mu_k,    P = D (S + r I)^-1 (see ``precision``)

The means mu_k = v+_k + R+_k all move at every image, but by little, so the quadratic
form is expanded around a reference m_k with w_k = (S + r I)^-1 m_k and q_k = m_k . w_k:

    mu . P mu / D = q + 2 w . d + d . (S + r I)^-1 d,    d = mu - m

The last term is at most |d|^2 / r, and also at most (sum_i |d_i| sqrt(B_ii))^2 with B the
inverse (the triangle inequality for the norm that B makes). It is left out where it cannot
matter (``_TOLERANCE`` says how much). Where it can, a class that this image stirs, one of
its candidates, gets the term, and one that is far from its reference without being stirred
has really moved away and gets a new reference.
"""

from __future__ import annotations

from crg.parts import fused
from crg.parts.cache import Cache, Insertion
from crg.parts.precision import Precision
from crg.parts.state import Stateful
from crg.types import Array, namespace

# What h_k may lose, relative to the largest, by the item size of the features.
_TOLERANCE = {8: 1e-10, 4: 1e-5}


class Gaussian(Stateful):
    """The discriminant of a cache, kept up to date as the cache changes."""

    def __init__(self, cache: Cache) -> None:
        xp, n_classes = namespace(cache.features), cache.features.shape[0]
        self.precision = Precision(cache)
        self.reference = xp.stack([cache.mean(k) for k in range(n_classes)])  # m, (K, D)
        self.solved = xp.zeros_like(self.reference)  # w, (K, D)
        self.quadratic = xp.astype(self.solved[:, 0], xp.float64)  # q, (K,)
        self._refer_all()

    def update(self, cache: Cache, change: Insertion) -> None:
        """Follow one change of the cache."""
        terms = self.precision.update(cache, change)
        if terms is None:
            self._refer_all()
        elif terms:
            xp, (weights, rows) = namespace(self.reference), zip(*terms, strict=True)
            weights = xp.asarray(weights, dtype=xp.float64, device=self.reference.device)
            take_terms(self.reference, self.solved, self.quadratic, xp.stack(rows), weights)

    def logits(self, x: Array, means: Array, stirred: Array, refer: bool = True) -> Array:
        """h_k of ``x`` (D,) for the class means ``means`` (K, D); zero without a trace.

        ``stirred`` (K,) marks the classes whose mean this image itself has moved. Others that
        are far from their reference get a new one, unless ``refer`` is False.
        """
        xp, width, ridge = namespace(means), means.shape[1], self.precision.ridge
        if not ridge:
            return xp.zeros_like(self.quadratic)
        spread = xp.astype(xp.sqrt(self.precision.diagonal), means.dtype)
        onto = xp.astype(self.precision.solve(xp.astype(x, xp.float64)), x.dtype)
        sums = expand(means, onto, self.reference, self.solved, spread)
        linear, along, distance, reach = (sums[i, :] for i in range(4))
        h = width * (linear - 0.5 * self.quadratic - along)
        left_out = 0.5 * width * xp.minimum(distance / ridge, reach * reach)
        limit = _TOLERANCE[means.dtype.itemsize] * float(xp.max(xp.abs(h)))
        if float(xp.max(left_out)) > limit:
            far = left_out > limit
            near_by = xp.nonzero(far & stirred if refer else far)[0]
            d = xp.take(means, near_by, axis=0) - xp.take(self.reference, near_by, axis=0)
            h[near_by] -= 0.5 * width * self.precision.form(d)
            if refer:
                moved = xp.nonzero(far & ~stirred)[0]
                self._refer(moved, means)
                h[moved] = width * (linear[moved] - 0.5 * self.quadratic[moved])
        return h

    def _refer_all(self) -> None:
        """Solve for all references again."""
        m = self.reference
        self._refer(namespace(m).arange(m.shape[0], device=m.device), m)

    def _refer(self, rows: Array, means: Array) -> None:
        """Make the current means of some classes their reference."""
        if not (rows.shape[0] and self.precision.ridge):
            return
        xp = namespace(means)
        reference = xp.take(means, rows, axis=0)
        exact = xp.astype(reference, xp.float64)
        solved = self.precision.solve(exact)
        self.reference[rows, :] = reference
        self.solved[rows, :] = xp.astype(solved, means.dtype)
        self.quadratic[rows] = xp.sum(exact * solved, axis=1)


@fused
def take_terms(
    reference: Array, solved: Array, quadratic: Array, columns: Array, weights: Array
) -> None:
    """w_k -= c (y . m_k) y and q_k -= c (y . m_k)^2, in place, for each term (c, y) of (J, D)."""
    xp = namespace(reference)
    narrow = xp.astype(columns, reference.dtype)
    along = reference @ narrow.T  # (K, J)
    solved -= (along * xp.astype(weights, along.dtype)) @ narrow
    along = xp.astype(along, xp.float64)
    quadratic -= (along * along) @ weights


@fused
def expand(means: Array, projected: Array, reference: Array, solved: Array, spread: Array) -> Array:
    """mu . projected, w . d, d . d and |d| . spread for d = mu - m, as rows of (4, K)."""
    xp = namespace(means)
    d = means - reference
    sums = [means @ projected, xp.sum(solved * d, axis=1), xp.sum(d * d, axis=1)]
    return xp.astype(xp.stack([*sums, xp.abs(d) @ spread]), xp.float64)
