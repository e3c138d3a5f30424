"""Files that are no readable images, and why."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from crg.images import MAX_PIXELS, read_image
from crg.types import InputError


def find_faults(
    files: Mapping[str, Path], decode: bool, workers: int, advance: Callable[[], None]
) -> dict[str, str]:
    """What is wrong with those files that are damaged, by name.

    Without ``decode`` only the header is looked at, which is fast but misses a JPEG file that
    was cut off.
    """
    look = _decode_fault if decode else _header_fault
    faults = {}
    with ThreadPoolExecutor(workers) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about what is told as a fault here
        for name, fault in zip(files, pool.map(look, files.values()), strict=True):
            advance()
            if fault:
                faults[name] = fault
    return faults


def _header_fault(path: Path) -> str:
    if path.stat().st_size == 0:
        return "zero bytes"
    try:
        with Image.open(path) as image:
            too_large = image.width * image.height > MAX_PIXELS
            image.verify()
    except UnidentifiedImageError:
        return "not an image"
    except Exception as error:  # damaged headers make the decoders raise nearly anything
        return " ".join(str(error).split())
    return f"more than {MAX_PIXELS:,} pixels" if too_large else ""


def _decode_fault(path: Path) -> str:
    try:
        read_image(path)
    except InputError as error:
        return str(error)
    return ""
