"""Which images are drawn when not all are wanted, and a hash by which others can check it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from crg.images.image_set import ImageSet
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


def drawn(images: ImageSet, limit: int | None, seed: int = 0) -> ImageSet:
    """The set itself, or ``limit`` images of it at random in their old order."""
    if limit is None:
        return images
    if limit < 1:
        raise InputError(f"The limit is {limit}: give a number of images above zero.")
    if limit >= len(images):
        return images
    return images.part(drawn_indices(len(images), limit, seed))


def drawn_per_class(images: ImageSet, shots: int | None, seed: int = 0) -> ImageSet:
    """The set itself, or at most ``shots`` images of each class at random.

    First comes one of each class, then the second of each, and so on: a smaller draw is the
    beginning of a larger one, and whoever takes the first few of a class has a random draw.
    """
    if shots is None:
        return images
    if shots < 1:
        raise InputError(f"The number of shots is {shots}: give one above zero.")
    if images.labels is None:
        raise InputError(
            f"{images.name} has no labels to draw shots by: leave the shots out, or give a "
            "labelled dataset."
        )
    seen: Counter[int] = Counter()
    chosen = []
    for row in _ranked(len(images), seed):
        label = images.labels[row]
        if seen[label] < shots:
            chosen.append((seen[label], label, row))
        seen[label] += 1
    return images.part([row for _, _, row in sorted(chosen)])


def _ranked(total: int, seed: int) -> list[int]:
    return sorted(range(total), key=lambda i: hashlib.sha256(f"{seed}:{i}".encode()).digest())
