"""The catalogue: the thirteen datasets and the layout of their files, read from catalog.toml."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources

import msgspec

from crg.suggest import nearest
from crg.types import InputError

SAMPLE_SIZE = 2000  # how many the paper draws of the large test sets
SAMPLE_SEED = 0  # ours; the paper's is not published
TRAIN, VAL, TEST = SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class DatasetEntry:
    """One dataset. Paths are below the root; of several, the first that is there is taken."""

    name: str  # what `crg encode` is given
    title: str  # as the paper writes it
    classes: int  # K
    test: int  # number of test images
    reader: str  # the layout: split, variants, wnid or numbered
    folders: tuple[str, ...]  # of the dataset, below the root; the root itself is tried too
    images: tuple[str, ...]  # of the images, below that folder
    templates: tuple[str, ...]
    source: str  # where to get the images
    aliases: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()  # where they are few; otherwise the files say
    renamed: Mapping[str, str] = field(default_factory=dict)  # name in the files -> name in prompts
    split_file: str = ""  # CoOp's JSON file: which image is in which split
    split_url: str = ""
    split_folders: Mapping[str, str] = field(default_factory=dict)  # split -> name of its folder
    names_url: str = ""  # of classnames.txt
    subset: bool = False  # only names of classnames.txt that have a folder are classes
    per_class: int = 0  # test images of each class, where that is the same for all
    sampled: bool = False  # the paper draws SAMPLE_SIZE test images
    sample_sha256: str = ""  # of the indices that ``drawn_indices`` draws
    licence: str = ""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that its layout has room for."""
        if self.reader in ("split", "variants"):
            return SPLITS
        return tuple(self.split_folders) or (TEST,)

    def name_of(self, split: str) -> str:
        """The name of the images of a split; those of the test split have the plain name."""
        return self.name if split == TEST else f"{self.name}:{split}"


@functools.cache
def catalogue() -> dict[str, DatasetEntry]:
    """All entries by name, in the order of the file."""
    text = resources.files("crg.datasets").joinpath("catalog.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text).items()
    return {name: msgspec.convert({"name": name, **facts}, DatasetEntry) for name, facts in found}


def find_entry(name: str) -> DatasetEntry | None:
    """The entry of that name or alias; case, hyphens and underscores do not matter.

    >>> find_entry("ImageNet_V2").title, find_entry("pets").title, find_entry("mnist")
    ('ImageNet-V2', 'OxfordPets', None)
    """
    wanted = _key(name)
    known = ((entry, (entry.name, entry.title, *entry.aliases)) for entry in catalogue().values())
    return next((entry for entry, names in known if wanted in map(_key, names)), None)


def find_split(name: str) -> tuple[DatasetEntry, str] | None:
    """The entry and the split whose images have that name; see ``DatasetEntry.name_of``.

    >>> find_split("dtd:train")[1], find_split("dtd")[1], find_split("dtd-train")
    ('train', 'test', None)
    """
    plain, colon, split = name.partition(":")
    entry = find_entry(plain)
    if entry is None or (colon and split not in (TRAIN, VAL)):
        return None
    return entry, split or TEST


def get_entry(name: str) -> DatasetEntry:
    """The entry of that name; an unknown one is refused with the nearest known name."""
    entry = find_entry(name)
    if entry is None:
        hint = nearest(_key(name), catalogue(), "crg datasets lists them.")
        raise InputError(f"There is no dataset {name!r}: {hint}")
    return entry


def _key(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "").replace(" ", "")


def layout(entry: DatasetEntry) -> list[str]:
    """The paths below the root that the reader wants, each with where to get it.

    >>> layout(get_entry("stanfordcars"))[0]
    'stanford_cars/...: the images, as the split file names them'
    """
    place = f"{entry.folders[0]}/{entry.images[0]}/".replace("/./", "/")
    lines = {
        "split": f"{place}...: the images, as the split file names them",
        "variants": f"{place}0034309.jpg, ...",
        "wnid": f"{place}n01440764/..., a folder per class",
        "numbered": f"{place}0/... to {entry.classes - 1}/...",
    }
    splits = entry.split_folders.values() or [""]
    found = [lines[entry.reader].replace("{split}", each) for each in splits]
    folder = entry.folders[0]
    if entry.reader == "variants":
        return [*found, f"{folder}/variants.txt", f"{folder}/images_variant_test.txt (train, val)"]
    if entry.split_file:
        return [*found, f"{folder}/{entry.split_file} from {entry.split_url}"]
    return [*found, f"{folder}/classnames.txt from {entry.names_url}"]
