"""Whether the compiled pixel kernels can be used."""

from __future__ import annotations

import importlib
import os
from functools import cache
from types import ModuleType

WORTH_COMPILING = 8  # images; for fewer, loading the kernels takes longer than they save


@cache
def pixel_kernels() -> ModuleType | None:
    """The compiled kernels if numba is there; set CRG_COMPILED=0 to do without them."""
    if os.environ.get("CRG_COMPILED", "1") == "0":
        return None
    try:
        return importlib.import_module("crg.images.kernels")
    except (ImportError, RuntimeError):  # numba is an extra, and needs a folder for its cache
        return None
