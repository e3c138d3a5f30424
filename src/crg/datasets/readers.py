"""Readers of the layouts that CoOp, TPT, TDA and DPE expect; none of them opens an image.

============ ===========================================================================
``split``    CoOp's JSON file: {"train": [[path, label, class name], ...], "val", "test"}
``variants`` FGVC-Aircraft's text lists: variants.txt and images_variant_test.txt
``wnid``     a folder per class named like n01440764, and classnames.txt with "wnid name"
``numbered`` a folder per class named 0, 1, ... by the line of the class in classnames.txt
============ ===========================================================================

Images come in the order of the list, or by class and then by name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from crg.datasets.catalog import DatasetEntry
from crg.datasets.layout import (
    WNID,
    class_folders_place,
    dataset_folder,
    image_folder,
    image_names,
    names_path,
    split_path,
    subfolders,
)
from crg.images.image_set import ImageSet
from crg.types import InputError, parsed_json

Row: TypeAlias = tuple[str, int]  # path below the folder of the images, label
_AGAIN = "get the file again and leave it as it is."


def read_split_file(path: Path) -> tuple[tuple[str, ...], dict[str, list[Row]]]:
    """The class names by label, collected from all splits, and the rows of each split."""
    try:
        content = parsed_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a split file ({_line(error)}): {_AGAIN}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a split file (it has no train, val and test): {_AGAIN}")
    lists = {split: rows for split, rows in content.items() if isinstance(rows, list)}
    for row in itertools.chain.from_iterable(lists.values()):
        match row:
            case [str(), int(label), str()] if label >= 0 and not isinstance(label, bool):
                continue
        raise InputError(f"{path} has {row!r} for [path, label, class name]: {_AGAIN}")
    splits = {split: [(row[0], row[1]) for row in rows] for split, rows in lists.items()}
    named = ((row[1], row[2]) for rows in lists.values() for row in rows)
    return _names_by_label(path, named), splits


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


def _names_by_label(path: Path, named: Iterable[tuple[int, str]]) -> tuple[str, ...]:
    names: dict[int, str] = {}
    for label, name in named:
        if names.setdefault(label, name) != name:
            two = f"{names[label]} and {name}"
            raise InputError(f"{path} has two names for label {label}, {two}: {_AGAIN}")
    if not names or max(names) != len(names) - 1:
        raise InputError(f"{path} does not use every label from 0 on: {_AGAIN}")
    return tuple(names[label] for label in range(len(names)))


def _line(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split()).rstrip(".")


def read_entry(entry: DatasetEntry, root: Path, split: str = "test") -> ImageSet:
    """The images of one split of a catalogued dataset."""
    return _READERS[entry.reader](entry, root, split)


def _read_split_file(entry: DatasetEntry, root: Path, split: str) -> ImageSet:
    folder = dataset_folder(entry, root)
    class_names, splits = read_split_file(split_path(entry, folder, root))
    rows = splits.get(split)
    if not rows:
        raise _no_split(entry, split, [name for name, some in splits.items() if some])
    images = image_folder(entry, folder, [name for name, _ in rows])
    names = [entry.renamed.get(name, name) for name in class_names]
    return _image_set(entry, split, images, names, rows)


def _read_variants(entry: DatasetEntry, root: Path, split: str) -> ImageSet:
    folder = dataset_folder(entry, root)
    listing = folder / f"images_variant_{split}.txt"
    if not listing.is_file() and split != "test":
        raise _no_split(entry, split, entry.splits)
    names = read_lines(folder / "variants.txt")
    rows = []
    for line in read_lines(listing):
        stem, _, name = line.partition(" ")
        if name not in names:
            raise InputError(
                f"{listing} names the variant {name!r}, which variants.txt lacks: "
                "extract the archive again."
            )
        rows.append((f"{stem}.jpg", names.index(name)))
    images = image_folder(entry, folder, [name for name, _ in rows])
    return _image_set(entry, split, images, names, rows)


def _read_wnid_folders(entry: DatasetEntry, root: Path, split: str) -> ImageSet:
    images, names = _class_folders(entry, root, split)
    found = [name for name in subfolders(images) if WNID.fullmatch(name)]
    strangers = [wnid for wnid in found if wnid not in names]
    if strangers:
        raise InputError(
            f"classnames.txt does not fit the folders in {images} ({strangers[0]} is not in it): "
            f"get it from {entry.names_url}."
        )
    wnids = found if entry.subset else list(names)
    rows = _folder_rows(images, wnids)
    return _image_set(entry, split, images, [names[wnid] for wnid in wnids], rows)


def _read_numbered_folders(entry: DatasetEntry, root: Path, split: str) -> ImageSet:
    images, names = _class_folders(entry, root, split)
    numbers = [int(name) for name in subfolders(images) if name.isdecimal()]
    if max(numbers) >= len(names):
        raise InputError(
            f"The folders in {images} are not 0 to {len(names) - 1}, one for each line of "
            f"classnames.txt: get both again, from {entry.source} and {entry.names_url}."
        )
    rows = _folder_rows(images, [str(number) for number in range(len(names))])
    return _image_set(entry, split, images, list(names.values()), rows)


_READERS: dict[str, Callable[[DatasetEntry, Path, str], ImageSet]] = {
    "split": _read_split_file,
    "variants": _read_variants,
    "wnid": _read_wnid_folders,
    "numbered": _read_numbered_folders,
}


def _class_folders(entry: DatasetEntry, root: Path, split: str) -> tuple[Path, dict[str, str]]:
    if split not in entry.splits:
        raise _no_split(entry, split, entry.splits)
    folder = dataset_folder(entry, root)
    images = class_folders_place(entry, folder, split)
    return images, read_class_names(names_path(entry, folder, root))


def _folder_rows(images: Path, folders: Sequence[str]) -> list[Row]:
    return [
        (f"{folder}/{name}", label)
        for label, folder in enumerate(folders)
        for name in image_names(images / folder)
    ]


def _image_set(
    entry: DatasetEntry, split: str, images: Path, names: Sequence[str], rows: Sequence[Row]
) -> ImageSet:
    ids = tuple(name for name, _ in rows)
    if len(set(ids)) != len(ids):
        twice = next(name for place, name in enumerate(ids) if name in ids[:place])
        raise InputError(
            f"{entry.title} lists {twice} twice in its split {split!r}: get the list again."
        )
    return ImageSet(
        name=entry.name_of(split),
        class_names=tuple(names),
        templates=entry.templates,
        ids=ids,
        sources=tuple(images / name for name in ids),
        labels=tuple(label for _, label in rows),
    )


def _no_split(entry: DatasetEntry, split: str, there_are: Iterable[str]) -> InputError:
    return InputError(f"{entry.title} has no split {split!r}: choose {' or '.join(there_are)}.")
