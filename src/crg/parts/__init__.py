"""The pieces that the papers name: cache, prototypes, residual, Gaussian."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from crg.ops import compiled
from crg.types import Array


def kernels_for(array: Array) -> ModuleType | None:
    """The compiled kernels, if ``array`` is NumPy's and they can be used."""
    return _kernels() if isinstance(array, np.ndarray) else None


def _kernels() -> ModuleType | None:
    return compiled("crg.parts.kernels")
