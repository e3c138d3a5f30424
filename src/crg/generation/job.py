"""Making variations once: one file each, so that the job can be stopped at any moment.

``variations.json`` in the folder says what made them; another generator or seed is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from crg.atomic import replacing
from crg.generation.variations import Generator, folder_of
from crg.images.image_set import ImageSet
from crg.images.reading import read_image
from crg.types import InputError

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
    _claim(folder, {"seed": seed, **generator.describe()})
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
    _make(path.parent)
    with replacing(path) as partial:
        image.save(partial, format="PNG")


def _claim(folder: Path, about: dict[str, Any]) -> None:
    """Write down what makes the variations, or refuse a folder that something else made."""
    path = folder / ABOUT
    if not path.exists():
        _check_empty(folder)
        _make(folder)
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


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made ({error.strerror}): choose another folder with --out."
        ) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_bytes())
    except (OSError, ValueError):
        stored = None
    if not isinstance(stored, dict):
        raise InputError(f"{path} is damaged: give another folder with --out.")
    return stored


def _shown(value: Any) -> str:
    return value[:12] if isinstance(value, str) else json.dumps(value)
