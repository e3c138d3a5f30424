"""Small seeded tasks and streams for the checks: 5 classes, width 16, 1 or 8 views.

The logit scale is 20 where rounding must not matter: at 100 so narrow a task is nearly
always certain, and entropies of almost zero are put in order by their rounding errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crg.types import Task

Floats = np.ndarray[Any, Any]

N_CLASSES = 5
WIDTH = 16
VIEW_COUNTS = (1, 8)
ADDED = "one more"  # the class that checks add, in the direction of ``another_direction``


def make_task(
    dtype: str = "float64",
    *,
    n_classes: int = N_CLASSES,
    width: int = WIDTH,
    logit_scale: float = 20.0,
) -> Task:
    """Classes with random directions as text features."""
    text = np.random.default_rng(0).standard_normal((n_classes, width))
    names = [f"class {k}" for k in range(n_classes)]
    return Task(tuple(names), _unit(text).astype(dtype), logit_scale)


def make_stream(task: Task, n: int, views: int = 1, *, noise: float = 1.5, seed: int = 1) -> Floats:
    """Noisy images of every class in turn, (N, V, D): from clear to hardly recognisable."""
    rng = np.random.default_rng(seed)
    text = np.asarray(task.text_features)  # (K, D)
    labels = np.arange(n) % task.n_classes
    strength = noise * rng.uniform(0.1, 1.0, size=(n, 1)) / np.sqrt(task.width)
    images = text[labels] + strength * rng.standard_normal((n, task.width))
    jitter = 0.5 * strength[:, None] * rng.standard_normal((n, views, task.width))
    jitter[:, 0] = 0.0  # row 0 is the original
    return _unit(images[:, None] + jitter).astype(text.dtype)


def another_direction(task: Task, seed: int = 9) -> Floats:
    """A text feature that the task does not have yet, (D,)."""
    row = np.random.default_rng(seed).standard_normal(task.width)
    return _unit(row).astype(np.asarray(task.text_features).dtype)


def _unit(rows: Floats) -> Floats:
    unit: Floats = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return unit
