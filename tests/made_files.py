"""Small images, feature files and plug-ins that the tests make themselves."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from crg.features.files import write_features
from synthetic import gaussian_stream

PLUGIN = '''
"""A method from outside the package."""
import os
import time
from dataclasses import dataclass

import crg
from crg.types import Diagnostics

@crg.register
class Constant(crg.Method):
    """Always the same class."""

    name = "constant"
    paper = "none"

    @dataclass(frozen=True)
    class Config:
        answer: int = crg.option(0, "the class that is predicted", at_least=0)
        seconds: float = crg.option(0.0, "how long a step takes", at_least=0)

    def reset(self): ...

    def step(self, sample):
        time.sleep(self.config.seconds)
        logits = 0.0 * self.task.text_features[:, 0]
        logits[self.config.answer] = 1.0
        return self._predicted(logits, Diagnostics(0.0, self.config.answer))
'''


def raw_values(n: int = 12, k: int = 3, width: int = 8) -> dict[str, Any]:
    """The values of a sound feature file."""
    rng = np.random.default_rng(0)
    return {
        "image_features": rng.standard_normal((n, width)).astype(np.float32),
        "text_features": rng.standard_normal((k, width)).astype(np.float32),
        "class_names": np.array([f"name {i}" for i in range(k)]),
        "logit_scale": np.float32(100.0),
        "labels": np.arange(n) % k,
    }


def save_raw(path: Path, **changes: Any) -> Path:
    """A feature file with some values changed; a value of None leaves the name out."""
    values = {**raw_values(), **changes}
    np.savez(path, **{key: value for key, value in values.items() if value is not None})
    return path


def save_stream(path: Path, n: int = 40, seed: int = 0) -> Path:
    """A small labelled stream, wide enough for sums that do not depend on where arrays lie."""
    write_features(path, gaussian_stream(n=n, n_classes=4, width=64, seed=seed))
    return path


def save_plugin(folder: Path, body: str = "", name: str = "own_method") -> Path:
    """A file with a method of the user's own; ``body`` is what its step does first."""
    path = folder / f"{name}.py"
    path.write_text(PLUGIN.replace("time.sleep(self.config.seconds)", body) if body else PLUGIN)
    return path


def gradient(width: int, height: int) -> Image.Image:
    """An image without any symmetry, in smooth colours."""
    y, x = np.mgrid[0:height, 0:width]
    channels = (x * 255 // max(width, 2), y * 255 // max(height, 2), (x + 2 * y) % 256)
    return Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8))


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    """The hardest image to resize: random pixels, a third of them black or white."""
    random = np.random.default_rng(seed)
    values = np.clip(random.integers(-64, 320, (height, width, 3)), 0, 255)
    return Image.fromarray(values.astype(np.uint8))


def same(one: Any, other: Any) -> bool:
    """Whether two images, or arrays of pixels, are equal."""
    return np.array_equal(np.asarray(one), np.asarray(other))


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    """The bytes of a file."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def claiming(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is this large."""
    return png(width, height, 8, 2, lines=b"\0" * 16)


def png_16_bit(values: np.ndarray[Any, np.dtype[np.uint16]]) -> bytes:
    """A PNG of (H, W) grey or (H, W, 3) coloured values."""
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
    return png(values.shape[1], values.shape[0], 16, 2 if values.ndim == 3 else 0, lines=lines)


def png(
    *form: int, lines: bytes, more: Iterable[tuple[bytes, bytes]] = (), interlaced: int = 0
) -> bytes:
    """A PNG of a width, height, bits and kind of colour, with more chunks behind its header."""
    header = struct.pack(">IIBBBBB", *form, 0, 0, interlaced)
    content = b"\x89PNG\r\n\x1a\n"
    for name, data in ((b"IHDR", header), *more, (b"IDAT", zlib.compress(lines)), (b"IEND", b"")):
        checksum = struct.pack(">I", zlib.crc32(name + data))
        content += struct.pack(">I", len(data)) + name + data + checksum
    return content
