"""Attacks by images: damaged, lying, odd and hidden behind the first bytes of a format."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from attacks.base import Outcome, attempt, bent, odd_value, require
from crg.images.reading import read_image
from made_files import encoded, png

_MAGIC = (
    *(b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"BM", b"II*\x00", b"MM\x00*"),
    *(b"RIFF\xff\xff\x00\x00WEBPVP8 ", b"P6\n9 9\n255\n", b"P4 99999 99999\n", b"\xff\x4f\xff\x51"),
    *(b"\x00\x00\x00\x0cjP  \r\n\x87\n", b"\x00\x00\x00\x1cftypavif", b"\x00\x00\x00\x18ftypheic"),
    *(b"%!PS-Adobe", b"\x89HDF\r\n\x1a\n", b"<svg>", b"\x1f\x8b\x08", b"PK\x03\x04"),
)
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "I", "F",
          "I;16", "La", "RGBa")  # fmt: skip
_SAVED = (("JPEG", "RGB"), ("JPEG", "CMYK"), ("PNG", "RGBA"), ("PNG", "P"), ("PNG", "I;16"),
          ("PNG", "1"), ("GIF", "P"), ("BMP", "RGB"), ("TIFF", "RGB"), ("TIFF", "F"), ("PPM", "L"),
          ("TIFF", "CMYK"), ("WEBP", "RGBA"), ("WEBP", "RGB"), ("JPEG2000", "RGB"))  # fmt: skip


@functools.cache
def _sound() -> tuple[bytes, ...]:
    """A small file of each format and mode, with EXIF data where there is room for it."""
    rng, files = np.random.default_rng(0), []
    picture = Image.fromarray(rng.integers(0, 256, (23, 31, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a description"
    for kind, mode in _SAVED:
        more: dict[str, Any] = {"exif": exif} if kind in ("JPEG", "PNG", "WEBP", "TIFF") else {}
        grey = picture.convert("L").convert("I") if mode == "I;16" else picture
        files.append(encoded(grey.convert(mode), kind, **more))
    return tuple(files)


def hostile_images(dice: random.Random, place: Path) -> Outcome:
    """Each becomes an RGB image of sane size, or is refused."""
    source: Any = dice.choice((_damaged, _behind_magic, _bomb, _odd_object))(dice)
    if isinstance(source, bytes) and dice.random() < 0.5:
        path = place / "image"
        path.write_bytes(source)
        source = path
    found = attempt(lambda: read_image(source))
    if found is None:
        return "refused"
    require(found.mode == "RGB" and 0 not in found.size, f"{found} was read")
    require(np.asarray(found).dtype == np.uint8, "no bytes")
    return "handled"


def _damaged(dice: random.Random) -> bytes:
    content = bent(dice, dice.choice(_sound()))
    return bent(dice, content) if dice.random() < 0.3 else content


def _behind_magic(dice: random.Random) -> bytes:
    return dice.choice(_MAGIC) + dice.randbytes(dice.choice((0, 1, 30, 3000)))


def _bomb(dice: random.Random) -> bytes:
    """A PNG that says it is huge, or is as large as the limit allows and holds too little."""
    width, height = dice.choice(((2**31 - 1, 2**31 - 1), (10**6, 200), (0, 5), (60_000, 60_000),
                                 (500, 100), (1, 10**6)))  # fmt: skip
    form = width, height, dice.choice((1, 8, 16)), dice.choice((0, 2, 6))
    return png(*form, lines=bytes(dice.choice((0, 10, 100_000))), interlaced=dice.choice((0, 1)))


def _odd_object(dice: random.Random) -> Any:
    """A Pillow image of an odd mode or size, an odd array, or something else altogether."""
    kind = dice.randrange(4)
    if kind == 0:
        return Image.new(dice.choice(_MODES), dice.choice(((1, 1), (0, 3), (1, 4000), (7, 5))))
    if kind == 1:
        dtype = dice.choice(("u1", "i1", "u2", "i4", "f2", "f4", "f8", "b1", "c8", "U2", "V4"))
        return np.zeros(dice.choice(((), (3,), (4, 4), (4, 4, 3), (4, 4, 2), (0, 4), (2, 2, 2, 2))),
                        dtype=dtype)  # fmt: skip
    if kind == 2:
        return np.full((3, 3), dice.choice((np.nan, np.inf, -1.0, 2.0, 1.0, 1e-320)))
    odd = odd_value(dice)
    return odd if not isinstance(odd, str) else odd.encode("utf-8", "surrogatepass")
