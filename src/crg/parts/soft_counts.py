"""Soft counts: sums over all images, each of which counts for each class by a weight r_k.

    N_k = sum r_k,   V_k = sum r_k^2,   M_k = sum r_k x
    C = sum (sum_k r_k) x x^T,   w = sum sum_k r_k

together with the number of images, the sum of their features and the sum of their gaps to the
text. From these follow the class means and the within-class scatter

    S = C - sum over k of M_k M_k^T / N_k

of a Gaussian per class with a shared covariance. N_k^2 / V_k is the number of images of equal
weight whose mean would be known as well as M_k / N_k. The outer products of C wait in a buffer of
rows, so that one matrix product adds many images; until the buffer has been full once, the
inverse of S plus a ridge is computed from its rows.

``RecentImages`` remembers what the latest images counted for, so that a correction can undo it;
``Shifts`` moves the logits to what corrections say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from crg.ops import entropy
from crg.parts.precision import inverse, inverse_from_rows
from crg.parts.state import Stateful
from crg.types import Array, SampleId, namespace

_ROWS = 256  # images whose outer products wait to be added to C
_LEAST = 1e-100  # a count that is not zero is larger, or dividing by it would overflow
_TRACE = 1e-9  # a count below this is what rounding left after an undo
_SAME = 1e-6  # squared distance below which an image counts as the mean of all


class SoftCounts(Stateful):
    """The sums; C and all small ones in double precision, M in that of the features."""

    _rows = ("counts", "count_squares", "sums")

    def __init__(self, text: Array) -> None:
        """No image yet, for classes with the text features ``text`` (K, D)."""
        xp, (n_classes, width) = namespace(text), text.shape
        wide = {"dtype": xp.float64, "device": text.device}
        self.n_images = 0.0  # n, below the number of images if they fade
        self.counts = xp.zeros(n_classes, **wide)  # N, (K,)
        self.count_squares = xp.zeros_like(self.counts)  # V, (K,)
        self.sums = xp.zeros_like(text)  # M, (K, D)
        self.total = xp.zeros(width, **wide)  # sum of x, (D,)
        self.gaps = xp.zeros(width, **wide)  # g, (D,)
        self.squares = xp.zeros((width, width), **wide)  # C without the rows below, (D, D)
        self.squares_fade = 1.0  # what C has yet to be multiplied by
        self.weight = 0.0  # w
        self.rows = xp.zeros((_ROWS, width), **wide)  # x of the latest images
        self.row_weights = xp.zeros(_ROWS, **wide)  # their sum_k r_k; may be negative
        self.n_rows = 0
        self.squares_empty = True  # whether all of C is still in the rows

    def see(self, x: Array, gap: Array) -> None:
        """One image more, with feature ``x`` (D,) and ``gap`` (D,) between it and the text."""
        xp = namespace(x)
        self.n_images += 1.0
        self.total += xp.astype(x, xp.float64)
        self.gaps += xp.astype(gap, xp.float64)

    def count(self, x: Array, r: Array, sign: float = 1.0) -> Array:
        """Let ``x`` (D,) count ``r`` (K,), or undo that with ``sign`` -1; the classes concerned."""
        xp = namespace(x)
        touched = xp.nonzero(r)[0]
        share = sign * r[touched]
        self.counts[touched] += (wide := xp.astype(share, xp.float64))
        self.count_squares[touched] += math.copysign(1.0, sign) * wide * wide
        self.sums[touched, :] += share[:, None] * x[None, :]
        if sign < 0:
            self._drop_traces()
        self._add_square(xp.astype(x, xp.float64), float(xp.sum(share)))
        return touched

    def fade(self, factor: float) -> None:
        """Let all images so far count less, by ``factor``."""
        self.n_images *= factor
        self.weight *= factor
        self.squares_fade *= factor
        self.count_squares *= factor * factor
        for array in (self.counts, self.sums, self.total, self.gaps, self.row_weights):
            array *= factor
        self._drop_traces()

    def inverse_scatter(self, ridge: float) -> Array | None:
        """(S + ridge I)^-1, (D, D); None if the factorisation fails."""
        xp, (_, width) = namespace(self.sums), self.sums.shape
        known = xp.nonzero(self.counts)[0]
        sums, counts = xp.astype(self.sums[known, :], xp.float64), self.counts[known]
        if self.squares_empty and 2 * (self.n_rows + counts.shape[0]) < width:
            rows = xp.concat([self.rows[: self.n_rows, :], sums])
            weights = xp.concat([self.row_weights[: self.n_rows], -1.0 / counts])
            return inverse_from_rows(rows, weights, ridge)
        self._fold()
        return inverse(self.squares - (sums.T / counts) @ sums, ridge)

    @property
    def typical_count(self) -> float:
        """sum N^2 / sum N: how many images are behind the class of a typical image."""
        counts = self.counts
        return float(counts @ counts) / float(namespace(counts).sum(counts))

    def anchor_error(self, anchors: Array, precision: Array) -> float:
        """How far ``anchors`` (K, D) lie from class means beyond what sampling explains.

        The mean of (m_k - a_k) . P (m_k - a_k) - D V_k / N_k^2 with weights N_k, over the classes
        with more than one image; at least 0.
        """
        xp, width = namespace(self.sums), self.sums.shape[1]
        known = xp.nonzero(self.counts > 1.0)[0]
        if known.shape[0] == 0:
            return 0.0
        counts = self.counts[known]
        means = self.sums[known, :] / xp.astype(counts, self.sums.dtype)[:, None]
        off = means - anchors[known, :]
        form = xp.astype(xp.sum((off @ precision) * off, axis=1), xp.float64)
        sampling = xp.clip(self.count_squares[known] / (counts * counts), max=1.0)
        return max(0.0, float(counts @ (form - width * sampling)) / float(xp.sum(counts)))

    def remove_class(self, index: int) -> None:
        """Forget a class; the spread of its images around their mean stays in the scatter."""
        xp = namespace(self.sums)
        count = float(self.counts[index])
        if count > 0.0:  # S keeps its part of the class, and so do the degrees of freedom
            self._add_square(xp.astype(self.sums[index, :], xp.float64), -1.0 / count)
            self.weight += 1.0 / count - count / (count + 1.0)
        super().remove_class(index)

    def _is_sound(self) -> bool:
        xp = namespace(self.sums)
        return (
            0 <= self.n_rows <= self.rows.shape[0]
            and self.n_images >= 0.0
            and bool(xp.all((self.counts == 0.0) | (self.counts > _LEAST)))
            and bool(xp.all(self.count_squares >= 0.0))
            and bool(xp.all(self.row_weights[: self.n_rows] != 0.0))
        )

    def _add_square(self, row: Array, weight: float) -> None:
        """C += weight row row^T and w += weight."""
        if weight == 0.0:
            return
        if self.n_rows == self.rows.shape[0]:
            self._fold()
        self.rows[self.n_rows, :], self.row_weights[self.n_rows] = row, weight
        self.n_rows += 1
        self.weight += weight

    def _fold(self) -> None:
        """Add the waiting rows to C."""
        rows, weights = self.rows[: self.n_rows, :], self.row_weights[: self.n_rows]
        if self.squares_fade != 1.0:
            self.squares *= self.squares_fade
        self.squares += (rows.T * weights) @ rows
        self.squares_fade, self.squares_empty, self.n_rows = 1.0, False, 0

    def _drop_traces(self) -> None:
        """Empty the classes whose counts are down to rounding errors."""
        gone = self.counts < _TRACE
        self.counts[gone] = 0.0
        self.count_squares[gone | (self.count_squares < 0.0)] = 0.0
        self.sums[gone, :] = 0.0


def spread(counts: Array) -> float:
    """The number of classes in evidence over the number of classes in question, in (0, 1].

    Both are Hill numbers of ``counts`` (K,), of order 1 and 1/2, so that a class which no image
    resembles does not count: exp(H(q)) / (sum of sqrt(q_k))^2 with q = counts / sum of counts.
    """
    xp = namespace(counts)
    total = float(xp.sum(counts))
    if total <= 0.0:
        return 1.0
    q = counts / total
    return min(1.0, math.exp(float(entropy(q))) / float(xp.sum(xp.sqrt(q))) ** 2)


@dataclass(frozen=True, slots=True, eq=False)
class Remembered:
    """An image that was learnt from."""

    place: int
    feature: Array  # (D,)
    counted: Array  # (K,), what it counted for each class
    age: int  # images learnt since


class RecentImages(Stateful):
    """The latest ``size`` images in a ring: feature, counts per class and id."""

    _columns = ("counted",)

    def __init__(self, text: Array, size: int) -> None:
        xp, (n_classes, width) = namespace(text), text.shape
        place = {"dtype": text.dtype, "device": text.device}
        self.features = xp.zeros((size, width), **place)  # (size, D)
        self.counted = xp.zeros((size, n_classes), **place)  # (size, K)
        self.arrivals = np.zeros(size, dtype=np.int64)  # zero for an empty slot
        self.ids: list[SampleId | None] = [None] * size
        self.n_images = 0

    def add(self, feature: Array, counted: Array, sample_id: SampleId) -> None:
        """Remember one image in place of the oldest."""
        self.n_images += 1
        if not self.ids:
            return
        place = (self.n_images - 1) % len(self.ids)
        self.features[place, :], self.counted[place, :] = feature, counted
        self.arrivals[place], self.ids[place] = self.n_images, sample_id

    def find(self, sample_id: SampleId) -> Remembered | None:
        """The latest image of that id, if it is still remembered."""
        places = [i for i, each in enumerate(self.ids) if each == sample_id and self.arrivals[i]]
        if not places:
            return None
        place = max(places, key=lambda i: int(self.arrivals[i]))
        age = self.n_images - int(self.arrivals[place])
        return Remembered(place, self.features[place, :], self.counted[place, :], age)

    def _is_sound(self) -> bool:
        return (
            len(self.ids) == self.features.shape[0]
            and bool(((self.arrivals >= 0) & (self.arrivals <= self.n_images)).all())
            and not any(isinstance(each, list) for each in self.ids)
        )


class Shifts(Stateful):
    """A linear shift of the logits, W c for an image with c = x - mean, learnt from corrections."""

    _rows = ("rows",)

    def __init__(self, text: Array) -> None:
        """No correction yet, for classes with the text features ``text`` (K, D)."""
        self.rows = namespace(text).zeros_like(text)  # W, (K, D)
        self.n_steps = 0

    def learn(self, logits: Array, label: int, c: Array, margin: float) -> None:
        """The least change of W that puts ``label`` ahead of any other class by ``margin``.

        Row ``label`` gains as much as the row of the strongest other class loses: a
        passive-aggressive step.
        """
        own, length = float(logits[label]), float(c @ c)
        logits[label] = -math.inf
        other = int(namespace(logits).argmax(logits))
        lacking = float(logits[other]) + margin - own
        if lacking > 0.0 and length > _SAME:
            step = (0.5 * lacking / length) * c
            self.rows[label, :] += step
            self.rows[other, :] -= step
        self.n_steps += 1
