"""Stream orders: in which order the pictures of a file reach a method."""

from __future__ import annotations

from typing import Any

import numpy as np

from crg.types import InputError


def shuffled(n: int, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers 0 to n - 1 in an order that depends on ``n`` and ``seed`` alone.

    >>> shuffled(5, seed=0).tolist() == shuffled(5, seed=0).tolist()
    True
    """
    if seed < 0:
        raise InputError(f"The seed is {seed}: give a whole number that is not negative.")
    generator = np.random.Generator(np.random.PCG64(seed))
    return generator.permutation(n).astype(np.int64)


def as_stored(n: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The order of the file. Files are often sorted by class, which is a hard stream."""
    return np.arange(n, dtype=np.int64)
