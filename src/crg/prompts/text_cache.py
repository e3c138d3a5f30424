"""Text features kept on disk under a hash of what made them.

A file holds the sha256 of the features and then the features, float32. What cannot be read is
computed again, and what cannot be written is not kept: a cache never stops the work. Together the
files stay below ``ROOM``; those that were not used for longest go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from crg.atomic import replacing
from crg.encoders.base import Vectors
from crg.types import InputError

Cache: TypeAlias = Path | Literal["default"] | None
ROOM = 200_000_000  # bytes
_VERSION = 1  # raised when the same prompts would give other features
_DIGEST = hashlib.sha256().digest_size


def default_folder() -> Path | None:
    """$CRG_CACHE, or crg in the platform's folder for caches; None if there is no home."""
    if chosen := os.environ.get("CRG_CACHE"):
        return Path(chosen)
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        if base := os.environ.get(variable):
            return Path(base) / "crg"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "crg"


class TextCache:
    """The folder "text" of a cache; without a folder it finds nothing and keeps nothing."""

    def __init__(self, cache: Cache) -> None:
        base = default_folder() if cache == "default" else cache
        self.folder = Path(base) / "text" if base is not None else None

    def key(self, fingerprint: str, prompts: list[list[str]]) -> str:
        """A hash of the encoder's weights and of all prompts in their order."""
        content = json.dumps([_VERSION, fingerprint, prompts])
        return hashlib.sha256(content.encode()).hexdigest()

    def read(self, key: str, shape: tuple[int, int]) -> Vectors | None:
        """The features, or None if they are not there, damaged or of another shape."""
        if self.folder is None:
            return None
        try:
            content = self._file(key).read_bytes()
        except OSError:
            return None
        values = content[_DIGEST:]
        if hashlib.sha256(values).digest() != content[:_DIGEST]:
            return None
        if len(values) != 4 * shape[0] * shape[1]:
            return None
        with contextlib.suppress(OSError):
            os.utime(self._file(key))
        return np.frombuffer(values, dtype="<f4").reshape(shape).astype(np.float32)

    def write(self, key: str, features: Vectors) -> None:
        """Keep the features if that is possible."""
        if self.folder is None:
            return
        values = np.ascontiguousarray(features, dtype="<f4").tobytes()
        with contextlib.suppress(OSError, InputError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self._file(key)) as partial:
                partial.write_bytes(hashlib.sha256(values).digest() + values)
            self._make_room()

    def _file(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key}.features"

    def _make_room(self) -> None:
        assert self.folder is not None
        files = sorted(self.folder.glob("*.features"), key=lambda file: file.stat().st_mtime)
        total = sum(file.stat().st_size for file in files)
        while total > ROOM and len(files) > 1:
            oldest = files.pop(0)
            total -= oldest.stat().st_size
            oldest.unlink()
