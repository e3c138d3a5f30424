"""A small labelled stream of synthetic features, for tests and benchmarks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crg.features.files import Features
from crg.types import Task

Numbers = np.ndarray[Any, Any]

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

    Images and texts each share a direction; what varies is orthogonal to both and comes
    from one random covariance with a decaying spectrum, as in real encoders. An image is
    the direction that all images share, plus the mean of its class, plus Gaussian noise,
    scaled to unit length. A text feature is the direction that all texts share (at a fixed
    small cosine to that of the images: the modality gap), plus a class part that
    correlates by ``agreement`` with the class mean and is noise otherwise. Further views of
    an image are the image plus a little of the same noise. The lengths of the parts are
    those of CLIP's features, so that the cosines lie where CLIP's lie; ``agreement`` was set
    for a zero-shot accuracy of 60 to 70%, and nothing was set by looking at other methods.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    basis, _ = np.linalg.qr(rng.standard_normal((width, width)))
    shared_image, shared_text = _shared_directions(basis[:, 0], basis[:, 1])
    spread = _spread(basis[:, 2:])
    means = _unit(rng.standard_normal((n_classes, width - 2)) @ spread)
    labels = rng.integers(n_classes, size=n)
    noise_length = math.sqrt(1.0 - _SHARED_IMAGE - _CLASS_IMAGE)
    images = (
        math.sqrt(_SHARED_IMAGE) * shared_image
        + math.sqrt(_CLASS_IMAGE) * means[labels]
        + noise_length * (rng.standard_normal((n, width - 2)) @ spread)
    )
    own = _unit(rng.standard_normal((n_classes, width - 2)) @ spread)
    class_part = agreement * means + math.sqrt(1.0 - agreement**2) * own
    text = math.sqrt(_SHARED_TEXT) * shared_text + math.sqrt(_CLASS_TEXT) * class_part
    names = tuple(f"class {k:02d}" for k in range(n_classes))
    views = _views(rng, images, n_views, spread)
    return Features(views.astype(np.float32), Task(names, text.astype(np.float32)), labels)


def _shared_directions(image: Numbers, other: Numbers) -> tuple[Numbers, Numbers]:
    """Two unit vectors, one for images and one for texts, at a fixed cosine."""
    return image, _COSINE_ACROSS * image + math.sqrt(1.0 - _COSINE_ACROSS**2) * other


def _spread(basis: Numbers) -> Numbers:
    """A matrix (D - 2, D) that gives standard normal rows a covariance of trace one."""
    values = np.arange(1, basis.shape[1] + 1) ** -_DECAY
    return np.asarray(np.sqrt(values / values.sum())[:, None] * basis.T)


def _views(rng: np.random.Generator, images: Numbers, n_views: int, spread: Numbers) -> Numbers:
    """Unit images (N, D), or (N, V, D) with the image itself as the first view."""
    if n_views == 1:
        return _unit(images)
    jitter = 0.3 * (rng.standard_normal((len(images), n_views, len(spread))) @ spread)
    jitter[:, 0, :] = 0.0
    return _unit(images[:, None, :] + jitter)


def _unit(rows: Numbers) -> Numbers:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))
