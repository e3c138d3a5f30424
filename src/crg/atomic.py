"""Files written whole or not at all, their checksums, and places checked before long work."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from crg.types import InputError


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse, before any work, a place that nothing can be written to."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{path} is a folder: give the name of a file in it.")
    try:
        with tempfile.TemporaryFile(dir=target.absolute().parent):
            pass
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}): "
            "choose a folder that exists and is writable."
        ) from None


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its place only when all went well."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{path} is a folder: give the name of a file in it.")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}): "
            "choose a folder that exists and is writable."
        ) from None
    partial = Path(name)
    try:
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.chmod(0o666 & ~_umask())
        partial.replace(target)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}): make room or choose another place."
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
