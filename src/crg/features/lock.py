"""A lock on a folder that a killed process does not leave behind."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from crg.types import InputError

NAME = "lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``; whoever else wants it meanwhile is refused.

    The operating system lets go of the lock when its process ends, however it ends. What may
    stay is an empty file, which means nothing.
    """
    path = folder / NAME
    handle = _open_locked(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows keeps a file that is open
            path.unlink()
        os.close(handle)


def _open_locked(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _try_lock(handle):
            os.close(handle)
            raise InputError(
                f"Another process is writing to {path.parent}: wait until it is done or end it."
            )
        if _is_at(path, handle):
            return handle
        os.close(handle)  # its last holder has just taken the file away: there is a new one


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
