"""Check a dataset on disk: missing parts, wrong counts, unreadable images."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from crg.datasets import load_dataset
from crg.datasets.catalog import DatasetEntry, find_entry
from crg.datasets.folder import count_ignored
from crg.images.image_set import ImageSet
from crg.images.reading import read_image
from crg.threads import processors
from crg.types import InputError

Kind: TypeAlias = Literal["missing", "count", "names", "unreadable"]
OnProgress: TypeAlias = Callable[[int, int], object]  # images done, images in all


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
    name: str, root: Path | None = None, on_progress: OnProgress = lambda done, total: None
) -> CheckReport:
    """Read the lists of a dataset and decode every image of its test split."""
    entry, images = find_entry(name), None
    try:
        images = load_dataset(name, root=root)
        problems = _wrong_counts(images, entry) if entry is not None else []
        problems += _bad_files(images, on_progress)
    except InputError as error:
        if not (os.path.exists(name) if entry is None else root is not None and root.is_dir()):
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


def _bad_files(images: ImageSet, on_progress: OnProgress) -> list[Fault]:
    named = zip(images.ids, images.sources, strict=True)
    files = {name: source for name, source in named if isinstance(source, Path)}
    there = {name: path for name, path in files.items() if os.path.isfile(path)}
    missing = tuple(name for name in files if name not in there)
    faults = []
    with ThreadPoolExecutor(processors()) as pool:
        found = zip(there, pool.map(_fault, there.values()), strict=True)
        for done, (name, fault) in enumerate(found, start=1):
            on_progress(done, len(there))
            faults += [f"{name}: {fault}"] if fault else []
    problems = (
        Fault("missing", f"{_counted(missing, 'image')} not there.", missing),
        Fault("unreadable", f"{_counted(faults, 'image')} unreadable.", tuple(faults)),
    )
    return [each for each in problems if each.items]


def _fault(path: Path) -> str:
    """Why an image cannot be read; empty if it can be."""
    try:
        read_image(path)
    except InputError as error:
        return str(error)
    return ""


def _counted(things: Sequence[str], noun: str) -> str:
    return f"1 {noun} is" if len(things) == 1 else f"{len(things):,} {noun}s are"
