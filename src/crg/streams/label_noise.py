"""Injected label noise: a fraction of a cache's insertions gets a wrong class.

It measures what cache errors cost. The fraction is of insertions, not of offers: a queue that is
less full accepts images that the right one would refuse, so equal fractions of offers would hurt
a small cache more than a large one. The seed and the name of the image decide, alike in every
process, and insertions so far decide how likely a hit is. Evaluation sets it up; a method neither
knows of it nor sees a label.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from crg.types import SampleId


class LabelNoise:
    """The ``filing`` of a cache by which a ``fraction`` of its insertions goes to a wrong class.

    The fraction of hits among insertions is never further from it than one insertion, unless the
    wrong queues refuse everything.

    ``truth`` has the true class of each image, -1 for one of no class; it may be empty. The
    wrong class is any, with equal chances, that is neither the true one nor the one that the
    method would choose; where there is no such class, the method's choice stays, which is wrong.
    """

    def __init__(
        self, fraction: float, truth: Mapping[SampleId, int], n_classes: int, seed: int
    ) -> None:
        self.fraction = fraction
        self.insertions = 0  # images that found a place in the cache
        self.mislabelled = 0  # those of them that got a wrong class on purpose
        self._truth, self._n_classes, self._seed = truth, n_classes, seed
        self._is_hit = False  # whether the image that is being filed was given a wrong class

    def filed_under(self, label: int, sample_id: SampleId) -> int:
        """The class for an image that the method takes for one of class ``label``.

        >>> LabelNoise(1.0, {"photo": 0}, n_classes=3, seed=0).filed_under(1, "photo")
        2
        """
        digest = hashlib.blake2b(f"{self._seed} {sample_id!r}".encode(), digest_size=16).digest()
        # two numbers in [0, 1) that are the same in any process
        chance, choice = (
            (int.from_bytes(half) >> 11) * 2.0**-53 for half in (digest[:8], digest[8:])
        )
        # hits that are missing so far, with this image; a whole one is made up for at once
        missing = self.fraction * (self.insertions + 1) - self.mislabelled
        wrong = label if chance >= missing else self._wrong(label, sample_id, choice)
        self._is_hit = wrong != label
        return wrong

    def was_kept(self, sample_id: SampleId) -> None:
        """Count the image that was filed last."""
        self.insertions += 1
        self.mislabelled += self._is_hit

    def __deepcopy__(self, memo: dict[int, Any]) -> LabelNoise:
        """Copies of a method share what counts its label noise."""
        return self

    def as_record(self) -> dict[str, Any]:
        """Plain values for the metrics of a run."""
        return {"insertions": self.insertions, "mislabelled": self.mislabelled}

    def _wrong(self, label: int, sample_id: SampleId, choice: float) -> int:
        shut = sorted({label, self._truth.get(sample_id, label)} - {-1})
        n_open = self._n_classes - len(shut)
        if n_open == 0:
            return label
        wrong = min(int(choice * n_open), n_open - 1)
        for each in shut:
            wrong += wrong >= each  # step over the classes that it must not be
        return wrong
