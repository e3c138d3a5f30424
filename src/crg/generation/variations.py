"""Variations of an image: the protocol of a generator, made once, found in a folder, or stand-ins.

The variations of ``cat/1.jpg`` are the images in ``FOLDER/cat/1.jpg/`` or, where there is no
such folder, in ``FOLDER/cat/1/``, in the order of their names. It does not matter who made them.

``generate`` writes one file each, so that it can be stopped at any moment; ``variations.json`` in
the folder says what made them, and another generator or seed is refused.

Stand-ins serve where methods that want generated views are tried on images for which no diffusion
model is available. Whoever shows a number that comes from them has to say so.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from PIL import Image, ImageEnhance, ImageOps

from crg.atomic import locked_folder, make_folder, replacing
from crg.images.image_set import ImageSet
from crg.images.reading import IMAGE_SUFFIXES, read_image, shown
from crg.types import InputError, parsed_json


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


ABOUT = "variations.json"


@dataclass(frozen=True)
class GenerationProgress:
    """How far a job is, in variations."""

    reused: int  # there when this job began
    done: int  # those included
    total: int


@dataclass
class GenerationSummary:
    """What a job has left behind."""

    folder: Path
    n_images: int
    n_made: int = 0
    n_reused: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)  # id and reason


def generate(
    images: ImageSet,
    generator: Generator,
    count: int,
    out: str | os.PathLike[str],
    *,
    seed: int = 0,
    skip_unreadable: bool = False,
    on_progress: Callable[[GenerationProgress], None] = lambda progress: None,
) -> GenerationSummary:
    """Make ``count`` variations of each image in ``out``; those that are there are kept.

    Without ``skip_unreadable`` the first image that cannot be read ends the job.
    """
    if count < 1:
        raise InputError(f"The number of variations is {count}: give one from 1 on.")
    folder = Path(out)
    make_folder(folder.absolute().parent, "--out")
    with locked_folder(folder):
        _claim(folder, {"seed": seed, **generator.describe()})
        return _made(images, generator, count, folder, seed, skip_unreadable, on_progress)


def _made(
    images: ImageSet,
    generator: Generator,
    count: int,
    folder: Path,
    seed: int,
    skip_unreadable: bool,
    on_progress: Callable[[GenerationProgress], None],
) -> GenerationSummary:
    todo = [_missing(folder, name, count) for name in images.ids]
    total = count * len(images)
    summary = GenerationSummary(folder, len(images), n_reused=total - sum(map(len, todo)))
    on_progress(GenerationProgress(summary.n_reused, summary.n_reused, total))
    for name, source, numbers in zip(images.ids, images.sources, todo, strict=True):
        image = _image(source, name, numbers, skip_unreadable, summary)
        if image is None:
            continue
        made = generator.generate(image, name, numbers, seed)
        for number, variation in zip(numbers, made, strict=True):
            _write(variation, folder_of(folder, name) / _file_name(number))
            summary.n_made += 1
            on_progress(
                GenerationProgress(summary.n_reused, summary.n_reused + summary.n_made, total)
            )
    return summary


def _image(
    source: Any, name: str, numbers: Sequence[int], skip: bool, summary: GenerationSummary
) -> Image.Image | None:
    """The image; None where nothing is left to do or it cannot be read."""
    if not numbers:
        return None
    try:
        return read_image(source)
    except InputError as error:
        if not skip:
            where = "" if name in str(error) else f"{name}: "
            raise InputError(
                f"{where}{str(error).rstrip('.')}, or leave out all such images with "
                "--skip-unreadable."
            ) from None
        summary.skipped.append((name, str(error)))
        return None


def _missing(folder: Path, image_id: str, count: int) -> list[int]:
    place = folder_of(folder, image_id)
    return [number for number in range(count) if not (place / _file_name(number)).exists()]


def _file_name(number: int) -> str:
    return f"{number:04d}.png"


def _write(image: Image.Image, path: Path) -> None:
    make_folder(path.parent, "--out")
    with replacing(path) as partial:
        image.save(partial, format="PNG")


def _claim(folder: Path, about: dict[str, Any]) -> None:
    """Write down what makes the variations, or refuse a folder that something else made."""
    path = folder / ABOUT
    if not path.exists():
        _check_empty(folder)
        make_folder(folder, "--out")
        with replacing(path) as partial:
            partial.write_text(json.dumps(about, indent=1) + "\n")
        return
    stored = _read(path)
    for name in {**stored, **about}:
        if stored.get(name) != about.get(name):
            raise InputError(
                f"{folder} was made otherwise ({name} was {_shown(stored.get(name))} and is "
                f"{_shown(about.get(name))} now): ask for the same or give another folder with "
                "--out."
            )


def _check_empty(folder: Path) -> None:
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError(
            f"{folder} holds something else than variations of crg generate: "
            "give an empty folder or a new one."
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = parsed_json(path.read_bytes())
    except (OSError, ValueError):
        stored = None
    if not isinstance(stored, dict):
        raise InputError(f"{path} is damaged: give another folder with --out.")
    return stored


def _shown(value: Any) -> str:
    return value[:12] if isinstance(value, str) else json.dumps(value)
