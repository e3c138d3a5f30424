"""The text files of the datasets: CoOp's split files, ImageNet's class names, plain lists."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from crg.datasets.places import WNID
from crg.types import InputError

Row: TypeAlias = tuple[str, int]  # path below the folder of the images, label
_AGAIN = "get the file again and leave it as it is."


@dataclass(frozen=True)
class SplitFile:
    """CoOp's {"train": [[path, label, class name], ...], "val": ..., "test": ...}."""

    class_names: tuple[str, ...]  # by label
    splits: dict[str, list[Row]]


def read_split_file(path: Path) -> SplitFile:
    """All splits with the class names, which are collected from all of them."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a split file ({_line(error)}): {_AGAIN}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a split file (it has no train, val and test): {_AGAIN}")
    lists = {split: rows for split, rows in content.items() if isinstance(rows, list)}
    for rows in lists.values():
        for row in rows:
            _check_row(path, row)
    splits = {split: [(row[0], row[1]) for row in rows] for split, rows in lists.items()}
    named = ((row[1], row[2]) for rows in lists.values() for row in rows)
    return SplitFile(_names_by_label(path, named), splits)


def read_class_names(path: Path) -> dict[str, str]:
    """classnames.txt: the name of each WordNet class, in the order of the file."""
    names: dict[str, str] = {}
    for line in read_lines(path):
        wnid, _, name = line.partition(" ")
        if not WNID.fullmatch(wnid) or not name.strip() or wnid in names:
            raise InputError(
                f"{path} has an odd line {line!r}: write each class once, as in 'n01440764 tench'."
            )
        names[wnid] = name.strip()
    return names


def read_lines(path: Path) -> list[str]:
    """The lines of a text file without those that are blank."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({_line(error)}): {_AGAIN}") from None
    return [line.strip() for line in lines if line.strip()]


def _check_row(path: Path, row: object) -> None:
    match row:
        case [str(), int(label), str()] if label >= 0 and not isinstance(label, bool):
            return
    raise InputError(f"{path} has {row!r} for [path, label, class name]: {_AGAIN}")


def _names_by_label(path: Path, named: Iterable[tuple[int, str]]) -> tuple[str, ...]:
    names: dict[int, str] = {}
    for label, name in named:
        if names.setdefault(label, name) != name:
            raise InputError(f"{path} has two names for label {label}, {names[label]} and {name}: "
                             f"{_AGAIN}")  # fmt: skip
    if not names or max(names) != len(names) - 1:
        raise InputError(f"{path} does not use every label from 0 on: {_AGAIN}")
    return tuple(names[label] for label in range(len(names)))


def _line(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split()).rstrip(".")
