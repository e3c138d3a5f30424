"""Journal: arrays that are appended to a file, of which a crash costs the last one at most."""

from __future__ import annotations

import itertools
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from crg.encoders.base import Vectors
from crg.types import InputError

_HEAD = struct.Struct("<qIII")  # step, rows, width, checksum
_MOST = 1 << 30  # bytes in one record; a larger one is damage


class Journal:
    """An array for each image of a stream, such as the features that were given to the adapter.

    They bring a state up to the answers without the images, which may have been moved away since,
    and are what a second pass reads. A record has its step, its shape, a checksum and the numbers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, step: int, rows: Vectors) -> None:
        """One image more, with its views (V, D) or another array of two dimensions."""
        content = np.ascontiguousarray(rows, dtype="<f4").tobytes()
        check = zlib.crc32(content, zlib.crc32(_HEAD.pack(step, *rows.shape, 0)))
        try:
            with self.path.open("ab") as file:
                file.write(_HEAD.pack(step, *rows.shape, check) + content)
        except OSError as error:
            raise no_room(self.path, error) from None

    def cut(self, count: int) -> int:
        """Keep the first ``count`` complete records at most; returns how many there are now."""
        ends = [end for _, _, end in itertools.islice(self, count)]
        if self.path.exists():
            os.truncate(self.path, max(ends, default=0))
        return len(ends)

    def __iter__(self) -> Iterator[tuple[int, Vectors, int]]:
        """Step and rows of every complete record, and where it ends."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                step, n_rows, width, check = _HEAD.unpack(head)
                content = file.read(min(4 * n_rows * width, _MOST))
                seed = zlib.crc32(_HEAD.pack(step, n_rows, width, 0))
                if check != zlib.crc32(content, seed):
                    return
                rows = np.frombuffer(content, "<f4").reshape(n_rows, width)
                yield step, rows.astype(np.float32), file.tell()


def no_room(path: Path | None, error: OSError) -> InputError:
    """The sentence for a file, or standard output if there is none, on a disk without room."""
    remedy = "make room and use --resume, for the lines before are kept" if path else "make room"
    why = f"cannot be written ({error.strerror})"
    return InputError(f"{path or 'standard output'} {why}: {remedy}.")
