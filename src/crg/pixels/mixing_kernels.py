"""Compiled parts of AugMix, where numba is installed."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import numpy as np

from crg.pixels.affine_kernels import affine
from crg.pixels.kernels import compiled

__all__ = ["add_share", "affine", "count", "finish", "look_up"]


@compiled
def count(pixels, counts):
    """How often each value occurs, per channel, (3, 256)."""
    for i in range(0, pixels.shape[0], 3):
        counts[0, pixels[i]] += 1
        counts[1, pixels[i + 1]] += 1
        counts[2, pixels[i + 2]] += 1


@compiled
def look_up(old, table, new):
    """Each channel by its own table."""
    for i in range(0, old.shape[0], 3):
        new[i] = table[0, old[i]]
        new[i + 1] = table[1, old[i + 1]]
        new[i + 2] = table[2, old[i + 2]]


@compiled
def add_share(pixels, share, total):
    """total += share pixels."""
    for i in range(total.shape[0]):
        total[i] += np.float32(pixels[i]) * share


@compiled
def finish(total, pixels):
    """Whole values."""
    for i in range(total.shape[0]):
        pixels[i] = np.uint8(min(total[i] + np.float32(0.5), np.float32(255)))
