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

from dataclasses import dataclass

import numpy as np

from crg.parts import kernels_for
from crg.parts.cache import Cache, Change
from crg.parts.precision import Precision
from crg.parts.state import Stateful
from crg.types import Array, namespace

# What h_k may lose, relative to the largest, by the item size of the features.
_TOLERANCE = {8: 1e-10, 4: 1e-5}


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """An image and the reference, as the precision sees them."""

    projected: Array  # (S + r I)^-1 x, (D,), double precision
    reference: Array  # m, (K, D)
    solved: Array  # w = (S + r I)^-1 m, (K, D)
    spread: Array  # square roots of the diagonal of (S + r I)^-1, (D,)


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """The class means mu = m + d, expanded around the reference; double precision."""

    linear: Array  # mu . projected, (K,)
    along: Array  # w . d, (K,)
    distance: Array  # d . d, (K,)
    reach: Array  # |d| . spread, (K,)
    stirred: Array  # whether the image itself moved the class, (K,)


class Gaussian(Stateful):
    """The discriminant of a cache, kept up to date as the cache changes."""

    def __init__(self, cache: Cache) -> None:
        xp, n_classes = namespace(cache.features), cache.features.shape[0]
        self.precision = Precision(cache)
        self.reference = xp.stack([cache.mean(k) for k in range(n_classes)])  # m, (K, D)
        self.solved = xp.zeros_like(self.reference)  # w, (K, D)
        self.quadratic = xp.astype(self.solved[:, 0], xp.float64)  # q, (K,)
        self._refer_all()

    def update(self, cache: Cache, change: Change) -> None:
        """Follow one change of the cache."""
        terms = self.precision.update(cache, change)
        if terms is None:
            self._refer_all()
            return
        if terms:
            self._take(terms)

    def frame(self, x: Array) -> Frame:
        """What is needed to expand h(x) around the reference."""
        xp = namespace(x)
        projected = self.precision.solve(xp.astype(x, xp.float64))
        spread = xp.astype(xp.sqrt(self.precision.diagonal), x.dtype)
        return Frame(projected, self.reference, self.solved, spread)

    def logits(self, expansion: Expansion, means: Array, refer: bool = True) -> Array:
        """h_k for the class means ``means`` (K, D) that were expanded; zero without a trace.

        Classes that moved far get a new reference, unless not to ``refer`` leaves all as it is.
        """
        xp, width, ridge = namespace(means), means.shape[1], self.precision.ridge
        if not ridge:
            return xp.zeros_like(self.quadratic)
        h = width * (expansion.linear - 0.5 * self.quadratic - expansion.along)
        reach = expansion.reach * expansion.reach
        left_out = 0.5 * width * xp.minimum(expansion.distance / ridge, reach)
        limit = _TOLERANCE[means.dtype.itemsize] * float(xp.max(xp.abs(h)))
        if float(xp.max(left_out)) > limit:
            far = left_out > limit
            stirred = xp.nonzero(far & expansion.stirred if refer else far)[0]
            d = xp.take(means, stirred, axis=0) - xp.take(self.reference, stirred, axis=0)
            h[stirred] -= 0.5 * width * self.precision.form(d)
            if refer:
                moved = xp.nonzero(far & ~expansion.stirred)[0]
                self._refer(moved, means)
                h[moved] = width * (expansion.linear[moved] - 0.5 * self.quadratic[moved])
        return h

    def _refer_all(self) -> None:
        """Solve for all references anew."""
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

    def _take(self, terms: list[tuple[float, Array]]) -> None:
        """w_k -= c (y . m_k) y and q_k -= c (y . m_k)^2 for each term (c, y)."""
        kernels = kernels_for(self.reference)
        if kernels is not None:
            columns, weights = np.stack([y for _, y in terms]), np.array([c for c, _ in terms])
            kernels.take_terms(self.reference, self.solved, self.quadratic, columns, weights)
            return
        xp, narrow = namespace(self.reference), self.reference.dtype
        for weight, y in terms:
            along = self.reference @ xp.astype(y, narrow)  # (K,)
            self.solved -= (weight * along)[:, None] * xp.astype(y, narrow)
            along = xp.astype(along, xp.float64)
            self.quadratic -= weight * along * along


def expand(means: Array, frame: Frame) -> Expansion:
    """Expand the class means ``means`` (K, D) around the reference; none counts as stirred."""
    xp = namespace(means)
    moved = means - frame.reference
    sums = (
        means @ xp.astype(frame.projected, means.dtype),
        xp.sum(frame.solved * moved, axis=1),
        xp.sum(moved * moved, axis=1),
        xp.abs(moved) @ frame.spread,
    )
    linear, along, distance, reach = (xp.astype(each, xp.float64) for each in sums)
    return Expansion(linear, along, distance, reach, stirred=distance < 0.0)
