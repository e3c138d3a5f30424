"""Gaussian: the cache read as one Gaussian per class with a shared covariance.

    P    = D (S + r I)^-1,  r = tr(S) / (n - 1) on a grid of 2% steps
    h_k  = mu_k . P x - 1/2 mu_k . P mu_k

S is the within-class scatter of the n cached features. It changes by one rank-one term for
an entry that comes and one for an entry that goes, so neither S nor its inverse is ever
rebuilt on the hot path. With B the inverse after the last rebuild and one column y_j per
rank-one term since,

    (S + r I)^-1 = B - sum_j c_j y_j y_j^T                      (Sherman and Morrison)

and the columns are folded into B by one matrix product when there are enough of them. A
step of r on its grid, and a fixed number of terms, make a rebuild from S.

The means mu_k = v+_k + R+_k all move at every picture, but by little, so the quadratic
form is expanded around a reference m_k with w_k = (S + r I)^-1 m_k and q_k = m_k . w_k:

    mu . P mu / D = q + 2 w . d + d . (S + r I)^-1 d,    d = mu - m

The last term is at most |d|^2 / r, and also at most (sum_i |d_i| sqrt(B_ii))^2 with B the
inverse (the triangle inequality for the norm that B makes). It is left
out where it cannot matter (``_TOLERANCE`` says how much). Where it can, a class that this
picture stirs, one of its candidates, gets the term, and one that is far from its reference
without being stirred has really moved away and gets a new reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from crg.parts.cache import Cache, Change
from crg.parts.compiled import kernels_for
from crg.parts.state import Stateful
from crg.types import Array, namespace

_GRID = math.log(1.02)  # r moves in steps of 2%
_COLUMNS = 64  # rank-one terms held beside the base before they are folded in
_REBUILD_AFTER = 1024  # rank-one terms after which the inverse is made anew from S
_NO_TRACE = 1e-12  # below this all entries of a class coincide up to rounding
_TOLERANCE = {8: 1e-10, 4: 1e-5}  # what h_k may lose, relative to the largest, by item size


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A picture and the reference, as the precision sees them."""

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
    stirred: Array  # whether the picture itself moved the class, (K,)


