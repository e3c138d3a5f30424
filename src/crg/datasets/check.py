"""Check a dataset on disk: missing parts, wrong counts, unreadable images."""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from PIL import Image, UnidentifiedImageError

from crg.datasets import load_dataset
from crg.datasets.catalog import DatasetEntry, find_entry
from crg.datasets.folder import count_ignored, subfolders
from crg.datasets.readers import class_folders_place, dataset_folder, names_path, split_path
from crg.images.image_set import ImageSet
from crg.images.reading import MAX_PIXELS, read_image
from crg.types import InputError

Kind: TypeAlias = Literal["missing", "count", "names", "unreadable"]
Progress: TypeAlias = Callable[[int], AbstractContextManager[Callable[[], None]]]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, in a sentence, with the files or classes that it concerns."""

    kind: Kind
    sentence: str
    items: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckReport:
    """The result of a check; without problems all is fine."""

    name: str
    n_classes: int
    n_images: int
    n_ignored: int  # files in a folder of one's own that are not images or in no class
    problems: tuple[Fault, ...]
    source: str  # where to get the dataset, if that is known


def check_dataset(
    name: str,
    root: Path | None = None,
    *,
    decode: bool = False,
    workers: int = 1,
    progress: Progress = lambda total: contextlib.nullcontext(lambda: None),
) -> CheckReport:
    """Check every file of the test split: its header, or all of it with ``decode``.

    The header is fast to read but does not show that a JPEG file was truncated.
    """
    entry = find_entry(name)
    problems = _missing_parts(entry, root) if entry is not None and root is not None else []
    images = None
    if not problems:
        try:
            images = load_dataset(name, root=root)
            problems += _wrong_counts(images, entry) if entry is not None else []
            problems += _bad_files(images, decode, workers, progress)
        except InputError as error:
            if not (os.path.exists(name) if entry is None else root is not None):
                raise
            problems = [Fault("missing", str(error))]
    return CheckReport(
        name=entry.name if entry is not None else name,
        n_classes=len(images.class_names) if images is not None else 0,
        n_images=len(images) if images is not None else 0,
        n_ignored=count_ignored(Path(name)) if entry is None and os.path.isdir(name) else 0,
        problems=tuple(problems),
        source=entry.source if entry is not None else "",
    )


def _missing_parts(entry: DatasetEntry, root: Path) -> list[Fault]:
    """Folder, lists and images: everything that is missing rather than the first of it."""
    if not root.is_dir():
        raise InputError(f"{root} is not a folder: give the folder that holds the datasets.")
    problems: list[Fault] = []

    def attempt(step: Callable[..., Path | None], *given: Any) -> Path | None:
        try:
            return step(*given)
        except InputError as error:
            problems.append(Fault("missing", str(error)))
            return None

    folder = attempt(dataset_folder, entry, root)
    if folder is not None and entry.split_file:
        attempt(split_path, entry, folder, root)
        attempt(_some_images, entry, folder)
    if folder is not None and entry.names_url:
        attempt(names_path, entry, folder, root)
        attempt(class_folders_place, entry, folder, "test")
    return problems


def _some_images(entry: DatasetEntry, folder: Path) -> None:
    """Refuse a folder where no folder can be that of the images."""
    usual = any((folder / name).is_dir() for name in entry.images if name != ".")
    if not usual and not ("." in entry.images and subfolders(folder)):
        raise InputError(
            f"The images of {entry.title} are not in {folder} (there is no {entry.images[0]}): "
            f"get them from {entry.source}."
        )


def _wrong_counts(images: ImageSet, entry: DatasetEntry) -> list[Fault]:
    problems = []
    names = images.class_names
    if len(names) != entry.classes:
        problems.append(Fault("count", f"There are {len(names)} classes, not {entry.classes}."))
    elif entry.class_names and names != entry.class_names:
        other = tuple(n for n, known in zip(names, entry.class_names, strict=True) if n != known)
        problems.append(Fault("names", f"{_counted(other, 'class name')} not the usual.", other))
    if len(images) != entry.test:
        sentence = f"There are {len(images):,} test images, not {entry.test:,}."
        found = Counter(images.labels or ())
        uneven = tuple(
            f"{name}: {found[label]}, not {entry.per_class}"
            for label, name in enumerate(names)
            if entry.per_class and found[label] != entry.per_class
        )
        problems.append(Fault("count", sentence, uneven))
    return problems


def _bad_files(images: ImageSet, decode: bool, workers: int, progress: Progress) -> list[Fault]:
    named = zip(images.ids, images.sources, strict=True)
    files = {name: source for name, source in named if isinstance(source, Path)}
    there = {name: path for name, path in files.items() if os.path.isfile(path)}
    missing = tuple(name for name in files if name not in there)
    faults = []
    with (
        progress(len(there)) as advance,
        ThreadPoolExecutor(workers) as pool,
        warnings.catch_warnings(action="ignore"),  # Pillow warns about what is reported here
    ):
        found = pool.map(_fault, there.values(), itertools.repeat(decode))
        for name, fault in zip(there, found, strict=True):
            advance()
            faults += [f"{name}: {fault}"] if fault else []
    problems = (
        Fault("missing", f"{_counted(missing, 'image')} not there.", missing),
        Fault("unreadable", f"{_counted(faults, 'image')} unreadable.", tuple(faults)),
    )
    return [each for each in problems if each.items]


def _fault(path: Path, decode: bool) -> str:
    """Why an image cannot be read, by its header or by all of it; empty if it can be."""
    try:
        if decode:
            read_image(path)
            return ""
        if path.stat().st_size == 0:
            return "zero bytes"
        with Image.open(path) as image:
            too_large = image.width * image.height > MAX_PIXELS
            image.verify()
    except UnidentifiedImageError:
        return "not an image"
    except Exception as error:  # damaged headers make the decoders raise nearly anything
        return " ".join(str(error).split())
    return f"more than {MAX_PIXELS:,} pixels" if too_large else ""


def _counted(things: Sequence[str], noun: str) -> str:
    return f"1 {noun} is" if len(things) == 1 else f"{len(things):,} {noun}s are"
