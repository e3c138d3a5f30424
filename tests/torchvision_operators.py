"""The module open_clip, also where torchvision was built for another torch."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import pytest

from crg.encoders.base import library


@functools.cache
def open_clip() -> Any:
    """The module open_clip; the test is skipped where it is not installed."""
    if importlib.util.find_spec("open_clip") is None:
        pytest.skip("open_clip is not installed: install crg-tta[openclip]")
    return library("open_clip", "openclip")


def declared_operators() -> None:
    """Make torchvision importable for libraries that a test imports by itself."""
    library("torchvision", "openclip")
