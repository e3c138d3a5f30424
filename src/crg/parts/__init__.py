"""The pieces that the papers name: cache, prototypes, residual, Gaussian."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import ParamSpec, TypeVar

import numpy as np

from crg.ops import compiled

P = ParamSpec("P")
R = TypeVar("R")


def fused(plain: Callable[P, R]) -> Callable[P, R]:
    """Run the function of the same name in ``parts.kernels`` instead, where that is possible.

    It is possible if numba is installed and the first argument is a NumPy array. Both forms
    compute the same up to rounding; the tests compare them.
    """

    @functools.wraps(plain)
    def chosen(*args: P.args, **kwargs: P.kwargs) -> R:
        kernels = _kernels() if isinstance(args[0], np.ndarray) else None
        form = plain if kernels is None else getattr(kernels, plain.__name__)
        result: R = form(*args, **kwargs)
        return result

    return chosen


def _kernels() -> ModuleType | None:
    return compiled("crg.parts.kernels")
