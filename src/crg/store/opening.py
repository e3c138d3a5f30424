"""Opening a store that is finished."""

from __future__ import annotations

import os
from pathlib import Path

from crg.features import Features, read_features
from crg.types import InputError


def open_store(path: str | os.PathLike[str], verify: bool = True) -> Features:
    """The features of a finished store, mapped into memory rather than loaded.

    Every checksum is computed unless ``verify`` is false, which leaves out the large file.
    """
    if not Path(path).is_dir():
        raise InputError(f"{path} is no folder: give a store that crg encode made.")
    return read_features(path, verify=verify)
