"""Which pictures are drawn when not all are wanted, and a hash by which others can check it."""

from __future__ import annotations

import dataclasses
import hashlib
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
    ranked = sorted(range(total), key=lambda i: hashlib.sha256(f"{seed}:{i}".encode()).digest())
    return tuple(sorted(ranked[:limit]))


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
    rows = drawn_indices(len(pictures), limit, seed)
    labels = pictures.labels
    return dataclasses.replace(
        pictures,
        ids=tuple(pictures.ids[i] for i in rows),
        sources=tuple(pictures.sources[i] for i in rows),
        labels=None if labels is None else tuple(labels[i] for i in rows),
    )
