"""Recent images and what they counted for, so that a correction can undo it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from crg.parts.state import Stateful
from crg.types import Array, SampleId, namespace


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


_SAME = 1e-6  # squared distance below which an image counts as the mean of all


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
