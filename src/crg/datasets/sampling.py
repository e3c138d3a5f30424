"""Which pictures are drawn when not all are wanted, and a hash by which others can check it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Sequence

from crg.datasets.base import PictureSet
from crg.types import InputError


def drawn_indices(total: int, limit: int, seed: int = 0) -> tuple[int, ...]:
    """``limit`` of ``total`` indices at random, without repetition, in rising order.

    Those whose sha256 of "seed:index" is smallest: the same with every version of every library,
    and a smaller draw is part of a larger one.

    >>> drawn_indices(10, 3)
    (4, 7, 9)
    """
    return tuple(sorted(_ranked(total, seed)[:limit]))


def indices_sha256(indices: Sequence[int]) -> str:
    """The sha256 of the indices in decimal, joined by commas."""
    return hashlib.sha256(",".join(map(str, indices)).encode()).hexdigest()


def drawn(pictures: PictureSet, limit: int | None, seed: int = 0) -> PictureSet:
    """The set itself, or ``limit`` pictures of it at random in their old order."""
    if limit is None:
        return pictures
    if limit < 1:
        raise InputError(f"The limit is {limit}: give a number of pictures above zero.")
    if limit >= len(pictures):
        return pictures
    return _part(pictures, drawn_indices(len(pictures), limit, seed))


def drawn_per_class(pictures: PictureSet, shots: int | None, seed: int = 0) -> PictureSet:
    """The set itself, or at most ``shots`` pictures of each class at random.

    First comes one of each class, then the second of each, and so on: a smaller draw is the
    beginning of a larger one, and whoever takes the first few of a class has a random draw.
    """
    if shots is None:
        return pictures
    if shots < 1:
        raise InputError(f"The number of shots is {shots}: give one above zero.")
    if pictures.labels is None:
        raise InputError(
            f"{pictures.name} has no labels to draw shots by: leave the shots out, or give a "
            "labelled dataset."
        )
    seen: Counter[int] = Counter()
    chosen = []
    for row in _ranked(len(pictures), seed):
        label = pictures.labels[row]
        if seen[label] < shots:
            chosen.append((seen[label], label, row))
        seen[label] += 1
    return _part(pictures, [row for _, _, row in sorted(chosen)])


def _ranked(total: int, seed: int) -> list[int]:
    return sorted(range(total), key=lambda i: hashlib.sha256(f"{seed}:{i}".encode()).digest())


def _part(pictures: PictureSet, rows: Sequence[int]) -> PictureSet:
    labels = pictures.labels
    return dataclasses.replace(
        pictures,
        ids=tuple(pictures.ids[i] for i in rows),
        sources=tuple(pictures.sources[i] for i in rows),
        labels=None if labels is None else tuple(labels[i] for i in rows),
    )
