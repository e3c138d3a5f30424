"""Journal: the features of images that were answered after the state was saved last.

After a crash the state is older than the answers. The journal brings it up to them without the
images, which may have been moved away since. It is a file of records, each with its step,
its shape, the features and a checksum; what a crash cut off at the end is left out. With
``keep_all`` it holds the features of the whole stream, for a second pass. It is read record by
record, so that its size does not matter.
"""

from __future__ import annotations

import os
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

    def __init__(self, path: Path, keep_all: bool = False) -> None:
        self.path, self.keep_all = path, keep_all

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

    def cut_after(self, step: int) -> None:
        """Leave out what a crash cut off, and what belongs to later steps than ``step``."""
        end = 0
        for found, _, place in self._records():
            if found > step:
                break
            end = place
        if self.path.exists():
            os.truncate(self.path, end)

    def __iter__(self) -> Iterator[tuple[int, Numbers]]:
        """Step and views (V, D) of every whole record."""
        for step, views, _ in self._records():
            yield step, views

    def _records(self) -> Iterator[tuple[int, Numbers, int]]:
        """Step, views and where the record ends, of every whole record."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                step, n_views, width = _HEAD.unpack(head)
                if n_views * width > _MOST:
                    return
                content, check = file.read(4 * n_views * width), file.read(_CHECK.size)
                if check != _CHECK.pack(zlib.crc32(content, zlib.crc32(head))):
                    return
                rows = np.frombuffer(content, "<f4").reshape(n_views, width)
                yield step, rows.astype(np.float32), file.tell()
