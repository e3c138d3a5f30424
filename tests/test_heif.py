"""HEIC and AVIF images: read upright and within the limits, or named with the remedy."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crg.images import reading
from crg.images.reading import read_image
from crg.predict.files import list_images
from sentences import refused_in_one_sentence

heif: Any = pytest.importorskip("pillow_heif")


def _image(width: int = 64, height: int = 48) -> Image.Image:
    """Red above, blue on the left below."""
    pixels = np.full((height, width, 3), 255, np.uint8)
    pixels[: height // 4] = 255, 0, 0
    pixels[height // 4 :, : width // 4] = 0, 0, 255
    return Image.fromarray(pixels)


def _encoded(image: Image.Image, kind: str = "HEIF", **options: Any) -> bytes:
    heif.register_heif_opener()
    file = io.BytesIO()
    image.save(file, kind, quality=95, **options)
    return file.getvalue()


def _close(one: Image.Image, other: Image.Image) -> bool:
    gap = np.asarray(one, np.int16) - np.asarray(other, np.int16)
    return one.size == other.size and float(np.abs(gap).mean()) < 6


@pytest.mark.parametrize("suffix", [".heic", ".HEIF", ".hif"])
def test_heic_images_are_read(tmp_path: Path, suffix: str) -> None:
    """A file from a phone is read and listed like any other image; transparency is white."""
    (tmp_path / f"photo{suffix}").write_bytes(_encoded(_image()))
    assert list_images([str(tmp_path)]) == [tmp_path / f"photo{suffix}"]
    assert _close(read_image(tmp_path / f"photo{suffix}"), _image())
    clear = Image.new("RGBA", (32, 32), (255, 0, 0, 0))
    assert _close(read_image(_encoded(clear)), Image.new("RGB", (32, 32), "white"))


def test_orientation_is_applied_once() -> None:
    """An image whose container and EXIF data both say how it lies is turned once, as a phone's."""
    taken, exif = _image(), Image.Exif()
    for exif[0x0112] in range(1, 9):
        jpeg = _encoded(taken, "JPEG", exif=exif)
        assert _close(read_image(_encoded(taken, exif=exif.tobytes())), read_image(jpeg))


def test_the_limits_hold_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many pixels are refused by the header alone."""
    content = _encoded(_image())
    monkeypatch.setattr(heif.HeifImage, "data", property(lambda _: pytest.fail("decoded")))
    with (
        refused_in_one_sentence("more than 3,071 pixels"),
        reading.reading(content, max_pixels=64 * 48 - 1),
    ):
        pass


@pytest.mark.parametrize("keep", [12, 30, 200, -40, None])
def test_damaged_images_and_films_are_refused(keep: int | None) -> None:
    """A truncated file, or a film, which begins in a similar way, ends in a sentence."""
    film = b"\0\0\0\x18ftypisom" + b"\0" * 50
    with refused_in_one_sentence("The image"):
        read_image(_encoded(_image())[:keep] if keep else film)


def test_without_the_extra_the_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where pillow-heif is missing, the files are listed, and refused with what to install."""
    (tmp_path / "photo.heic").write_bytes(_encoded(_image()))
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    [path] = list_images([str(tmp_path)])
    with refused_in_one_sentence("photo.heic", "HEIC", ".[heif]"):
        read_image(path)


def test_avif_needs_a_newer_pillow_where_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """AVIF is read by Pillow itself, and an older Pillow is named as the reason."""
    if "AVIF" not in reading._FORMATS:
        pytest.skip("this Pillow reads no AVIF")
    content = _encoded(_image(), "AVIF")
    assert _close(read_image(content), _image())
    monkeypatch.setattr(reading, "_FORMATS", ("JPEG",))
    with refused_in_one_sentence("AVIF", "Pillow 11.3"):
        read_image(content)
