"""Makes open_clip importable where torchvision was built for another torch.

PyPI's torchvision is built for CUDA. Beside a torch without CUDA its compiled operators do not
load, and then its registration of their shapes fails, although nothing of open_clip uses them.
Declaring their names first is enough for the transforms, which are plain Python.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

import pytest


@functools.cache
def open_clip() -> Any:
    """The module open_clip; the test is skipped where it is not installed."""
    if importlib.util.find_spec("open_clip") is None:
        pytest.skip("open_clip is not installed: install crg-tta[openclip]")
    declared_operators()
    return importlib.import_module("open_clip")


@functools.cache
def declared_operators() -> Any:
    """What keeps the declarations alive, or None if torchvision brings its own."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library: Any = importlib.import_module("torch.library")
        names = library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            names.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return names
    return None
