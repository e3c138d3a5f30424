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
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from crg.datasets.catalog import DatasetEntry
from crg.datasets.folder import image_names, image_set, read_lines, subfolders
from crg.extras import first_line
from crg.images.image_set import ImageSet
from crg.types import InputError, parsed_json

WNID = re.compile(r"n\d{8}")  # the name of a WordNet class, such as n01440764
_NUMBER = re.compile(r"\d+")
_PROBES = 20  # images that are looked for to find the folder that holds them
Row: TypeAlias = tuple[str, int]  # path below the folder of the images, label
_Found: TypeAlias = tuple[Path, Sequence[str], Sequence[Row]]  # folder of the images, class names
_Label: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_AGAIN = "get the file again and leave it as it is."


def read_split_file(path: Path) -> tuple[tuple[str, ...], dict[str, list[Row]]]:
    """The class names by label, collected from all splits, and the rows of each split."""
    try:
        content = parsed_json(path.read_text(encoding="utf-8"))
        splits = msgspec.convert(content, dict[str, list[tuple[str, _Label, str]]])
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} does not list [path, label, class name] for train, val and test "
            f"({first_line(error)}): {_AGAIN}"
        ) from None
    names: dict[int, str] = {}
    for _, label, name in itertools.chain.from_iterable(splits.values()):
        if names.setdefault(label, name) != name:
            two = f"{names[label]} and {name}"
            raise InputError(f"{path} has two names for label {label}, {two}: {_AGAIN}")
    if not names or max(names) != len(names) - 1:
        raise InputError(f"{path} does not use every label from 0 on: {_AGAIN}")
    in_order = tuple(names[label] for label in range(len(names)))
    return in_order, {split: [row[:2] for row in rows] for split, rows in splits.items()}


def read_class_names(path: Path) -> dict[str, str]:
    """classnames.txt: the name of each WordNet class, in the order of the file."""
    names: dict[str, str] = {}
    for line in read_lines(path, _AGAIN):
        wnid, _, name = line.partition(" ")
        if not WNID.fullmatch(wnid) or not name.strip() or wnid in names:
            raise InputError(
                f"{path} has an odd line {line!r}: write each class once, as in 'n01440764 tench'."
            )
        names[wnid] = name.strip()
    return names


def read_dataset(entry: DatasetEntry, root: Path, split: str) -> ImageSet:
    """The images of a split of a dataset below ``root``."""
    if not root.is_dir():
        raise InputError(f"{root} is not a folder: give the folder that holds the datasets.")
    images, names, rows = _READERS[entry.reader](entry, _dataset_folder(entry, root), root, split)
    twice = [name for name, count in Counter(name for name, _ in rows).items() if count > 1]
    if twice:
        raise InputError(f"{entry.title} lists {twice[0]} twice in {split!r}: get the list again.")
    return image_set(entry.name_of(split), names, entry.templates, images, rows)


def _read_split_file(entry: DatasetEntry, folder: Path, root: Path, split: str) -> _Found:
    places = (folder, root, root / "data_splits", root / "splits", folder / "splits")
    listing = _first_file([place / entry.split_file for place in places], entry, entry.split_url)
    class_names, splits = read_split_file(listing)
    rows = splits.get(split)
    if not rows:
        raise _no_split(entry, split, [name for name, some in splits.items() if some])
    images = image_folder(entry, folder, [name for name, _ in rows])
    return images, [entry.renamed.get(name, name) for name in class_names], rows


def _read_variants(entry: DatasetEntry, folder: Path, root: Path, split: str) -> _Found:
    listing = folder / f"images_variant_{split}.txt"
    if not listing.is_file() and split != "test":
        raise _no_split(entry, split, entry.splits)
    names = read_lines(folder / "variants.txt", _AGAIN)
    rows = []
    for line in read_lines(listing, _AGAIN):
        stem, _, name = line.partition(" ")
        if name not in names:
            raise InputError(f"{listing} has {name!r}, which variants.txt lacks: {_AGAIN}")
        rows.append((f"{stem}.jpg", names.index(name)))
    return image_folder(entry, folder, [name for name, _ in rows]), names, rows


def _read_wnid_folders(entry: DatasetEntry, folder: Path, root: Path, split: str) -> _Found:
    images, names = _class_folders(entry, folder, root, split)
    found = [name for name in subfolders(images) if WNID.fullmatch(name)]
    strangers = [wnid for wnid in found if wnid not in names]
    if strangers:
        raise InputError(
            f"classnames.txt does not fit the folders in {images} ({strangers[0]} is not in it): "
            f"get it from {entry.names_url}."
        )
    wnids = found if entry.subset else list(names)
    return images, [names[wnid] for wnid in wnids], _folder_rows(images, wnids)


