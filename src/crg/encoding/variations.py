"""Generated variations of images, found in a folder: the last views that ``crg encode`` adds.

The variations of ``cat/1.jpg`` are the images in ``FOLDER/cat/1.jpg/`` or, where there is no
such folder, in ``FOLDER/cat/1/``, in the order of their names. Any generator may fill them;
``examples/generate.py`` does it with a diffusion model. ``relight`` makes stand-ins, to try methods
that need generated views where no diffusion model is available; a result must say so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from PIL import ImageEnhance, ImageOps

from crg.images.image_set import ImageSet
from crg.images.reading import IMAGE_SUFFIXES, read_image, shown
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
                f"{shown(self.folder)} is not a folder: "
                "give one that has a folder of variations for each image."
            )

    def of(self, image_id: str) -> list[Path]:
        """The files of one image; too few are refused."""
        found = _files(self.folder, image_id)
        if len(found) < self.count:
            raise InputError(
                f"{image_id} has {len(found)} variations in {shown(self.folder)} but "
                f"{self.count} are needed: generate more or lower --generated."
            )
        return found[: self.count]

    def fingerprint(self, image_ids: Iterable[str]) -> str:
        """A hash of the names and sizes of the files that belong to these images."""
        digest = hashlib.sha256(str(self.count).encode())
        for name in image_ids:
            files = _files(self.folder, name)[: self.count]
            facts = "\0".join(f"{path.name}\0{path.stat().st_size}" for path in files)
            digest.update(f"\n{name}\0{facts}".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


def relight(images: ImageSet, folder: Path, count: int) -> Variations:
    """``count`` crops in other light of each image, in a folder that may hold some already."""
    for name, source in zip(images.ids, images.sources, strict=True):
        if len(_files(folder, name)) >= count:
            continue
        image, place = read_image(source), _place(folder, name)
        place.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            part = ImageOps.crop(image, min(image.size) * (number + 1) // 24)
            lit = ImageEnhance.Brightness(part).enhance(0.8 + 0.06 * number)
            partial = place / f".{number}.png"  # hidden, and so not a variation yet
            lit.save(partial)
            partial.replace(place / f"{number}.png")
    return Variations(folder, count)


def _files(folder: Path, image_id: str) -> list[Path]:
    """The variations of one image, sorted by name."""
    place = _place(folder, image_id)
    if not place.is_dir():
        place = place.with_suffix("")
    if not place.is_dir():
        return []
    return sorted(
        path
        for path in place.iterdir()
        if path.suffix.lower() in IMAGE_SUFFIXES
        and not path.name.startswith(".")
        and path.is_file()
    )


def _place(folder: Path, image_id: str) -> Path:
    """The folder for the variations of an image; ids that lead out of ``folder`` are refused."""
    parts = PurePosixPath(image_id)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise InputError(
            f"The id {image_id!r} leads out of the folder of variations: "
            "give the images as a dataset, whose ids are paths below its folder."
        )
    return folder / parts
