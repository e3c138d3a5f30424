"""Files written whole or not at all, their checksums, and places checked before long work."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import filelock

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
        raise not_writable(path, error) from None


def not_writable(path: str | os.PathLike[str], error: OSError) -> InputError:
    """The sentence for a place that nothing can be written to."""
    return InputError(
        f"{path} cannot be written ({error.strerror}): choose a folder that exists and is writable."
    )


def make_folder(folder: Path, option: str) -> None:
    """Make a folder and those above it; ``option`` names another one if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made ({error.strerror}): choose another folder with {option}."
        ) from None


def content_of(path: Path, remedy: str = "check the path") -> bytes:
    """The content of a file; one that cannot be read is refused."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): {remedy}.") from None


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def check_ours(path: Path, mark: bytes, option: str) -> None:
    """Refuse, before any work, a place that holds what we did not write or cannot be written."""
    if path.is_file() and mark not in path.read_bytes():
        raise InputError(f"{path} exists and is not ours: choose another name with {option}.")
    check_place(path)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Reserve ``path`` for this process; a second one that wants to write there is refused."""
    check_place(path)
    with locked_folder(path):
        yield


@contextlib.contextmanager
def locked_folder(path: str | os.PathLike[str], wait: bool = False) -> Iterator[None]:
    """Reserve a folder, which need not exist yet, for this process.

    With ``wait`` a second process waits instead of being refused.
    """
    target = Path(path)
    lock = filelock.FileLock(target.with_name(f".{target.name}.lock"), mode=0o666)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except filelock.Timeout:
        raise InputError(
            f"{path} is being written by another process: wait for it or choose another name."
        ) from None
    except OSError as error:
        raise not_writable(path, error) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows removes no open file
            os.unlink(lock.lock_file)  # while locked: who opened it before opens the name again
        lock.release()


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its place only when all went well."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{path} is a folder: give the name of a file in it.")
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        partial.touch(exist_ok=False)
    except OSError as error:
        raise not_writable(path, error) from None
    try:
        yield partial
        sync(partial)
        partial.replace(target)
        with contextlib.suppress(OSError):  # where folders cannot be synced, nothing is lost
            sync(target.parent)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}): make room or choose another place."
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
