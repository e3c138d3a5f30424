"""Small made streams for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]


def clustered(
    seed: int, n: int, n_classes: int = 10, width: int = 32, n_views: int = 1
) -> tuple[Floats, Floats]:
    """Text (K, D) and views (n, V, D) of noisy clusters, all of unit length.

    The noise falls along the stream, so that later images are more confident and
    keep throwing earlier ones out of a cache.
    """
    rng = np.random.default_rng(seed)
    centres = unit(rng.normal(size=(n_classes, width)))
    text = unit(centres + 0.12 * rng.normal(size=centres.shape))
    noise = np.linspace(0.35, 0.12, n)[:, None]
    images = centres[rng.integers(n_classes, size=n)] + noise * rng.normal(size=(n, width))
    views = images[:, None, :] + 0.1 * rng.normal(size=(n, n_views, width))
    views[:, 0, :] = images
    return text, unit(views)


def unit(rows: Floats) -> Floats:
    """Rows of unit length."""
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))
