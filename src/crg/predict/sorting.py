"""Sorting: images copied, linked or moved into a folder per class; nothing is overwritten."""

from __future__ import annotations

import contextlib
import filecmp
import glob
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from crg.answer import NONE_OF_THESE
from crg.atomic import make_folder
from crg.images.reading import shown
from crg.types import InputError

By: TypeAlias = Literal["copy", "link", "move"]

UNSURE = "unsure"  # the folder of images without a label
_NO_CLASS: dict[str | None, str] = {"": UNSURE, None: NONE_OF_THESE}
_FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')  # in names, on one system or another
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # by Windows
_LONGEST = 100  # bytes of a folder's name


def folder_names(class_names: Sequence[str]) -> dict[str | None, str]:
    """A folder for each class, distinct and allowed on every system; two for images of none.

    >>> folder_names(["a/b", "a_b", "..", "CON"])
    {'': 'unsure', None: 'none of these', 'a/b': 'a_b', 'a_b': 'a_b 2', '..': '__', 'CON': 'CON_'}
    """
    names, taken = dict(_NO_CLASS), set(_NO_CLASS.values())
    for name in class_names:
        number, folder = 1, _allowed(name)
        while folder.casefold() in taken:
            number += 1
            folder = f"{_allowed(name)} {number}"
        taken.add(folder.casefold())
        names[name] = folder
    return names


def _allowed(name: str) -> str:
    text = _FORBIDDEN.sub("_", name.strip())
    text = text.encode("utf-8", "replace")[:_LONGEST].decode("utf-8", "ignore")
    text = re.sub(r"^\.+|[. ]+$", lambda dots: "_" * len(dots.group()), text)
    return f"{text}_" if _RESERVED.fullmatch(text) else text


class Sorter:
    """Puts images into the folders of their classes, below one folder."""

    def __init__(self, folder: Path, by: By, class_names: Sequence[str]) -> None:
        self.folder, self.by = folder, by
        self._names = folder_names(class_names)

    def place_for(self, path: Path, label: str | None) -> Path:
        """A name that is free, in the folder of ``label``; "" is unsure, None is none of these."""
        folder = self.folder / self._names[label]
        place, number = folder / path.name, 1
        while os.path.lexists(place):
            number += 1
            place = folder / f"{path.stem} {number}{path.suffix}"
        return place

    def put(self, path: Path, place: Path) -> None:
        """Copy, link or move an image to a place that is free."""
        make_folder(place.parent, "--sort-into")
        try:
            if self.by == "link":
                place.symlink_to(path.absolute())
                return
            if self.by == "move":
                with contextlib.suppress(OSError):  # from one disk to another it is copied
                    path.rename(place)
                    return
            _copy(path, place)
            if self.by == "move":
                path.unlink()
        except OSError as error:
            if not os.path.lexists(path):
                return  # someone has removed it since it was read
            raise InputError(
                f"{shown(path)} cannot be put at {shown(place)} ({error.strerror}): make room and "
                "allow writing there, or choose another --by or --sort-into."
            ) from None

    def repair(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Complete the last line of an earlier call: it may have ended before the image was put."""
        line = next((line for line in reversed(lines) if "sorted_to" in line), None)
        if line is None:
            return
        path, place = Path(line["path"]), Path(line["sorted_to"])
        if not os.path.lexists(place) and path.exists():
            self.put(path, place)
        elif self.by == "move" and path.exists() and filecmp.cmp(path, place, shallow=False):
            path.unlink()


def check_apart(folder: Path, arguments: Iterable[str]) -> None:
    """Refuse a folder among the images, from which sorted ones would be read again.

    Images are searched in folders, and in those above a wildcard that stands for folders.
    """
    target = folder.resolve()
    for argument in map(Path, arguments):
        above = argument if argument.is_dir() else argument.parent
        fixed = list(itertools.takewhile(lambda part: not glob.has_magic(part), above.parts))
        given = Path(*fixed).resolve()
        is_searched = argument.is_dir() or len(fixed) < len(above.parts)
        if is_searched and (target.is_relative_to(given) or given.is_relative_to(target)):
            raise InputError(
                f"--sort-into {folder} and the images of {argument} lie in each other, so that "
                "sorted images would be read again: choose a folder beside them."
            )


def _copy(path: Path, place: Path) -> None:
    """Copy a file, whose new name is there only when all of it is."""
    partial = place.with_name(f".{place.name}.partial")
    try:
        shutil.copy2(path, partial)
        partial.replace(place)
    finally:
        partial.unlink(missing_ok=True)
