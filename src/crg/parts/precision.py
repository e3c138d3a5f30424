"""Precision: the inverse of the scatter, kept up to date as the cache changes.

    P = D (S + r I)^-1,  r = tr(S) / (n - 1) on a grid of 2% steps

S is the within-class scatter of the n cached features. It changes by one rank-one term for
an entry that comes and one for an entry that goes, so neither S nor its inverse is ever
rebuilt on the hot path. With B the inverse after the last rebuild and one column y_j per
rank-one term since,

    (S + r I)^-1 = B - sum_j c_j y_j y_j^T                      (Sherman and Morrison)

and the columns are folded into B by one matrix product when there are enough of them. A
step of r on its grid, and a fixed number of terms, make a rebuild: from S, or from the cached
features themselves while they are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from crg.parts.cache import Cache, Insertion
from crg.parts.state import Stateful
from crg.types import Array, namespace

_GRID = math.log(1.02)  # r moves in steps of 2%
_COLUMNS = 64  # rank-one terms held beside the base before they are folded in
_REBUILD_AFTER = 1024  # rank-one terms after which the inverse is recomputed from S
_NO_TRACE = 1e-12  # below this all entries of a class coincide up to rounding
_BLOCK = 64  # rows below which a matrix is factorised directly
_TRIES = 20  # ridges, each ten times the last, before a matrix counts as damaged
_SAFE_GROWTH = 1e-6  # 1 + a u.B u, which is zero where a term would make S + r I singular


class Precision(Stateful):
    """(S + r I)^-1 of a cache, in double precision; zero until S has a trace."""

    _not_saved = frozenset({"_narrow_base"})

    def __init__(self, cache: Cache) -> None:
        xp, features = namespace(cache.features), cache.features
        width = features.shape[2]
        f64 = {"dtype": xp.float64, "device": features.device}
        self.events: list[str] = []  # numerical fallbacks not yet reported
        rows = _centred_rows(cache)
        self.scatter = rows.T @ rows  # S, without the terms below
        self.terms = xp.zeros((_COLUMNS, width), **f64)  # u_j of S = scatter + sum a_j u_j u_j^T
        self.term_weights = xp.zeros(_COLUMNS, **f64)  # a_j
        self.base = xp.zeros((width, width), **f64)  # B
        self._narrow_base: Array | None = None  # B in the precision of the features, if needed
        self.columns = xp.zeros((_COLUMNS, width), **f64)  # y_j
        self.column_weights = xp.zeros(_COLUMNS, **f64)  # c_j
        self.diagonal = xp.zeros(width, **f64)  # of the inverse
        self.n_columns = 0
        self.n_since_rebuild = 0
        self.n_entries = int(np.sum(cache.counts))  # n
        self.trace = float(xp.sum(xp.linalg.diagonal(self.scatter)))
        self.ridge = self._ridge()  # r, zero until there is a trace
        self._rebuild(cache)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        super().restore(state)
        self._narrow_base = None

    def update(self, cache: Cache, change: Insertion) -> list[tuple[float, Array]] | None:
        """Follow one change: the terms (c, y) taken from the inverse; None if it was rebuilt."""
        self.n_entries += change.removed is None
        terms = list(_scatter_terms(cache, change))
        self.trace = max(0.0, self.trace + sum(a * float(u @ u) for a, u in terms))
        known, self.ridge = self.ridge, self._ridge()
        if self.n_columns + len(terms) > _COLUMNS:
            self._fold()
        worn = self.n_since_rebuild + len(terms) > _REBUILD_AFTER
        taken = [self._add_term(a, u, invert=self.ridge == known and not worn) for a, u in terms]
        if any(each is None for each in taken):
            self._rebuild(cache)
            return None
        return [each for each in taken if each is not None]

    def solve(self, rows: Array) -> Array:
        """(S + r I)^-1 applied to one vector (D,) or to rows (J, D)."""
        n, columns = self.n_columns, self.columns[: self.n_columns, :]
        # The base is symmetric, and a matrix times a vector is quicker than a vector times it.
        onto_base = self.base @ rows if rows.ndim == 1 else rows @ self.base
        return onto_base - ((rows @ columns.T) * self.column_weights[:n]) @ columns

    def form(self, rows: Array) -> Array:
        """d . (S + r I)^-1 d for each of ``rows`` (J, D), computed in their own precision."""
        xp = namespace(rows)
        if self._narrow_base is None:
            self._narrow_base = xp.astype(self.base, rows.dtype)
        columns = xp.astype(self.columns[: self.n_columns, :], rows.dtype)
        weights = xp.astype(self.column_weights[: self.n_columns], rows.dtype)
        on_columns = rows @ columns.T
        form = xp.sum((rows @ self._narrow_base) * rows, axis=1)
        return xp.astype(form - (on_columns * on_columns) @ weights, xp.float64)

    def take_events(self) -> tuple[str, ...]:
        """The numerical fallbacks since the last call."""
        events, self.events = tuple(self.events), []
        return events

    def _is_sound(self) -> bool:
        return self.n_columns <= _COLUMNS and self.n_entries >= 1 and self.ridge >= 0.0

    def _ridge(self) -> float:
        """r = tr(S) / (n - 1) on its grid, zero while there is no trace."""
        if self.trace <= _NO_TRACE:
            return 0.0
        return on_grid(self.trace / (self.n_entries - 1))

    def _add_term(self, weight: float, u: Array, invert: bool) -> tuple[float, Array] | None:
        """S += a u u^T and, if asked and safe, the same for the inverse."""
        j, self.n_columns = self.n_columns, self.n_columns + 1
        self.n_since_rebuild += 1
        self.terms[j, :], self.term_weights[j] = u, weight
        if not invert:
            return None
        y = self.solve(u)
        growth = 1.0 + weight * float(u @ y)
        if growth < _SAFE_GROWTH:
            return None
        c = weight / growth
        self.columns[j, :], self.column_weights[j] = y, c
        self.diagonal = self.diagonal - c * y * y
        return c, y

    def _fold(self) -> None:
        """Take the held terms into S and the inverse."""
        n = self.n_columns
        self.scatter += (self.terms[:n, :].T * self.term_weights[:n]) @ self.terms[:n, :]
        self.base -= (self.columns[:n, :].T * self.column_weights[:n]) @ self.columns[:n, :]
        self.columns[:n, :] = 0.0
        self.column_weights[:n] = 0.0
        self.n_columns = 0
        self._narrow_base = None

    def _rebuild(self, cache: Cache) -> None:
        """Invert S + r I from scratch."""
        self._fold()
        self.n_since_rebuild = 0
        if self.ridge:
            self.base = self._inverse(cache)
            xp = namespace(self.base)
            self.diagonal = xp.asarray(xp.linalg.diagonal(self.base), copy=True)

    def _inverse(self, cache: Cache) -> Array:
        """(S + r I)^-1, from the rows of S if they are few."""
        xp, width = namespace(self.scatter), self.scatter.shape[0]
        eye = xp.eye(width, dtype=xp.float64, device=self.scatter.device)
        invert = partial(inverse, self.scatter)
        if 2 * int(np.sum(cache.counts[cache.counts > 1])) < width:
            rows = _centred_rows(cache)
            invert = partial(inverse_from_rows, rows, xp.ones_like(rows[:, 0]))
        found, times = ridged(invert, self.ridge, eye)
        self.events += times * ["the covariance needed ten times the ridge to be inverted"]
        return found


def ridged(invert: Callable[[float], Array | None], ridge: float, eye: Array) -> tuple[Array, int]:
    """``invert(ridge)`` with the ridge made ten times as large until there is an inverse.

    Also returns how often. If nothing helps, it is the inverse of the ridge alone.
    """
    for times in range(_TRIES):
        found = invert(ridge)
        if found is not None:
            return found, times
        ridge = ridge * 10.0
    return eye / ridge, _TRIES


def on_grid(ridge: float) -> float:
    """The grid value nearest to ``ridge``; neighbours on the grid are 2% apart."""
    return math.exp(_GRID * round(math.log(ridge) / _GRID))


def _scatter_terms(cache: Cache, change: Insertion) -> Iterator[tuple[float, Array]]:
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


def _centred_rows(cache: Cache) -> Array:
    """All entries less the mean of their queue, (J, D); one that is alone is its own mean."""
    xp, features = namespace(cache.features), cache.features
    rows = [xp.zeros((0, features.shape[2]), dtype=xp.float64, device=features.device)]
    for k in np.flatnonzero(cache.counts > 1).tolist():
        queue = xp.astype(features[k, : int(cache.counts[k]), :], xp.float64)
        rows.append(queue - xp.mean(queue, axis=0))
    return xp.concat(rows)


def inverse(matrix: Array, ridge: float = 0.0) -> Array | None:
    """The symmetric inverse of a positive definite matrix + ridge I; None if it is not one.

    Block elimination: with A, B, C the blocks of the matrix and X = B A^-1, the inverse has the
    blocks A^-1 + X^T Q X, -Q X and Q, where Q = (C - X B^T)^-1. The blocks on the diagonal are
    factorised by Cholesky, which fails exactly where the matrix is not positive definite.
    """
    xp, n = namespace(matrix), matrix.shape[0]
    if ridge:
        matrix = matrix + ridge * xp.eye(n, dtype=matrix.dtype, device=matrix.device)
    try:
        found = _eliminated(matrix)
    except (ValueError, RuntimeError):  # NumPy's and torch's LinAlgError
        return None
    return 0.5 * (found + found.T) if bool(xp.all(xp.isfinite(found))) else None


def _eliminated(matrix: Array) -> Array:
    xp, n = namespace(matrix), matrix.shape[0]
    if n <= _BLOCK:
        factor = xp.linalg.inv(xp.linalg.cholesky(matrix))
        return factor.T @ factor
    half = n // 2
    first = _eliminated(matrix[:half, :half])
    x = matrix[half:, :half] @ first
    last = _eliminated(matrix[half:, half:] - x @ matrix[:half, half:])
    y = last @ x
    found = xp.empty_like(matrix)
    found[:half, :half] = first + x.T @ y
    found[half:, :half], found[:half, half:], found[half:, half:] = -y, -y.T, last
    return found


def inverse_from_rows(rows: Array, weights: Array, ridge: float) -> Array | None:
    """(ridge I + rows^T diag(weights) rows)^-1 for few rows (J, D); None if it has none.

    Woodbury: it is (I - rows^T (ridge diag(1/weights) + rows rows^T)^-1 rows) / ridge, whose
    inner matrix is J x J. Weights may be negative, but not zero.
    """
    xp, (j, width) = namespace(rows), rows.shape
    inner = rows @ rows.T + ridge * xp.eye(j, dtype=rows.dtype, device=rows.device) / weights
    try:
        found = -(rows.T @ xp.linalg.solve(inner, rows)) / ridge
    except (ValueError, RuntimeError):
        return None
    found = found + xp.eye(width, dtype=rows.dtype, device=rows.device) / ridge
    return 0.5 * (found + found.T) if bool(xp.all(xp.isfinite(found))) else None
