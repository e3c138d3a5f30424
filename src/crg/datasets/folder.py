"""Your own images: in a folder per class, or in a table (CSV, TSV) with the columns path and label.

Class names are sorted, so that they do not depend on the order of the rows of a table.
"""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

from crg.extras import first_line
from crg.images.image_set import ImageSet
from crg.images.reading import IMAGE_SUFFIXES, shown
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
    rows: list[tuple[str, int]] = []
    for label, name in enumerate(names):
        found = [path for path in files_below(folder / name) if is_image_name(path)]
        if not found:
            raise InputError(f"{shown(folder / name)} holds no image: add some or remove it.")
        rows += [(f"{name}/{path}", label) for path in found]
    return image_set(folder.resolve().name, names, TEMPLATES, folder, rows)


def image_set(
    name: str,
    class_names: Iterable[str],
    templates: tuple[str, ...],
    base: Path,
    rows: Sequence[tuple[str, int | None]],
) -> ImageSet:
    """The images at the paths of ``rows`` below ``base``, with their labels, of all or of none."""
    labels = tuple(label for _, label in rows if label is not None)
    return ImageSet(
        name=name,
        class_names=tuple(class_names),
        templates=templates,
        ids=tuple(path for path, _ in rows),
        sources=tuple(base / path for path, _ in rows),
        labels=labels or None,
    )


def subfolders(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted, without hidden ones."""
    return [each.name for each in _visible(folder) if each.is_dir()]


def image_names(folder: Path) -> list[str]:
    """Names of the images in a folder, sorted, without hidden ones."""
    return [each.name for each in _visible(folder) if is_image_name(each.name)]


def is_image_name(name: str) -> bool:
    """Whether the ending of a file's name is one of an image."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def refuse_folder(error: OSError) -> NoReturn:
    """Refuse a folder that cannot be listed."""
    raise InputError(
        f"The folder {shown(error.filename)} cannot be read ({error.strerror}): "
        "ask for permission to read it."
    ) from None


def _visible(folder: Path) -> Iterable[os.DirEntry[str]]:
    if not folder.is_dir():
        return []
    try:
        with os.scandir(folder) as found:
            visible = [each for each in found if not each.name.startswith(".")]
    except OSError as error:
        refuse_folder(error)
    return sorted(visible, key=lambda each: each.name)


def count_ignored(folder: Path) -> int:
    """How many visible files below a folder are not images or in no class."""
    names = list(files_below(folder))
    return sum("/" not in name or not is_image_name(name) for name in names)


def files_below(
    folder: Path, on_error: Callable[[OSError], object] = refuse_folder
) -> Iterator[str]:
    """Paths of the visible files below a folder, sorted, with forward slashes."""
    seen: set[str] = set()  # a link may point to a folder above it
    for place, folders, files in os.walk(folder, onerror=on_error, followlinks=True):
        real = os.path.realpath(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        for name in sorted(files):
            if not name.startswith("."):
                yield Path(place, name).relative_to(folder).as_posix()


def read_lines(path: Path, remedy: str) -> list[str]:
    """The lines of a text file without those that are blank."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InputError(f"{shown(path)} cannot be read ({why}): {remedy}") from None
    return [line.strip() for line in lines if line.strip()]


TABLE_SUFFIXES = {".csv": ",", ".tsv": "\t"}
_Row: TypeAlias = tuple[int, str, str | None]  # line, path, label


def read_table(table: Path, root: Path | None = None) -> ImageSet:
    """The images of a CSV or TSV file; paths are relative to it, or to ``root`` if given."""
    rows = _rows(table)
    base = root if root is not None else table.parent
    _check_files(table, base, rows)
    names = sorted({label for _, _, label in rows if label is not None})
    numbers = {name: number for number, name in enumerate(names)}
    numbered = [(path, None if label is None else numbers[label]) for _, path, label in rows]
    return image_set(table.stem, names, TEMPLATES, base, numbered)


def _rows(table: Path) -> list[_Row]:
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            mark = TABLE_SUFFIXES.get(table.suffix.lower(), ",")
            reader = csv.reader(file, delimiter=mark, strict=True)
            header = [name.strip().lower() for name in next(reader, [])]
            lines = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{shown(table)} cannot be read ({first_line(error)}): give a table in UTF-8 with the "
            "columns path and label."
        ) from None
    if "path" not in header:
        raise InputError(
            f"{shown(table)} has no column path: begin it with a line that names its columns, "
            "such as path,label."
        )
    if not lines:
        raise InputError(f"{shown(table)} lists no images: write one line for each.")
    return [_row(table, header, line, cells) for line, cells in lines]


def _row(table: Path, header: list[str], line: int, cells: list[str]) -> _Row:
    if len(cells) > len(header):
        raise InputError(
            f"{shown(table)} has {len(cells)} cells in line {line} but {len(header)} columns: "
            "put what contains the separator into double quotes."
        )
    values = dict(itertools.zip_longest(header, map(str.strip, cells), fillvalue=""))
    for column in ("path", "label"):
        if values.get(column) == "":
            raise InputError(
                f"{shown(table)} has no {column} in line {line}: fill it in or delete the line."
            )
    return line, Path(values["path"]).as_posix(), values.get("label")


def _check_files(table: Path, base: Path, rows: list[_Row]) -> None:
    first: dict[str, int] = {}
    for line, path, _ in rows:
        if path in first:
            raise InputError(
                f"{shown(table)} lists {shown(path)} in line {first[path]} and again "
                f"in line {line}: keep one of the two."
            )
        first[path] = line
    missing = [path for path in first if not os.path.isfile(base / path)]
    if missing:
        count = "an image that does" if len(missing) == 1 else f"{len(missing)} images that do"
        raise InputError(
            f"{shown(table)} lists {count} not exist (first {shown(missing[0])} in line "
            f"{first[missing[0]]}): paths are relative to {shown(base)}."
        )
