"""Images of one's own in a folder per class."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from crg.datasets.base import ImageSet
from crg.datasets.places import image_names, subfolders, unreadable_folder
from crg.images import IMAGE_SUFFIXES, shown
from crg.types import InputError

TEMPLATES = ("a photo of a {}.",)  # for classes of which nothing more is known


def read_folder(folder: Path) -> ImageSet:
    """A folder per class; images may lie deeper, hidden files are left out."""
    names = subfolders(folder)
    if not names:
        what = "images but no folder" if image_names(folder) else "neither folders nor images"
        raise InputError(
            f"{shown(folder)} holds {what}: make one folder per class, "
            "or list the images in a CSV file."
        )
    ids: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        found = [path for path in files_below(folder / name) if is_image_name(path)]
        if not found:
            raise InputError(
                f"{shown(folder / name)} holds no image: put some there or take the folder away."
            )
        ids += [f"{name}/{path}" for path in found]
        labels += [label] * len(found)
    return ImageSet(
        name=folder.resolve().name,
        class_names=tuple(names),
        templates=TEMPLATES,
        ids=tuple(ids),
        sources=tuple(folder / each for each in ids),
        labels=tuple(labels),
    )


def count_ignored(folder: Path) -> int:
    """How many visible files below a folder are no images or in no class."""
    names = list(files_below(folder))
    return sum("/" not in name or not is_image_name(name) for name in names)


def is_image_name(name: str) -> bool:
    """Whether the ending of a file's name is one of an image."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def files_below(folder: Path) -> Iterator[str]:
    """Paths of the visible files below a folder, sorted, with forward slashes."""
    seen: set[str] = set()  # a link may point to a folder above it
    for place, folders, files in os.walk(folder, onerror=_refuse, followlinks=True):
        real = os.path.realpath(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        for name in sorted(files):
            if not name.startswith("."):
                yield Path(place, name).relative_to(folder).as_posix()


def _refuse(error: OSError) -> None:
    raise unreadable_folder(error)
