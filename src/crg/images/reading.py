"""Read images: any input becomes one upright RGB image, or an error of one sentence.

Choices that the formats leave open:

- transparency is laid on white, as on a printed page;
- of an animation the first frame counts;
- 16-bit values are scaled to 8 bits, not clipped;
- the orientation in the EXIF data is applied, and damaged EXIF data are ignored;
- a truncated file is refused rather than filled up with grey.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from crg.extras import first_line, install
from crg.types import InputError, limit, printable

# Pillow's messages and warnings stay off the terminal: those that matter are errors here.
logging.getLogger("PIL").addHandler(logging.NullHandler())
warnings.filterwarnings("ignore", module=r"PIL\.")
MAX_PIXELS = limit("CRG_MAX_PIXELS", 120_000_000)
MAX_BYTES = limit("CRG_MAX_BYTES", 500_000_000)  # of one image file
MAX_MEMORY = limit("CRG_MAX_MEMORY", 3_000_000_000)  # of all images that are read at the same time
# Pillow's blocks of 16 MB stay with the thread that freed them; larger ones go back at once.
Image.core.set_block_size(64 * 2**20)  # type: ignore[attr-defined]
# Bytes per pixel at most while a file is decoded, turned upright and converted, as measured.
_NEEDED = 25
IMAGE_SUFFIXES = frozenset(  # lower case, as in path.suffix.lower()
    [".avif", ".bmp", ".gif", ".heic", ".heif", ".hif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg",
     ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"]
)  # fmt: skip
# Only these, because others run programs (EPS) or are not images to a person (HDF5, MPEG).
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
_HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")  # brands
_ORIENTATION = 0x0112  # the EXIF tag
# What turns an image upright, for the orientations 2 to 8: FLIP_LEFT_RIGHT, ROTATE_180,
# FLIP_TOP_BOTTOM, TRANSPOSE, ROTATE_270, TRANSVERSE and ROTATE_90.
_UPRIGHT = dict(enumerate(map(Image.Transpose, (0, 3, 1, 5, 4, 6, 2)), start=2))
_WHITE = (255, 255, 255, 255)
_ANOTHER = "give another file or leave this one out"
_ACCEPTED = "give a path, the bytes of a file, a PIL image or a NumPy array"


def read_image(source: Any) -> Image.Image:
    """The image in RGB and upright, from a path, bytes, PIL image, array or ``.draw()``.

    >>> read_image(np.zeros((2, 3), np.uint8)).size
    (3, 2)
    """
    with reading(source) as image:
        return image


@contextmanager
def reading(source: Any, max_pixels: int = MAX_PIXELS) -> Iterator[Image.Image]:
    """The image that ``read_image`` returns, with its memory reserved while the block runs.

    A file with more than ``max_pixels`` is refused before it is decoded.
    """
    if isinstance(source, Image.Image):
        image, name, max_pixels = source, "The PIL image", MAX_PIXELS
    elif isinstance(source, np.ndarray):
        yield _laid_on_white(Image.fromarray(_bytes_of(source)))
        return
    elif isinstance(source, (bytes, bytearray, memoryview)):
        name = "The image"
        image = _opened(bytes(source), name, max_pixels)
    elif isinstance(source, (str, os.PathLike)):
        name = shown(source)
        image = _opened(_content(source), name, max_pixels)
    elif callable(getattr(source, "draw", None)):
        image, name, max_pixels = source.draw(), "The drawn image", MAX_PIXELS
    else:
        raise InputError(f"A value of type {type(source).__name__} is not an image: {_ACCEPTED}.")
    if image.width * image.height > max_pixels:
        raise _too_large(name, max_pixels)
    if 0 in image.size:
        raise InputError(f"{name} has no pixels: {_ANOTHER}.")
    with _memory.taken(image.width * image.height * _NEEDED, name):
        yield _finished(image, name)


def shown(path: Any) -> str:
    """A path as it can be printed in a sentence: on one line, whatever bytes it has.

    >>> shown("a b/caf\\u00e9.jpg"), shown("line\\nbreak"), shown(b"\\xff.png")
    ('a b/café.jpg', 'line\\\\nbreak', '\\\\udcff.png')
    """
    return printable(os.fsdecode(path))


def _content(path: str | os.PathLike[str]) -> bytes:
    name = shown(path)
    try:
        facts = os.stat(path)
        mode = facts.st_mode
        if stat.S_ISDIR(mode):
            os.scandir(path).close()  # else it is a matter of permission
            raise InputError(f"{name} is a folder, not an image: name a file in it.")
        if not stat.S_ISREG(mode):  # reading a pipe or a device might never end
            raise InputError(f"{name} is not a regular file: {_ANOTHER}.")
        if facts.st_size > MAX_BYTES:
            raise InputError(
                f"{name} has more than {MAX_BYTES:,} bytes: {_ANOTHER}, or set CRG_MAX_BYTES."
            )
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{name} does not exist: check the path.") from None
    except PermissionError:
        raise InputError(f"{name} may not be read: ask for permission to read it.") from None
    except InputError:
        raise
    except (OSError, ValueError) as error:  # a broken disk; a NUL in the name
        raise InputError(f"{name} cannot be read ({first_line(error)}): check the path.") from None


def _opened(content: bytes, name: str, max_pixels: int) -> Image.Image:
    if not content:
        raise InputError(f"{name} is empty, with zero bytes: {_ANOTHER}.")
    try:
        return Image.open(io.BytesIO(content), formats=(*_FORMATS, *_of_extra(content, name)))
    except Image.DecompressionBombError:
        raise _too_large(name, max_pixels) from None
    except InputError:
        raise
    except UnidentifiedImageError:
        raise InputError(
            f"{name} is not an image of a known format: convert it to JPEG or PNG."
        ) from None
    except Exception as error:  # damaged headers make the decoders raise nearly anything
        raise _damaged(name, error) from None


def _of_extra(content: bytes, name: str) -> tuple[str, ...]:
    """The formats that need more than Pillow; pillow-heif turns images upright by itself."""
    brand = content[8:12] if content[4:8] == b"ftyp" else b""
    if brand not in _HEIC:
        return ()
    try:
        heif = importlib.import_module("pillow_heif")
    except ImportError:
        raise InputError(
            f"{name} is a HEIC image, which pillow-heif reads: {install('heif')}."
        ) from None
    heif.register_heif_opener()
    return ("HEIF",)


def _finished(image: Image.Image, name: str) -> Image.Image:
    """Load the image, turn it upright and convert it to RGB, as far as it is not so already."""
    try:
        image.load()
        turn = None
        with suppress(Exception):  # damaged EXIF data: the image itself may still be fine
            turn = _UPRIGHT.get(int(image.getexif().get(_ORIENTATION, 1)))
        return _as_rgb(image if turn is None else image.transpose(turn), name)
    except InputError:
        raise
    except Exception as error:  # damaged data make the decoders raise nearly anything
        raise _damaged(name, error) from None


class _Memory:
    """Memory that all threads share; a thread waits until enough of it is free."""

    def __init__(self, total: int) -> None:
        self._total, self._taken, self._change = total, 0, threading.Condition()

    @contextmanager
    def taken(self, amount: int, name: str) -> Iterator[None]:
        """Reserve ``amount`` bytes while the block runs; refuse more than the total."""
        if amount > self._total:
            raise InputError(
                f"{name} may need {amount:,} bytes of memory: scale it down or set CRG_MAX_MEMORY."
            )
        with self._change:
            self._change.wait_for(lambda: self._taken + amount <= self._total)
            self._taken += amount
        try:
            yield
        finally:
            with self._change:
                self._taken -= amount
                self._change.notify_all()


_memory = _Memory(MAX_MEMORY)


def _as_rgb(image: Image.Image, name: str) -> Image.Image:
    if image.mode[0] not in "IF":
        return _laid_on_white(image)
    values = np.asarray(image)
    if image.mode != "F":  # more than eight bits, maybe as integers of 32 bits
        if values.min() < 0 or values.max() > 65535:
            raise InputError(f"{name} holds integers of 32 bits: convert it to 8 or 16 bits.")
        values = values.astype(np.uint16)
    return Image.fromarray(_bytes_of(values)).convert("RGB")


def _laid_on_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    page = Image.new("RGBA", image.size, _WHITE)
    return Image.alpha_composite(page, image.convert("RGBA")).convert("RGB")


def _bytes_of(values: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """An array of pixels as 8-bit (H, W) or (H, W, 3 or 4)."""
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.ndim not in (2, 3) or 0 in values.shape or values.shape[2:] not in ((), (3,), (4,)):
        raise InputError(
            f"The image has the shape {values.shape}: give (height, width) or "
            "(height, width, channels) with 1, 3 or 4 channels."
        )
    if values.dtype == np.bool_:
        values = values * np.uint8(255)
    elif values.dtype.kind == "f":
        if not np.all((values >= 0) & (values <= 1)):  # NaN is not either
            raise InputError(
                "The image holds floating-point values outside 0 to 1 or NaN: "
                "divide by the largest possible value."
            )
        values = np.floor(values.astype(np.float32) * 255 + 0.5).astype(np.uint8)
    elif values.dtype == np.uint16:
        values = ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if values.dtype != np.uint8:
        raise InputError(f"The image holds {values.dtype} values: give uint8 from 0 to 255.")
    return np.ascontiguousarray(values)


def _too_large(name: str, max_pixels: int) -> InputError:
    more = " or set CRG_MAX_PIXELS" if max_pixels == MAX_PIXELS else ""
    return InputError(f"{name} has more than {max_pixels:,} pixels: scale it down{more}.")


def _damaged(name: str, error: Exception) -> InputError:
    return InputError(f"{name} cannot be decoded ({first_line(error)}): {_ANOTHER}.")
