"""The stream of files: folders, globs, tables and single files, also as they arrive."""

from __future__ import annotations

import contextlib
import csv
import errno
import glob
import itertools
import math
import os
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path

from crg.datasets.folder import TABLE_SUFFIXES, files_below, is_image_name, read_lines
from crg.types import InputError, printable

STANDARD_INPUT = "-"
LIST_SUFFIX = ".txt"


def list_images(arguments: Iterable[str], gone: Container[str] = ()) -> list[Path]:
    """Every image that the arguments mean, each once, in a fixed order.

    A folder means all images below it, a ``.csv`` or ``.tsv`` file those of its column
    ``path``, a ``.txt`` file those of its lines, a glob whatever it matches, and any other file
    itself. Files that may be ``gone`` by now need not be there.
    """
    found = ([Path(each)] if each in gone else _meant(each) for each in arguments)
    return list(dict.fromkeys(itertools.chain.from_iterable(found)))


def iter_lines(lines: Iterable[str]) -> Iterator[Path]:
    """One path per line, each once, as soon as its line is there."""
    seen = {""}
    for name in (line.rstrip("\r\n") for line in lines):
        if name not in seen:
            seen.add(name)
            yield Path(name)


def _meant(argument: str) -> Sequence[Path]:
    path = Path(argument)
    try:
        path.stat()
    except (OSError, ValueError) as error:
        if is_image_name(argument) and not glob.has_magic(argument):
            return [path]  # one of many, perhaps, and gone meanwhile: its line says so
        if getattr(error, "errno", None) != errno.ENOENT:
            why = getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"{printable(argument[:80])} cannot be read ({why}): check the name."
            ) from None
    if path.is_dir():
        closed: list[str] = []  # folders that may not be listed: reading them says why
        names = files_below(path, lambda error: closed.append(error.filename))
        return [*(path / name for name in names if is_image_name(name)), *map(Path, closed)]
    if path.is_file():
        suffix = path.suffix.lower()
        if suffix == LIST_SUFFIX:
            return [path.parent / name for name in _named(path, "image")]
        return _listed(path, TABLE_SUFFIXES[suffix]) if suffix in TABLE_SUFFIXES else [path]
    if glob.has_magic(argument):
        found = sorted(glob.glob(argument, recursive=True))  # without hidden files
        return [Path(each) for each in found if is_image_name(each)] + _closed(argument)
    if path.exists():  # a pipe, a socket or a device, of which no more is read than its kind
        return [path]
    raise InputError(
        f"{argument} does not exist: give a folder, a glob in quotes, a CSV file, "
        "a list of paths in a .txt file, images, or - for a list on standard input."
    )


def _closed(pattern: str) -> list[Path]:
    """The folders that a glob would have to list but may not: reading them says why."""
    closed, above = list[str](), os.path.dirname(pattern)
    for folder in filter(os.path.isdir, glob.glob(above, recursive=True)):
        next(os.walk(folder, onerror=lambda error: closed.append(error.filename)), None)
    return [*map(Path, sorted(closed)), *(_closed(above) if glob.has_magic(above) else ())]


def _named(file: Path, what: str) -> list[str]:
    """The lines of a text file, each the name of a ``what``."""
    names = read_lines(file, f"give a text file in UTF-8 with one {what} per line.")
    if not names:
        raise InputError(f"{file} names no {what}: write one per line.")
    return names


def read_names(text: str | None) -> tuple[str, ...] | None:
    """The names of ``--classes``, a list or a file with one per line; None if it is not given.

    >>> read_names('cat, "cup, saucer"')
    ('cat', 'cup, saucer')
    """
    if text is None:
        return None
    if "," not in text and (text.endswith(LIST_SUFFIX) or os.path.isfile(text)):
        return tuple(_named(Path(text), "class"))
    try:  # a name may hold a comma in quotes
        [names] = csv.reader([text], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError):
        raise InputError(
            "The list of --classes has a line break or an open quote: separate names by "
            "commas, or write one per line into a file and name that."
        ) from None
    if len(names) == 1:
        raise InputError(
            f"The list of --classes has one name, {text!r}: give at least two, separated by "
            "commas, or a file with one per line."
        )
    return tuple(name.strip() for name in names)


def _listed(table: Path, delimiter: str) -> list[Path]:
    """The column ``path`` of a table; paths are relative to the table's folder."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, delimiter=delimiter, strict=True)
            if "path" not in (rows.fieldnames or ()):
                raise InputError(
                    f"{table} has no column 'path': name the columns in its first line."
                )
            return [table.parent / row["path"] for row in rows if row["path"]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{table} cannot be read ({error}): give a table in UTF-8 with a column 'path'."
        ) from None


def iter_arrivals(
    list_now: Callable[[], Iterable[Path]],
    interval: float = 0.5,
    idle: float = math.inf,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Path | None]:
    """Each image of ``list_now()`` in the order of arrival, for ever; None when none is waiting.

    A place that disappears for a while, such as a folder on a stick, counts as empty.
    A file that has changed since the last look is still being written and has to wait for
    the next one. One that changes after it was given is given again: it may have been taken
    in the middle of a slow copy. After ``idle`` seconds without an image the watch ends.
    """
    before: dict[Path, tuple[int, int]] = {}  # bytes and time of the last change
    given: dict[Path, tuple[int, int]] = {}
    waited = 0.0
    while True:
        now = {}
        with contextlib.suppress(InputError):  # it was there when the watch began
            for path in list_now():
                with contextlib.suppress(OSError):  # it went away again
                    facts = path.stat()
                    now[path] = facts.st_size, facts.st_mtime_ns
        now = {path: stamp for path, stamp in now.items() if given.get(path) != stamp}
        settled = [path for path, stamp in now.items() if before.get(path) == stamp]
        before = now
        for path in sorted(settled, key=lambda path: (now[path][1], path)):
            given[path] = now[path]
            yield path
        if not settled and not now and waited == 0.0:
            yield None
        waited = 0.0 if settled else waited + interval
        if waited > idle:
            return
        sleep(interval)