class Gaussian(Stateful):
    """The discriminant of a cache, kept up to date as the cache changes."""

    _not_saved = frozenset({"_narrow_base"})

    def __init__(self, cache: Cache) -> None:
        self.n_rescues = 0  # factorisations that needed more ridge
        self._narrow_base: Array | None = None  # B in the precision of the features, if needed
        self.refresh(cache)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        super().restore(state)
        self._narrow_base = None

    def refresh(self, cache: Cache) -> None:
        """Read everything off the cache again."""
        xp, features = namespace(cache.features), cache.features
        n_classes, _, width = features.shape
        f64 = {"dtype": xp.float64, "device": features.device}
        self.scatter = xp.zeros((width, width), **f64)  # S, without the terms below
        self.terms = xp.zeros((_COLUMNS, width), **f64)  # u_j of S = scatter + sum a_j u_j u_j^T
        self.term_weights = xp.zeros(_COLUMNS, **f64)  # a_j
        self.base = xp.zeros((width, width), **f64)  # B
        self.diagonal = xp.zeros(width, **f64)  # of the inverse
        self.columns = xp.zeros((_COLUMNS, width), **f64)  # y_j
        self.column_weights = xp.zeros(_COLUMNS, **f64)  # c_j
        self.n_columns = 0
        self.n_since_rebuild = 0
        self.n_entries = int(np.sum(cache.counts))  # n
        for k in range(n_classes):
            centred = xp.astype(features[k, : int(cache.counts[k]), :], xp.float64)
            centred = centred - xp.mean(centred, axis=0)
            self.scatter = self.scatter + centred.T @ centred
        self.trace = float(xp.sum(xp.linalg.diagonal(self.scatter)))
        self.ridge = self._ridge()  # r, zero until there is a trace
        self.reference = xp.stack([cache.mean(k) for k in range(n_classes)])  # m, (K, D)
        self.solved = xp.zeros_like(self.reference)  # w, (K, D)
        self.quadratic = xp.zeros(n_classes, **f64)  # q, (K,)
        self._rebuild()

    def update(self, cache: Cache, change: Change) -> None:
        """Follow one change of the cache."""
        self.n_entries += change.removed is None
        terms = list(_scatter_terms(cache, change))
        self.trace = max(0.0, self.trace + sum(a * float(u @ u) for a, u in terms))
        ridge, known = self._ridge(), self.ridge
        stale = ridge != known or self.n_since_rebuild + len(terms) > _REBUILD_AFTER
        if self.n_columns + len(terms) > _COLUMNS:
            self._fold()
        for weight, u in terms:
            stale = not self._add_term(weight, u, invert=not stale) or stale
        self.ridge = ridge
        if stale:
            self._rebuild()

    def frame(self, x: Array) -> Frame:
        """What is needed to expand h(x) around the reference."""
        xp = namespace(x)
        projected = self._solve(xp.astype(x, xp.float64)) if self.ridge else self.base[0, :]
        spread = xp.astype(xp.sqrt(self.diagonal), x.dtype)
        return Frame(projected, self.reference, self.solved, spread)

    def logits(self, expansion: Expansion, means: Array) -> Array:
        """h_k for the class means ``means`` (K, D) that were expanded; zero without a trace."""
        xp = namespace(means)
        if not self.ridge:
            return xp.zeros_like(self.quadratic)
        width = means.shape[1]
        h = width * (expansion.linear - 0.5 * self.quadratic - expansion.along)
        reach = expansion.reach * expansion.reach
        left_out = 0.5 * width * xp.minimum(expansion.distance / self.ridge, reach)
        limit = _TOLERANCE[means.dtype.itemsize] * float(xp.max(xp.abs(h)))
        if float(xp.max(left_out)) > limit:
            far = left_out > limit
            passing = xp.nonzero(far & expansion.stirred)[0]
            h[passing] -= (0.5 * width) * self._second_order(passing, means)
            moved = xp.nonzero(far & ~expansion.stirred)[0]
            self._refer(moved, means)
            h[moved] = width * (expansion.linear[moved] - 0.5 * self.quadratic[moved])
        return h

    def _second_order(self, rows: Array, means: Array) -> Array:
        """d . (S + r I)^-1 d for some classes. It is small: the precision of d will do."""
        xp = namespace(means)
        d = xp.take(means, rows, axis=0) - xp.take(self.reference, rows, axis=0)
        if self._narrow_base is None:
            self._narrow_base = xp.astype(self.base, d.dtype)
        columns = xp.astype(self.columns[: self.n_columns, :], d.dtype)
        weights = xp.astype(self.column_weights[: self.n_columns], d.dtype)
        on_columns = d @ columns.T
        form = xp.sum((d @ self._narrow_base) * d, axis=1) - (on_columns * on_columns) @ weights
        return xp.astype(form, xp.float64)

    def _refer(self, rows: Array, means: Array) -> None:
        """Make the current means of some classes their reference."""
        if rows.shape[0] == 0:
            return
        xp = namespace(means)
        reference = xp.take(means, rows, axis=0)
        exact = xp.astype(reference, xp.float64)
        solved = self._solve(exact)
        self.reference[rows, :] = reference
        self.solved[rows, :] = xp.astype(solved, means.dtype)
        self.quadratic[rows] = xp.sum(exact * solved, axis=1)

    def _solve(self, rows: Array) -> Array:
        """(S + r I)^-1 applied to one vector (D,) or to rows (J, D)."""
        n = self.n_columns
        columns = self.columns[:n, :]
        return rows @ self.base - ((rows @ columns.T) * self.column_weights[:n]) @ columns

    def _ridge(self) -> float:
        """r = tr(S) / (n - 1) on its grid, zero while there is no trace."""
        if self.trace <= _NO_TRACE:
            return 0.0
        return on_grid(self.trace / (self.n_entries - 1))

    def _add_term(self, weight: float, u: Array, invert: bool) -> bool:
        """S += a u u^T and, if asked and safe, the same for the inverse and what hangs on it."""
        j = self.n_columns
        self.terms[j, :], self.term_weights[j] = u, weight
        if invert:
            y = self._solve(u)
            growth = 1.0 + weight * float(u @ y)
            invert = growth > 1e-6  # at zero the term would make S singular
            if invert:
                self.columns[j, :], self.column_weights[j] = y, weight / growth
                self.diagonal = self.diagonal - (weight / growth) * y * y
                self._take_term(y, weight / growth)
        self.n_columns = j + 1
        self.n_since_rebuild += 1
        return invert

    def _take_term(self, y: Array, weight: float) -> None:
        """w_k -= c (y . m_k) y and q_k -= c (y . m_k)^2."""
        kernels = kernels_for(self.reference)
        if kernels is not None:
            kernels.take_term(self.reference, self.solved, self.quadratic, y, weight)
            return
        xp, narrow = namespace(y), self.reference.dtype
        along = self.reference @ xp.astype(y, narrow)  # (K,)
        self.solved -= (weight * along)[:, None] * xp.astype(y, narrow)
        along = xp.astype(along, xp.float64)
        self.quadratic -= weight * along * along

    def _fold(self) -> None:
        """Take the held terms into S and the inverse."""
        n = self.n_columns
        self.scatter += (self.terms[:n, :].T * self.term_weights[:n]) @ self.terms[:n, :]
        self.base -= (self.columns[:n, :].T * self.column_weights[:n]) @ self.columns[:n, :]
        self.columns[:n, :] = 0.0
        self.column_weights[:n] = 0.0
        self.n_columns = 0
        self._narrow_base = None

    def _rebuild(self) -> None:
        """Invert S + r I from scratch and refer every class to it."""
        self._fold()
        self.n_since_rebuild = 0
        if not self.ridge:
            return
        self.base, self._narrow_base = self._inverse(), None
        xp = namespace(self.base)
        self.diagonal = xp.asarray(xp.linalg.diagonal(self.base), copy=True)
        exact = xp.astype(self.reference, xp.float64)
        solved = self._solve(exact)
        self.quadratic = xp.sum(exact * solved, axis=1)
        self.solved = xp.astype(solved, self.reference.dtype)

    def _inverse(self) -> Array:
        """(S + r I)^-1; if it cannot be factorised, with ten times the ridge, and again."""
        xp = namespace(self.scatter)
        eye = xp.eye(self.scatter.shape[0], dtype=xp.float64, device=self.scatter.device)
        ridge = self.ridge
        while True:
            inverse = _invert(self.scatter + ridge * eye)
            if inverse is not None:
                return inverse
            self.n_rescues += 1
            ridge = ridge * 10.0


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


