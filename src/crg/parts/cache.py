"""Cache: one priority queue per class that keeps the M most confident images.

Of equal entropies the earlier stays. A queue may start with a seed, the text feature of its
class at infinite entropy, which is the first to go.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from crg.parts.state import Stateful
from crg.resources import FEW, FewShot
from crg.types import Array, InputError, SampleId, Task, like, namespace

_LONGEST = 1.001  # a coordinate of a unit vector, with room for rounding


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One cached image; a seed has no sample id and infinite entropy."""

    feature: Array  # (D,)
    entropy: float
    sample_id: SampleId | None


@dataclass(frozen=True, slots=True, eq=False)
class Insertion:
    """An accepted offer: ``added`` came into queue ``label`` at slot ``place``."""

    label: int
    place: int
    added: Array  # (D,)
    removed: Array | None  # (D,), the entry that had to go
    count: int  # entries in the queue afterwards


class Filing(Protocol):
    """Decides under which class an image is filed, in place of the method's own opinion."""

    def filed_under(self, label: int, sample_id: SampleId) -> int:
        """The queue for an image that the method takes for one of class ``label``."""
        ...

    def was_kept(self, sample_id: SampleId) -> None:
        """The image was put into that queue."""
        ...


def one_class(label: int, weights: Array) -> Array:
    """One for a class and zero for the others, in the form of ``weights`` (K,)."""
    only = namespace(weights).zeros_like(weights)
    only[label] = 1.0
    return only


