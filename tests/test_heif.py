"""HEIC images: read upright and within the limits, or named with the remedy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crg.images import reading
from crg.images.reading import read_image
from crg.predict.files import list_images
from made_files import encoded, gradient
from sentences import check_refused, refused_in_one_sentence

heif: Any = pytest.importorskip("pillow_heif")

PHOTO = gradient(64, 48)


def _encoded(image: Image.Image = PHOTO, kind: str = "HEIF", **options: Any) -> bytes:
    heif.register_heif_opener()
    return encoded(image, kind, quality=95, **options)


def _close(one: Image.Image, other: Image.Image) -> bool:
    gap = np.asarray(one, np.int16) - np.asarray(other, np.int16)
    return one.size == other.size and float(np.abs(gap).mean()) < 6


@pytest.mark.parametrize("suffix", [".heic", ".HEIF", ".hif"])
def test_heic_images_are_read(tmp_path: Path, suffix: str) -> None:
    """A file from a phone is read and listed like any other image; transparency is white."""
    (tmp_path / f"photo{suffix}").write_bytes(_encoded())
    assert list_images([str(tmp_path)]) == [tmp_path / f"photo{suffix}"]
    assert _close(read_image(tmp_path / f"photo{suffix}"), PHOTO)
    clear = Image.new("RGBA", (32, 32), (255, 0, 0, 0))
    assert _close(read_image(_encoded(clear)), Image.new("RGB", (32, 32), "white"))


def test_orientation_is_applied_once() -> None:
    """An image whose container and EXIF data both say how it lies is turned once, as a phone's."""
    exif = Image.Exif()
    for exif[0x0112] in range(1, 9):
        jpeg = _encoded(kind="JPEG", exif=exif)
        assert _close(read_image(_encoded(exif=exif.tobytes())), read_image(jpeg))


def test_the_limits_hold_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many pixels are refused by the header alone."""
    content = _encoded()
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
    check_refused("The image", read_image, _encoded()[:keep] if keep else film)


def test_without_the_extra_the_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where pillow-heif is missing, the files are listed, and refused with what to install."""
    (tmp_path / "photo.heic").write_bytes(_encoded())
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    [path] = list_images([str(tmp_path)])
    check_refused(("photo.heic", "HEIC", ".[heif]"), read_image, path)
