"""Prototypes: what a class looks like, in images and in words.

v+_k  mean of the entries of queue k
v-_k  mean of v+_j over j != k, from the sum over classes, never by a loop
t_k   text prototype; a cumulative mean that starts at the prompt feature
"""

from __future__ import annotations

from crg.ops import lengths
from crg.parts import fused
from crg.parts.cache import Cache, Insertion
from crg.parts.state import Stateful
from crg.types import Array, namespace


class VisualPrototypes(Stateful):
    """Positive and negative prototypes of a cache whose queues are never empty."""

    def __init__(self, cache: Cache) -> None:
        xp = namespace(cache.features)
        n_classes = cache.features.shape[0]
        self.positive = xp.stack([cache.mean(k) for k in range(n_classes)])  # (K, D)
        # The sum is carried from step to step, so it is kept in double precision.
        self.total = xp.sum(xp.astype(self.positive, xp.float64), axis=0)  # (D,)

    def update(self, cache: Cache, change: Insertion) -> None:
        """Follow one change of the cache: one row moves, and with it the sum."""
        xp, k = namespace(self.positive), change.label
        mean = cache.mean(k)
        shift = xp.astype(mean, xp.float64) - xp.astype(self.positive[k, :], xp.float64)
        self.total = self.total + shift
        self.positive[k, :] = mean

    @property
    def negative(self) -> Array:
        """v-_k = (sum_j v+_j - v+_k) / (K - 1), (K, D)."""
        xp = namespace(self.positive)
        total = xp.astype(self.total, self.positive.dtype)
        return (total - self.positive) / (self.positive.shape[0] - 1)


class TextPrototypes(Stateful):
    """Text prototypes that drift with confident predictions, a new one at the pace of all."""

    _text_rows = ("rows",)

    def __init__(self, text: Array) -> None:
        self.rows = namespace(text).asarray(text, copy=True)  # (K, D)
        self.n_updates = 0  # n_t

    def evolve(self, moved: Array) -> float:
        """n_t += 1; t <- (n_t t + t') / (n_t + 1). Returns the longest way that a row has gone."""
        self.n_updates += 1
        return drift(self.rows, moved, 1.0 / (self.n_updates + 1))


@fused
def drift(rows: Array, moved: Array, share: float) -> float:
    """rows += share (moved - rows), in place; the longest way that a row has gone."""
    way = share * (moved - rows)
    rows += way
    return float(namespace(way).max(lengths(way)))
