"""Whether compiled kernels can be used, and which."""

from __future__ import annotations

import importlib
import os
from functools import cache
from types import ModuleType

import numpy as np

from crg.types import Array


def kernels_for(array: Array) -> ModuleType | None:
    """The compiled kernels, if ``array`` is NumPy's and numba is there; set CRG_COMPILED=0
    to do without them.
    """
    return _kernels() if isinstance(array, np.ndarray) else None


@cache
def _kernels() -> ModuleType | None:
    if os.environ.get("CRG_COMPILED", "1") == "0":
        return None
    try:
        return importlib.import_module("crg.parts.kernels")
    except (ImportError, RuntimeError):  # numba is an extra, and needs a folder for its cache
        return None
