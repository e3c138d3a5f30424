"""The folder of a store: what may be in it, and how files get there whole or not at all."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from crg import storage
from crg.saving import replacing
from crg.storage import HALF, Header, Numbers
from crg.store import journal, locking
from crg.types import InputError

PARTIAL = "image_features.partial"
TRACES = (PARTIAL, journal.NAME)  # of a store that is not finished
_FINISHED = (
    *(storage.HEADER, storage.IMAGES, storage.TEXT),
    *(storage.LABELS, storage.IDS, storage.SKIPPED),
)
_OWN = (*_FINISHED, *TRACES, locking.NAME)


@contextlib.contextmanager
def telling_of_the_disk(folder: Path) -> Iterator[None]:
    """Whatever the disk refuses becomes one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written ({error.strerror or error}): make room there or choose "
            "another folder, and the same command goes on with what is kept."
        ) from None


def check_folder(folder: Path) -> None:
    """A folder of something else is left alone."""
    if folder.is_file():
        raise InputError(f"{folder} is a file: give the name of a folder, which may be new.")
    found = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    strange = [name for name in found if name not in _OWN and not _is_temporary(name)]
    if strange and storage.HEADER not in found:
        raise InputError(
            f"{folder} holds something else than a store ({sorted(strange)[0]}): "
            "give an empty folder or a new one."
        )


def check_left_out(folder: Path, accept_skipped: bool) -> None:
    """Images are never missing silently from a finished store."""
    left_out = storage.skipped_images(folder)
    if left_out and not accept_skipped:
        raise InputError(
            f"{folder} lacks images that could not be read ({len(left_out)}): accept that with "
            "--skip-unreadable, or mend them and encode into another folder."
        )


def _is_temporary(name: str) -> bool:
    return any(name.startswith(f".{own}.") for own in _OWN)


def sweep_temporary_files(folder: Path) -> None:
    """Remove what a killed process was about to put into place."""
    sweep(folder, [path.name for path in folder.iterdir() if _is_temporary(path.name)])


def sweep(folder: Path, names: Iterable[str]) -> None:
    """Remove these files if they are there."""
    for name in names:
        (folder / name).unlink(missing_ok=True)


def put_header(folder: Path, header: Header) -> None:
    """Write ``store.json``."""
    put(folder / storage.HEADER, storage.header_bytes(header))


def put(path: Path, content: bytes) -> None:
    """Write a file, at once or not at all."""
    with replacing(path) as partial:
        partial.write_bytes(content)


def preamble(shape: tuple[int, int, int]) -> bytes:
    """What an ``.npy`` file of half-precision numbers has before them."""
    buffer = io.BytesIO()
    facts = {"descr": HALF.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, facts)
    return buffer.getvalue()


def npy(array: Numbers) -> bytes:
    """An array as an ``.npy`` file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def json_bytes(value: Any) -> bytes:
    """A value as a JSON file."""
    return json.dumps(value, indent=0).encode() + b"\n"
