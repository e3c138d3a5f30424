"""Small streams of synthetic features, for tests and benchmarks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crg.features.files import Features
from crg.types import Task

Numbers = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]

# Squared lengths measured on CLIP ViT-B/32 features of four benchmarks: the part that all
# images (or all texts) share, and the part that separates classes.
_SHARED_IMAGE, _CLASS_IMAGE = 0.66, 0.10
_SHARED_TEXT, _CLASS_TEXT = 0.81, 0.19
_COSINE_ACROSS = 0.27  # between the shared image and the shared text direction
_DECAY = 0.8  # the covariance's eigenvalues fall like rank ** -0.8


def gaussian_stream(
    n: int = 1500,
    n_classes: int = 20,
    width: int = 64,
    n_views: int = 1,
    agreement: float = 0.72,
    seed: int = 0,
) -> Features:
    """Gaussian classes on the sphere, seen through text features that partly agree with them.

    An image is the direction that all images share, plus the mean of its class, plus noise from
    one covariance with a decaying spectrum; further views are the image plus a little of that
    noise. A text feature is the direction that all texts share, at a fixed small cosine to that of
    the images, plus a class part that correlates by ``agreement`` with the class mean. Lengths and
    cosines are CLIP's; ``agreement`` was set for a zero-shot accuracy of 60 to 70%.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    basis, _ = np.linalg.qr(rng.standard_normal((width, width)))
    shared_image, other = basis[:, 0], basis[:, 1]
    shared_text = _COSINE_ACROSS * shared_image + math.sqrt(1.0 - _COSINE_ACROSS**2) * other
    values = np.arange(1, width - 1) ** -_DECAY
    # gives standard normal rows a covariance of trace one, (D - 2, D)
    spread = np.asarray(np.sqrt(values / values.sum())[:, None] * basis[:, 2:].T)
    means = unit(rng.standard_normal((n_classes, width - 2)) @ spread)
    labels = rng.integers(n_classes, size=n)
    noise_length = math.sqrt(1.0 - _SHARED_IMAGE - _CLASS_IMAGE)
    images = (
        math.sqrt(_SHARED_IMAGE) * shared_image
        + math.sqrt(_CLASS_IMAGE) * means[labels]
        + noise_length * (rng.standard_normal((n, width - 2)) @ spread)
    )
    own = unit(rng.standard_normal((n_classes, width - 2)) @ spread)
    class_part = agreement * means + math.sqrt(1.0 - agreement**2) * own
    text = math.sqrt(_SHARED_TEXT) * shared_text + math.sqrt(_CLASS_TEXT) * class_part
    names = tuple(f"class {k:02d}" for k in range(n_classes))
    views = _views(rng, images, n_views, spread)
    return Features(views.astype(np.float32), Task(names, text.astype(np.float32)), labels)


def _views(rng: np.random.Generator, images: Numbers, n_views: int, spread: Numbers) -> Numbers:
    """Unit images (N, D), or (N, V, D) with the image itself as the first view."""
    if n_views == 1:
        return unit(images)
    jitter = 0.3 * (rng.standard_normal((len(images), n_views, len(spread))) @ spread)
    jitter[:, 0, :] = 0.0
    return unit(images[:, None, :] + jitter)


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