def on_grid(ridge: float) -> float:
    """The grid value nearest to ``ridge``; neighbours on the grid are 2% apart."""
    return math.exp(_GRID * round(math.log(ridge) / _GRID))


def _invert(matrix: Array) -> Array | None:
    """The symmetric inverse of a positive definite matrix, None if it is not one."""
    xp = namespace(matrix)
    try:
        xp.linalg.cholesky(matrix)  # fails, unlike inv, when the matrix is not positive definite
        inverse = xp.linalg.inv(matrix)
    except (ValueError, RuntimeError):  # NumPy's and torch's LinAlgError
        return None
    return 0.5 * (inverse + inverse.T) if bool(xp.all(xp.isfinite(inverse))) else None


def _scatter_terms(cache: Cache, change: Change) -> Iterator[tuple[float, Array]]:
    """The rank-one terms (a, u) of S += a u u^T that one change makes.

    An entry that joins m others adds m/(m+1) (x - mean)(x - mean)^T; one that leaves takes
    the same away. The new entry joins before the old one leaves: S stays large.
    """
    xp = namespace(cache.features)
    if change.count == 1:
        return  # a lone entry is its own mean
    added = xp.astype(change.added, xp.float64)
    present = xp.astype(cache.features[change.label, : change.count, :], xp.float64)
    others = xp.sum(present, axis=0) - added  # the sum before the entry joined
    if change.removed is None:
        m = change.count - 1
        yield m / (m + 1), added - others / m
        return
    m, removed = change.count, xp.astype(change.removed, xp.float64)
    yield m / (m + 1), added - (others + removed) / m
    yield -(m + 1) / m, removed - (others + removed + added) / (m + 1)
