"""Where the files of a catalogued dataset are below the root that the user named."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from crg.datasets.catalog import DatasetEntry
from crg.images.reading import IMAGE_SUFFIXES, shown
from crg.types import InputError

WNID = re.compile(r"n\d{8}")  # the name of a WordNet class, such as n01440764
_NUMBER = re.compile(r"\d+")
_PROBES = 20  # images that are looked for to find the folder that holds them


def dataset_folder(entry: DatasetEntry, root: Path) -> Path:
    """The folder of the dataset: one of its usual names below the root, or the root itself."""
    if not root.is_dir():
        raise InputError(f"{root} is not a folder: give the folder that holds the datasets.")
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


def split_path(entry: DatasetEntry, folder: Path, root: Path) -> Path:
    """CoOp's split file: beside the images, in the root, or in a folder of split files."""
    places = (folder, root, root / "data_splits", root / "splits", folder / "splits")
    return _first_file([place / entry.split_file for place in places], entry, entry.split_url)


def names_path(entry: DatasetEntry, folder: Path, root: Path) -> Path:
    """classnames.txt: beside the images, in the root, or with ImageNet itself."""
    places = (folder, root, root / "imagenet", root / "ImageNet", folder.parent / "imagenet")
    return _first_file([place / "classnames.txt" for place in places], entry, entry.names_url)


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


def class_folders_place(entry: DatasetEntry, folder: Path, split: str) -> Path:
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
