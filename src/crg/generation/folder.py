"""Ready-made variations: a folder with a folder for each image, named like its id.

The variations of ``cat/1.jpg`` are the images in ``FOLDER/cat/1.jpg/`` or, where there is no
such folder, in ``FOLDER/cat/1/``, in the order of their names. It does not matter who made them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image

from crg.images import IMAGE_SUFFIXES, read_image, shown
from crg.types import InputError


@dataclass(frozen=True)
class Variations:
    """The first ``count`` variations of each image in a folder of them."""

    folder: Path
    count: int  # G

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"The number of variations is {self.count}: give one from 1 on.")
        if not self.folder.is_dir():
            raise InputError(
                f"{shown(self.folder)} is no folder: give one that crg generate made, "
                "or one with a folder of variations for each image."
            )

    def of(self, image_id: str) -> list[Path]:
        """The files of one image; too few are refused."""
        found = files_of(self.folder, image_id)
        if len(found) < self.count:
            raise InputError(
                f"{image_id} has {len(found)} variations in {shown(self.folder)} but "
                f"{self.count} are needed: make more with crg generate."
            )
        return found[: self.count]

    def fingerprint(self, image_ids: Iterable[str]) -> str:
        """A hash of the names and sizes of the files that belong to these images."""
        digest = hashlib.sha256(str(self.count).encode())
        for name in image_ids:
            files = files_of(self.folder, name)[: self.count]
            facts = "\0".join(f"{path.name}\0{path.stat().st_size}" for path in files)
            digest.update(f"\n{name}\0{facts}".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


@dataclass(frozen=True)
class FolderGenerator:
    """A generator that finds its variations instead of making them."""

    folder: Path

    def generate(
        self, image: Image.Image, image_id: str, numbers: Sequence[int], seed: int
    ) -> Iterator[Image.Image]:
        """The variations of these numbers; image and seed do not matter."""
        files = Variations(self.folder, max(numbers, default=0) + 1).of(image_id)
        return (read_image(files[number]) for number in numbers)

    def describe(self) -> Mapping[str, Any]:
        """Where they are found."""
        return {"folder": str(self.folder.resolve())}


def files_of(folder: Path, image_id: str) -> list[Path]:
    """The files with variations of one image, sorted by name."""
    place = folder_of(folder, image_id)
    if not place.is_dir():
        place = place.with_suffix("")
    if not place.is_dir():
        return []
    return sorted(path for path in place.iterdir() if _is_image(path))


def folder_of(folder: Path, image_id: str) -> Path:
    """Where the variations of an image belong; ids that lead out of the folder are refused."""
    parts = PurePosixPath(image_id)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise InputError(
            f"The id {image_id!r} leads out of the folder of variations: "
            "give the images as a dataset, whose ids are paths below its folder."
        )
    return folder / parts


def _is_image(path: Path) -> bool:
    return (
        path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
    )