class Cache(Stateful):
    """Priority queues of size ``size`` for ``n_classes`` classes.

    ``filing`` lets experiments inject label noise: it files images under another class.
    """

    _not_saved = frozenset({"size", "seeded", "filing"})
    _rows = ("features", "entropies", "arrivals", "counts")

    def __init__(self, text: Array, size: int, seeded: bool) -> None:
        """Empty queues, or with the rows of ``text`` (K, D) as seeds."""
        xp = namespace(text)
        n_classes, width = text.shape
        self.size = size
        self.seeded = seeded
        self.filing: Filing | None = None
        self.features = xp.zeros((n_classes, size, width), dtype=text.dtype, device=text.device)
        # Bookkeeping stays on the host, in NumPy, whatever holds the features.
        self.entropies = np.full((n_classes, size), math.inf)
        self.arrivals = np.zeros((n_classes, size), dtype=np.int64)
        self.counts = np.zeros(n_classes, dtype=np.int64)
        self.ids: list[list[SampleId | None]] = [[None] * size for _ in range(n_classes)]
        self.n_offers = 0
        self.n_images = 0
        if seeded:
            self.features[:, 0, :] = text
            self.counts += 1

    @property
    def fill(self) -> float:
        """Fraction of all slots that hold an image."""
        return self.n_images / self.entropies.size

    def offer(
        self, label: int, feature: Array, entropy: float, sample_id: SampleId
    ) -> Insertion | None:
        """Put an image into the queue of ``label``, or as filed, if it is confident enough."""
        label = self.filing.filed_under(label, sample_id) if self.filing else label
        change = self._insert(label, feature, entropy, sample_id)
        if self.filing and change is not None:
            self.filing.was_kept(sample_id)
        return change

    def keep(self, label: int, feature: Array, sample_id: SampleId) -> None:
        """Put an image whose class is known into its queue, at entropy 0; nothing refuses it."""
        self._insert(label, feature, 0.0, sample_id, certain=True)

    def forget(self, sample_id: SampleId, text: Array) -> None:
        """Take an image out of all queues; a seeded queue that is then empty gets its seed back.

        ``text`` (K, D) holds the seeds.
        """
        for label, ids in enumerate(self.ids):
            while sample_id in ids[: int(self.counts[label])]:
                self._drop(label, ids.index(sample_id))
            if self.seeded and self.counts[label] == 0:
                self.features[label, 0, :] = text[label, :]
                self.counts[label] = 1

    def _is_sound(self) -> bool:
        counts = self.counts
        return (
            len(self.ids) == len(counts)
            and all(isinstance(queue, list) and len(queue) == self.size for queue in self.ids)
            and bool(((counts >= int(self.seeded)) & (counts <= self.size)).all())
            and bool((self.arrivals >= 0).all())
            and bool(namespace(self.features).all(abs(self.features) <= _LONGEST))
            and self.n_images <= self.entropies.size
        )

    def _drop(self, label: int, place: int) -> None:
        """Empty a slot by moving the last entry of the queue there."""
        last = int(self.counts[label]) - 1
        for rows in (self.features, self.entropies, self.arrivals):
            rows[label, place, ...] = rows[label, last, ...]
        self.features[label, last, :] = 0.0
        self.entropies[label, last], self.arrivals[label, last] = math.inf, 0
        ids = self.ids[label]
        ids[place], ids[last] = ids[last], None
        self.counts[label] = last
        self.n_images -= 1

    def _insert(
        self, label: int, feature: Array, entropy: float, sample_id: SampleId, certain: bool = False
    ) -> Insertion | None:
        self.n_offers += 1
        count, removed = int(self.counts[label]), None
        if count < self.size:
            place = count
            self.counts[label] = count = count + 1
            self.n_images += 1
        else:
            # The highest entropy; of equal ones the latest arrival.
            queue = zip(self.entropies[label].tolist(), self.arrivals[label].tolist(), strict=True)
            place = max(enumerate(queue), key=lambda item: item[1])[0]
            if entropy >= self.entropies[label, place] and not certain:
                return None
            removed = _copy(self.features[label, place, :])
            self.n_images += self.ids[label][place] is None
        self.features[label, place, :] = feature
        self.entropies[label, place] = entropy
        self.arrivals[label, place] = self.n_offers
        self.ids[label][place] = sample_id
        return Insertion(label, place, feature, removed, count)

    def find(self, sample_id: SampleId) -> Array | None:
        """The feature (D,) of the cached image of that id."""
        for label, ids in enumerate(self.ids):
            if sample_id in ids:
                return _copy(self.features[label, ids.index(sample_id), :])
        return None

    def entries(self, label: int) -> tuple[Entry, ...]:
        """The queue of one class, most confident first."""
        count = int(self.counts[label])
        order = np.lexsort((self.arrivals[label, :count], self.entropies[label, :count]))
        rows, entropies, ids = self.features[label], self.entropies[label].tolist(), self.ids[label]
        return tuple(Entry(_copy(rows[k, :]), entropies[k], ids[k]) for k in order.tolist())

    def mean(self, label: int) -> Array:
        """Mean of the entries of one class (D,); zero while there are none."""
        xp = namespace(self.features)
        count = max(1, int(self.counts[label]))
        return xp.mean(self.features[label, :count, :], axis=0)

    def affinity(self, feature: Array, sharpness: float) -> Array:
        """exp(-beta (1 - f . key)) for each slot of each queue, zero where empty, (K, M)."""
        xp = namespace(feature)
        cosine = self.features @ feature
        filled = xp.asarray(np.arange(self.size) < self.counts[:, None], device=feature.device)
        return xp.where(filled, xp.exp(sharpness * (cosine - 1.0)), xp.zeros_like(cosine))

    def add_class(self, text: Array) -> None:
        """Add one queue, empty or with its seed."""
        super().add_class(text)
        self.entropies[-1], self.counts[-1] = math.inf, int(self.seeded)
        self.features[-1, 0, :] = text if self.seeded else 0.0
        self.ids.append([None] * self.size)

    def remove_class(self, index: int) -> None:
        """Drop one queue, with its images."""
        self.n_images -= sum(not math.isinf(h) for h in self.entropies[index].tolist())
        super().remove_class(index)
        del self.ids[index]


def _copy(row: Array) -> Array:
    return namespace(row).asarray(row, copy=True)


def labelled_queues(task: Task, shots: int) -> Cache:
    """A queue per class with its first ``shots`` labelled images, or with all for 0.

    They come from ``Task.resources``, which is saved with the task and follows when classes are
    removed, so a method need not save them.
    """
    few: FewShot = task.resources[FEW]
    if not few.labels:  # the last class that had any was removed
        return Cache(task.text_features, 1, seeded=False)
    _check_fit(few, task)
    chosen = few.shots(shots) if shots else few
    rows = like(chosen.features, task.text_features)
    queues = Cache(task.text_features, max(Counter(chosen.labels).values()), seeded=False)
    for row, label in enumerate(chosen.labels):
        queues.offer(label, rows[row, :], 0.0, row)
    return queues


def _check_fit(few: FewShot, task: Task) -> None:
    width, largest = few.features.shape[-1], task.n_classes - 1
    if width != task.width:
        raise InputError(
            f"The labelled images are {width} wide but the text features {task.width}: "
            "encode both with the same model."
        )
    odd = [label for label in few.labels if not 0 <= label <= largest]
    if odd:
        raise InputError(
            f"A labelled image has label {odd[0]} but there are {task.n_classes} classes: "
            f"number them from 0 to {largest}."
        )
