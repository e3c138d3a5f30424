"""Feature files that many runs share, read once in each process."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

from crg.features.few_shot import with_few
from crg.features.files import Features, read_features
from crg.features.joining import joined

_Version = tuple[str, int, int]  # path, time of the last change, size


def read_once(path: str, then: Sequence[str] = ()) -> Features:
    """The features of a file, with those of the files ``then``, read again if one has changed."""
    return _read_versions(tuple(_version(each) for each in (path, *then)))


def read_with_few(path: str, few: str | None, then: Sequence[str] = ()) -> Features:
    """The features of a file, with labelled images from another one if it is named."""
    features = read_once(path, then)
    return features if few is None else with_few(features, read_once(few))


def forget_files() -> None:
    """Give back the memory of the files that were read."""
    _read_versions.cache_clear()


def _version(path: str) -> _Version:
    try:
        status = os.stat(path)
    except OSError:
        return path, 0, 0  # what is wrong is told when it is read
    return path, status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=2)
def _read_versions(versions: tuple[_Version, ...]) -> Features:
    parts = [read_features(path) for path, _, _ in versions]
    return parts[0] if len(parts) == 1 else joined(parts)
