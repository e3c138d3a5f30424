"""Journal: the features of images that were answered after the state was saved last.

After a crash the state is older than the answers. The journal brings it up to them without the
images, which may have been moved away meanwhile. It is a file of records, each with its step,
its shape, the features and a checksum; what a crash cut off at the end is left out.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from crg.types import InputError

_HEAD = struct.Struct("<qII")  # step, views, width
_CHECK = struct.Struct("<I")
_MOST = 1 << 28  # numbers in one record; a larger one is damage

Numbers = np.ndarray[Any, Any]


class Journal:
    """Records are added one by one, and cleared when the state has been saved."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, step: int, views: Numbers) -> None:
        """One image more, with its views (V, D) as they were given to the adapter."""
        rows = np.ascontiguousarray(views, dtype="<f4")
        content = _HEAD.pack(step, *rows.shape) + rows.tobytes()
        try:
            with self.path.open("ab") as file:
                file.write(content + _CHECK.pack(zlib.crc32(content)))
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written ({error.strerror}): "
                "make room and use --resume, for the lines before are kept."
            ) from None

    def clear(self) -> None:
        """The state has all that is here."""
        self.path.unlink(missing_ok=True)

    def __iter__(self) -> Iterator[tuple[int, Numbers]]:
        """Step and views (V, D) of every whole record."""
        content = self.path.read_bytes() if self.path.exists() else b""
        place = 0
        while len(content) - place >= _HEAD.size:
            step, n_views, width = _HEAD.unpack_from(content, place)
            if n_views * width > _MOST:
                return
            end = place + _HEAD.size + 4 * n_views * width
            if len(content) < end + _CHECK.size:
                return
            if _CHECK.unpack_from(content, end)[0] != zlib.crc32(content[place:end]):
                return
            rows = np.frombuffer(content, "<f4", n_views * width, place + _HEAD.size)
            yield step, rows.reshape(n_views, width).astype(np.float32)
            place = end + _CHECK.size
