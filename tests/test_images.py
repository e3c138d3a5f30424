"""Images: every format is read as Pillow reads it, and everything else is refused."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image, ImageOps

from crg.images.reading import MAX_PIXELS, read_image
from made_files import claiming, encoded, gradient, png_16_bit, same
from sentences import check_refused


@pytest.mark.parametrize(
    "form", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF"]
)
def test_formats(form: str, tmp_path: Path) -> None:
    """Each format is read as Pillow reads it, from a path, a string and bytes, of any size."""
    for size in ((40, 30), (1, 1), (1, 50), (50, 1)):
        content = encoded(gradient(*size), form)
        wanted = Image.open(io.BytesIO(content)).convert("RGB")
        path = tmp_path / "image"
        path.write_bytes(content)
        for source in (path, str(path), content, bytearray(content), memoryview(content)):
            assert read_image(source).mode == "RGB"
            assert same(read_image(source), wanted)


@pytest.mark.parametrize(
    "name", ["with space.png", "grüße-日本.png", "two\nlines.png", b"\xff.png"]
)
def test_names(name: str | bytes, tmp_path: Path) -> None:
    """Any name can be read, and stays on one line where it is complained about."""
    path = tmp_path / os.fsdecode(name)
    check_refused("does not exist", read_image, path)
    path.write_bytes(encoded(gradient(5, 4), "PNG"))
    assert read_image(path).size == (5, 4)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "TIFF"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
def test_truncated_files(form: str, share: float, tmp_path: Path) -> None:
    """A file that ends too early is refused by name."""
    content = encoded(gradient(200, 150), form)
    path = tmp_path / "cut.jpg"
    path.write_bytes(content[: int(len(content) * share)])
    check_refused("cut.jpg", read_image, path)


def test_odd_images_are_read() -> None:
    """A large image, a CMYK JPEG and one whose EXIF data make no sense are read."""
    image = read_image(encoded(Image.new("1", (12_000, 9_000), 1), "PNG"))
    assert image.size == (12_000, 9_000)
    assert image.getpixel((11_999, 8_999)) == (255, 255, 255)
    content = encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG")
    red, green, blue = np.asarray(read_image(content))[8, 8]
    assert red > 240 and green < 15 and blue < 15
    content = encoded(gradient(24, 16), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff\x12")
    assert read_image(content).size == (24, 16)


def test_more_than_eight_bits_are_scaled() -> None:
    """16 bits keep order and range; 32-bit integers beyond them and floats beyond 1 are refused."""
    values = np.linspace(0, 65535, 256).astype(np.uint16)
    grey = np.asarray(read_image(png_16_bit(values[None, :])))
    assert np.array_equal(grey[0, :, 0], np.arange(256))
    assert np.array_equal(grey[..., 0], grey[..., 2])
    colour = np.asarray(read_image(png_16_bit(np.repeat(values[None, :, None], 3, axis=2))))
    assert np.abs(colour[0, :, 1].astype(int) - np.arange(256)).max() <= 1
    for value, kind, shown in ((65535, np.int32, 255), (0.5, np.float32, 128)):
        tiff = encoded(Image.fromarray(np.full((2, 2), value, kind)), "TIFF")
        assert read_image(tiff).getpixel((0, 0)) == (shown,) * 3
    for value, kind, words in ((70000, np.int32, "32 bits"), (3.0, np.float32, "0 to 1")):
        tiff = encoded(Image.fromarray(np.full((2, 2), value, kind)), "TIFF")
        check_refused(words, read_image, tiff)


def test_transparency_is_laid_on_white() -> None:
    """Transparent pixels and entries of palettes become white; opaque ones stay."""
    for mode, colour in (("LA", (0, 0)), ("RGBA", (9, 9, 9, 0)), ("PA", (3, 0))):
        image = Image.new(mode, (2, 2), colour)
        assert read_image(image).getpixel((0, 0)) == (255, 255, 255), mode
    assert read_image(Image.new("RGBA", (2, 2), (1, 2, 3, 255))).getpixel((0, 0)) == (1, 2, 3)
    assert read_image(Image.new("RGBA", (1, 1), (0, 0, 0, 128))).getpixel((0, 0)) == (127,) * 3
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((1, 0), 1)
    first, second = [10, 20, 30], [200, 100, 50]
    assert np.asarray(read_image(encoded(image, "PNG"))).tolist() == [[first, second]]
    for transparency in (0, bytes([0, 255])):
        shown = read_image(encoded(image, "PNG", transparency=transparency))
        assert np.asarray(shown).tolist() == [[[255, 255, 255], second]]


@pytest.mark.parametrize("form", ["GIF", "WEBP"])
def test_animations(form: str) -> None:
    """Of an animation the first frame counts."""
    frames = [Image.new("RGB", (8, 8), colour) for colour in ((250, 0, 0), (0, 250, 0))]
    content = encoded(frames[0], form, save_all=True, append_images=frames[1:])
    red, green, _ = np.asarray(read_image(content))[4, 4]
    assert red > 200 and green < 50


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_exif_rotation(orientation: int, form: str) -> None:
    """All eight orientations come out upright, as Pillow's own function has them."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(gradient(24, 16), form, exif=exif)
    image = Image.open(io.BytesIO(content))
    wanted = ImageOps.exif_transpose(image).convert("RGB")
    assert same(read_image(content), wanted)
    assert read_image(content).size == ((24, 16) if orientation < 5 else (16, 24))
    assert same(read_image(image), wanted)


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"these are notes, not pixels", "notes.jpg", ["notes.jpg", "JPEG or PNG"]),
        (b"", "notes.jpg", ["notes.jpg", "empty"]),
        (b"", "", ["folder"]),
        (b"", "notes.jpg/below-a-file.jpg", ["does not exist"]),
        (b"", os.devnull, ["regular"]),
        (b"", "nul\0in name.png", ["check the path"]),
    ],
)
def test_what_is_no_image(tmp_path: Path, content: bytes, name: str, words: list[str]) -> None:
    """Text, nothing, folders, devices and missing files get a sentence each."""
    (tmp_path / "notes.jpg").write_bytes(content)
    check_refused(tuple(words), read_image, tmp_path / name)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that may not be read is said to be so."""
    path = tmp_path / "secret.png"
    path.write_bytes(encoded(gradient(3, 3), "PNG"))
    refuse = Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr("builtins.open", refuse)  # the superuser may read everything
    check_refused(("secret.png", "permission"), read_image, path)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 1), (4, 5, 3), (4, 5, 4)])
def test_arrays(dtype: Any, shape: tuple[int, ...]) -> None:
    """White is white in each type and shape, and the size is width by height."""
    white = 1 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    image = read_image(np.full(shape, white, dtype))
    assert image.size == (5, 4) and image.getpixel((4, 3)) == (255, 255, 255)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((3, 4, 5), np.uint8), np.zeros(9, np.uint8), np.zeros((0, 4, 3), np.uint8),
        np.zeros((1, 2, 3, 3), np.uint8), np.full((2, 2), np.nan), np.full((2, 2), 1.5),
        np.full((2, 2), -0.1), np.zeros((2, 2), np.int64), np.zeros((2, 2), complex),
        np.array([["a"]]),
    ],
)  # fmt: skip
def test_wrong_arrays(values: Any) -> None:
    """Arrays of other shapes, types and ranges get a sentence."""
    check_refused("The image h", read_image, values)


def test_drawn_images_and_those_that_are_ready() -> None:
    """Whatever can draw itself is drawn; bytes and upright RGB images stay as they are."""
    values = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    assert same(read_image(values), values)
    assert same(read_image(values[::-1, ::2]), values[::-1, ::2])
    assert read_image(np.array([[True, False]])).getpixel((0, 0)) == (255, 255, 255)
    dot = SimpleNamespace(draw=lambda: Image.new("L", (3, 2), 9))
    assert read_image(dot).getpixel((0, 0)) == (9, 9, 9)
    image = gradient(4, 4)
    assert read_image(image) is image


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (7, ("int", "NumPy array")),
        (Image.new("RGB", (0, 3)), "no pixels"),
        (claiming(50_000, 50_000), f"{MAX_PIXELS:,} pixels"),  # before anything is decoded
        (claiming(MAX_PIXELS // 1000 + 1, 1000), f"{MAX_PIXELS:,} pixels"),
    ],
    ids=["number", "empty", "bomb", "too large"],
)
def test_other_sources_are_refused(source: Any, words: Any) -> None:
    """Other values, and images without pixels or that claim too many, get a sentence each."""
    check_refused(words, read_image, source)


def test_pillow_prints_nothing() -> None:
    """Messages of its decoders about a damaged file are in the refusal, not on the screen."""
    sound = encoded(Image.new("RGB", (4, 4)), "TIFF")
    samples = struct.pack("<HHIHH", 277, 3, 1, 3, 0)  # samples per pixel
    content = sound.replace(samples, struct.pack("<HHIHH", 277, 3, 1, 99, 0))
    assert content != sound
    code = "import sys; from crg.images.reading import *\ntry: read_image(sys.stdin.buffer.read())"
    code += "\nexcept InputError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], input=content, capture_output=True)
    assert b"cannot be decoded" in done.stdout or b"known format" in done.stdout, done
    assert done.stderr == b""