def _read_numbered_folders(entry: DatasetEntry, folder: Path, root: Path, split: str) -> _Found:
    images, names = _class_folders(entry, folder, root, split)
    numbers = [int(name) for name in subfolders(images) if name.isdecimal()]
    if max(numbers) >= len(names):
        raise InputError(
            f"The folders in {images} are not 0 to {len(names) - 1}, one for each line of "
            f"classnames.txt: get both again, from {entry.source} and {entry.names_url}."
        )
    rows = _folder_rows(images, map(str, range(len(names))))
    return images, list(names.values()), rows


_READERS: dict[str, Callable[[DatasetEntry, Path, Path, str], _Found]] = {
    "split": _read_split_file,
    "variants": _read_variants,
    "wnid": _read_wnid_folders,
    "numbered": _read_numbered_folders,
}


def _class_folders(
    entry: DatasetEntry, folder: Path, root: Path, split: str
) -> tuple[Path, dict[str, str]]:
    if split not in entry.splits:
        raise _no_split(entry, split, entry.splits)
    places = (folder, root, root / "imagenet", root / "ImageNet", folder.parent / "imagenet")
    names = [place / "classnames.txt" for place in places]  # it may be with ImageNet itself
    images = _class_folders_place(entry, folder, split)
    return images, read_class_names(_first_file(names, entry, entry.names_url))


def _folder_rows(images: Path, folders: Iterable[str]) -> list[Row]:
    numbered = enumerate(folders)
    return [(f"{each}/{name}", k) for k, each in numbered for name in image_names(images / each)]


def _no_split(entry: DatasetEntry, split: str, there_are: Iterable[str]) -> InputError:
    return InputError(f"{entry.title} has no split {split!r}: choose {' or '.join(there_are)}.")


def _dataset_folder(entry: DatasetEntry, root: Path) -> Path:
    """The folder of the dataset: one of its usual names below the root, or the root itself."""
    usual = [root / name for name in entry.folders]
    for folder in (*usual, root):
        if folder.is_dir() and _is_recognised(entry, folder):
            return folder
    for folder in usual:
        if folder.is_dir() and folder != root:
            return folder
    raise InputError(
        f"{entry.title} is not in {root} (there is no folder {entry.folders[0]}): "
        f"get it from {entry.source} or give another root."
    )


def image_folder(entry: DatasetEntry, folder: Path, paths: Sequence[str]) -> Path:
    """The folder below which these images are; a few of them are looked for."""
    probes = paths[:: max(1, len(paths) // _PROBES)]
    for name in entry.images:
        if any(os.path.isfile(folder / name / path) for path in probes):
            return folder / name
    raise InputError(
        f"The images of {entry.title} are not in {folder} (there is no "
        f"{Path(entry.images[0], probes[0]).as_posix()}): get them from {entry.source}."
    )


def _class_folders_place(entry: DatasetEntry, folder: Path, split: str) -> Path:
    """The folder that holds one folder per class."""
    split_folder = entry.split_folders.get(split, split)
    names = [name.replace("{split}", split_folder) for name in entry.images]
    is_class = WNID if entry.reader == "wnid" else _NUMBER
    for name in names:
        if any(is_class.fullmatch(each) for each in subfolders(folder / name)):
            return folder / name
    for name in names:
        if any(image_names(folder / name)):
            raise InputError(
                f"{folder / name} holds images but no folder per class: "
                "sort them into folders such as n01440764 first."
            )
    raise InputError(
        f"The images of {entry.title} are not in {folder} (there is no {names[0]} with a folder "
        f"per class): get them from {entry.source}."
    )


def _is_recognised(entry: DatasetEntry, folder: Path) -> bool:
    """Whether a folder holds a file or folder by which the dataset is known."""
    if entry.reader == "variants":
        return (folder / "variants.txt").is_file()
    if entry.split_file and (folder / entry.split_file).is_file():
        return True
    if entry.subset and any(WNID.fullmatch(name) for name in subfolders(folder)):
        return True
    splits = set(entry.split_folders.values()) or {""}
    named = {name.replace("{split}", each) for name in entry.images for each in splits} - {"."}
    return any((folder / name).is_dir() for name in named)


def _first_file(paths: list[Path], entry: DatasetEntry, url: str) -> Path:
    for path in paths:
        if path.is_file():
            return path
    raise InputError(
        f"{entry.title} lacks the file {paths[0].name}: get it from {url} and put it "
        f"into {paths[0].parent}."
    )
