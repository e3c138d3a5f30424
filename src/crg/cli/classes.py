"""Class names as people give them: in one text, or in a file."""

from __future__ import annotations

import csv
from pathlib import Path

from crg.types import InputError


def class_names(text: str | None, file: Path | None) -> tuple[str, ...] | None:
    """The names of ``--classes`` or ``--classes-file``; None if neither is given."""
    if text is not None and file is not None:
        raise InputError("The classes are given twice: use --classes or --classes-file.")
    if text is not None:
        [names] = csv.reader([text], skipinitialspace=True)  # a name may hold a comma in quotes
        return tuple(name.strip() for name in names)
    return None if file is None else _read(file)


def _read(file: Path) -> tuple[str, ...]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file} cannot be read ({error}): give a text file in UTF-8 with one class per line."
        ) from None
    names = tuple(line.strip() for line in lines if line.strip())
    if not names:
        raise InputError(f"{file} names no class: write one per line.")
    return names
