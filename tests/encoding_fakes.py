"""An image set and an encoder that need nothing from anywhere: pixels are hashed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crg.encoders.base import Vectors
from crg.encoding import EncodingSummary, Wording, encode, job
from crg.images.image_set import ImageSet, Source
from crg.images.preprocessing import Pixels, Preprocessing
from crg.images.views import Recipe

WIDTH = 8


@dataclass(frozen=True)
class Dot:
    """A small image of one colour with a dot in it."""

    number: int

    def draw(self) -> Image.Image:
        image = Image.new("RGB", (12, 10), (self.number * 5 % 256, 90, 200))
        image.putpixel((self.number % 12, self.number % 10), (255, self.number % 256, 0))
        return image

    def describe(self) -> str:
        return f"dot {self.number}"


class HashEncoder:
    """Features that are a hash of what they are made of: any other byte gives others."""

    def __init__(self, name: str = "hash", fingerprint: str = "weights of hash") -> None:
        self.name, self.width, self.fingerprint = name, WIDTH, fingerprint
        self.preprocessing = Preprocessing(8, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        self.logit_scale, self.encoded = 50.0, 0  # images

    def encode_images(self, pixels: Pixels) -> Vectors:
        self.encoded += len(pixels)
        return _unit_rows([row.tobytes() for row in pixels])

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        return _unit_rows([text.encode() for text in texts])


class StoppedAfter(HashEncoder):
    """Stops the job after some images, as Ctrl-C does."""

    def __init__(self, images: int) -> None:
        super().__init__()
        self.left = images * 3

    def encode_images(self, pixels: Pixels) -> Vectors:
        self.left -= len(pixels)
        if self.left < 0:
            raise KeyboardInterrupt
        return super().encode_images(pixels)


def dots(count: int = 40, *, name: str = "dots", shift: int = 0) -> ImageSet:
    """A labelled set of drawn images; with ``shift`` others under the same ids."""
    return ImageSet(
        name=name,
        class_names=("red", "green", "blue"),
        templates=("a photo of a {}.", "art of the {}."),
        ids=tuple(f"dot {number}" for number in range(count)),
        sources=tuple(Dot(number + shift) for number in range(count)),
        labels=tuple(number % 3 for number in range(count)),
    )


def dot_files(folder: Path, count: int = 40, bad: Sequence[int] = ()) -> ImageSet:
    """The same as files; the ``bad`` ones are not images."""
    folder.mkdir(exist_ok=True)
    paths: list[Source] = []
    for number in range(count):
        path = folder / f"dot {number:02d}.png"
        Dot(number).draw().save(path)
        if number in bad:
            path.write_bytes(b"no image")
        paths.append(path)
    drawn = dots(count)
    names = tuple(path.name for path in paths if isinstance(path, Path))
    return ImageSet("files", drawn.class_names, drawn.templates, names, tuple(paths))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of eight images, so that small sets have several, and no waiting for the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(job, "images_per_block", lambda views: 8)


def run(images: ImageSet, out: Path, encoder: Any = None, **options: Any) -> EncodingSummary:
    """Encode with three views and without a cache of texts."""
    wording = Wording(cache=None)
    return encode(images, encoder or HashEncoder(), Recipe(3), out, wording=wording, **options)


def stop_after(count: int, images: ImageSet, out: Path, **options: Any) -> None:
    """Interrupt a job after so many images, as Ctrl-C does."""
    with pytest.raises(KeyboardInterrupt):
        run(images, out, StoppedAfter(count), **options)


def is_as_in_one_go(out: Path, images: ImageSet, **options: Any) -> bool:
    """Whether a store has the bytes of one that was encoded without a stop."""
    run(images, out.with_name("whole"), **options)
    return contents(out) == contents(out.with_name("whole"))


def _unit_rows(contents_of_rows: list[bytes]) -> Vectors:
    digests = [hashlib.sha256(content).digest()[:WIDTH] for content in contents_of_rows]
    rows = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, WIDTH).astype(np.float32) + 1
    unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
