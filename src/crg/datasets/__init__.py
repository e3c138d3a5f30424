"""Sets of images: the benchmarks of the field, folders of one's own, and rendered shapes.

A random part of a set is the same with every version of every library; its hash lets others check.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crg.datasets.catalog import find_entry, get_entry
from crg.types import InputError

if TYPE_CHECKING:
    from crg.images.image_set import ImageSet

__all__ = ["drawn_indices", "indices_sha256", "load_dataset"]

SHAPES = "shapes"
SHAPES_COUNT = 1000  # images that are rendered unless a limit is given


def load_dataset(
    name_or_path: str,
    *,
    root: Path | None = None,
    split: str = "test",
    limit: int | None = None,
    shots: int | None = None,
    seed: int = 0,
) -> ImageSet:
    """The images of a catalogued dataset, of a folder or table of one's own, or shapes.

    ``limit`` draws that many at random by ``seed``; of shapes that many are rendered. ``shots``
    draws at most that many of each class instead.

    >>> len(load_dataset("shapes:fog:3", limit=20))
    20
    """
    if limit is not None and shots is not None:
        raise InputError("There are a limit and a number of shots: give one of the two.")
    is_shapes = name_or_path.partition(":")[0] == SHAPES
    entry = None if is_shapes else find_entry(name_or_path)
    if entry is None and split != "test":
        raise InputError(f"{name_or_path} has no split {split!r}: leave the split out.")
    if limit is not None and limit < 1:
        raise InputError(f"The limit is {limit}: give a number of images above zero.")
    if is_shapes:
        images = _shapes(name_or_path, limit, seed)
    elif entry is None:
        images = _own(Path(name_or_path), root)
    elif root is not None:
        # What reads images is imported here: the catalogue alone is needed far more often.
        from crg.datasets.readers import read_dataset

        images = read_dataset(entry, Path(root), split)
    else:
        raise InputError(
            f"{entry.title} is looked for below a root: give the folder that holds "
            f"{entry.folders[0]} with --root (for a folder of your own write ./{name_or_path})."
        )
    if limit is not None and limit < len(images):
        images = images.part(drawn_indices(len(images), limit, seed))
    return _drawn_per_class(images, shots, seed)


def _own(path: Path, root: Path | None) -> ImageSet:
    from crg.datasets.folder import TABLE_SUFFIXES, read_folder, read_table
    from crg.images.reading import shown

    if os.path.isdir(path):
        if root is not None:
            raise InputError(
                f"{shown(path)} is a folder and needs no root: leave the root out, or give a name "
                "that crg datasets lists."
            )
        return read_folder(path)
    if os.path.isfile(path) and path.suffix.lower() in TABLE_SUFFIXES:
        return read_table(path, root)
    if os.path.isfile(path):
        raise InputError(
            f"{shown(path)} is not a set of images: give a folder with one folder per class, "
            "or a .csv file with the columns path and label."
        )
    if len(path.parts) == 1 and not path.suffix:
        get_entry(str(path))  # says what it may have meant
    raise InputError(f"{shown(path)} does not exist: check the path or see crg datasets for names.")


def _shapes(name: str, limit: int | None, seed: int) -> ImageSet:
    from crg.shapes import CLEAN, shape_images

    _, *parts = name.split(":")
    if parts and parts[0] == CLEAN:
        if len(parts) > 1:
            raise InputError(f"{name!r} has a severity but no shift: write {SHAPES}:{CLEAN}.")
        parts = []
    if len(parts) > 2 or (len(parts) == 2 and not parts[1].isdecimal()):
        raise InputError(f"{name!r} names no shapes: write shapes:clean or shapes:SHIFT:SEVERITY.")
    shift = parts[0] if parts else None
    severity = int(parts[1]) if len(parts) == 2 else 1
    return shape_images(shift, severity, SHAPES_COUNT if limit is None else limit, seed)


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


def _drawn_per_class(images: ImageSet, shots: int | None, seed: int = 0) -> ImageSet:
    """The set itself, or at most ``shots`` images of each class at random.

    First comes one of each class, then the second of each, and so on: a smaller draw is the
    beginning of a larger one, and the first few images of a class are a random draw.
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
