"""Variations of an image: the protocol of a generator, ready-made ones in a folder, and stand-ins.

The variations of ``cat/1.jpg`` are the images in ``FOLDER/cat/1.jpg/`` or, where there is no
such folder, in ``FOLDER/cat/1/``, in the order of their names. It does not matter who made them.

Stand-ins serve where methods that want generated views are tried on images for which no diffusion
model is available. Whoever shows a number that comes from them has to say so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from PIL import Image, ImageEnhance, ImageOps

from crg.images.image_set import ImageSet
from crg.images.reading import IMAGE_SUFFIXES, read_image, shown
from crg.types import InputError


class Generator(Protocol):
    """Makes variations of an image, each of which has a number from 0 on."""

    def generate(
        self, image: Image.Image, image_id: str, numbers: Sequence[int], seed: int
    ) -> Iterator[Image.Image]:
        """The variations of these numbers, in RGB.

        One depends on the image, its id, its number and the seed, and on nothing else.
        """
        ...

    def describe(self) -> Mapping[str, Any]:
        """What else decides how they look, as JSON values."""
        ...


def seed_of(seed: int, image_id: str, number: int) -> int:
    """A seed for one variation, the same on every machine.

    >>> seed_of(0, "cat/1.jpg", 0) == seed_of(0, "cat/1.jpg", 0) != seed_of(0, "cat/1.jpg", 1)
    True
    """
    name = f"{seed}\0{image_id}\0{number}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "little") >> 1  # torch's are signed


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


def relight(images: ImageSet, folder: Path, count: int) -> Variations:
    """``count`` crops in other light of each image, in a folder that may hold some already."""
    for name, source in zip(images.ids, images.sources, strict=True):
        if len(files_of(folder, name)) < count:
            _save_all(read_image(source), folder_of(folder, name), count)
    return Variations(folder, count)


def _save_all(image: Image.Image, place: Path, count: int) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        margin = min(image.size) * (number + 1) // 24
        part = ImageOps.crop(image, margin)
        light = ImageEnhance.Brightness(part).enhance(0.8 + 0.06 * number)
        partial = place / f".{number}.png"  # hidden, and so none of the variations yet
        light.save(partial)
        partial.replace(place / f"{number}.png")
