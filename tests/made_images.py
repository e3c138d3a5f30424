"""Small images for the tests, some of them in forms that Pillow does not write."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image


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
    return png(width, height, 8, 2, b"\0" * 16)


def png_16_bit(values: np.ndarray[Any, np.dtype[np.uint16]]) -> bytes:
    """A PNG of (H, W) grey or (H, W, 3) coloured values."""
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
    return png(values.shape[1], values.shape[0], 16, 2 if values.ndim == 3 else 0, lines)


def png(
    width: int, height: int, bits: int, colour: int, lines: bytes, *more: tuple[bytes, bytes]
) -> bytes:
    """A PNG of these lines, with more chunks behind its header."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    for name, data in ((b"IHDR", header), *more, (b"IDAT", zlib.compress(lines)), (b"IEND", b"")):
        checksum = struct.pack(">I", zlib.crc32(name + data))
        content += struct.pack(">I", len(data)) + name + data + checksum
    return content
