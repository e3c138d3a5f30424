"""Pure array functions that several methods share, and the way to their compiled forms."""

from __future__ import annotations

import functools
import importlib
import math
import os
from dataclasses import dataclass
from types import ModuleType

from crg.types import Array, namespace

_SHORTEST = 1e-12  # below this length a vector has no direction


def lengths(rows: Array) -> Array:
    """Euclidean length of each row, never below 1e-12 so that one can divide by it."""
    xp = namespace(rows)
    return xp.sqrt(xp.clip(xp.sum(rows * rows, axis=-1), _SHORTEST**2))


def normalize(rows: Array) -> Array:
    """Rows scaled to unit length."""
    return rows / lengths(rows)[..., None]


def softmax(logits: Array) -> Array:
    """Probabilities along the last axis."""
    xp = namespace(logits)
    weights = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def log_probs(probs: Array) -> Array:
    """Logarithm of probabilities, finite where one is zero."""
    xp = namespace(probs)
    return xp.log(xp.clip(probs, xp.finfo(probs.dtype).smallest_normal))


def entropy(probs: Array) -> Array:
    """H(p) = - sum p ln p along the last axis, in nats.

    The largest probability enters as one minus the rest, -(1 - rest) ln(1 - rest): near
    certainty it is rounded to one, but the rest is not, and queues order images by it.
    """
    xp = namespace(probs)
    classes = xp.arange(probs.shape[-1], device=probs.device)
    is_largest = classes == xp.argmax(probs, axis=-1, keepdims=True)
    others = xp.where(is_largest, xp.zeros_like(probs), probs)
    rest = xp.sum(others, axis=-1)
    return xp.abs((1.0 - rest) * xp.log1p(-rest) + xp.sum(others * log_probs(others), axis=-1))


def softmax_and_entropy(logits: Array) -> tuple[Array, Array]:
    """softmax(z) along the last axis and its entropy, the latter in double precision.

    With e = exp(z - max z) the entropy is ln(sum e) - sum e (z - max z) / sum e. The largest
    e is exactly one, so a sum in double precision keeps all digits of the others.
    """
    xp = namespace(logits)
    below = logits - xp.max(logits, axis=-1, keepdims=True)
    odds = xp.exp(below)
    total = xp.sum(odds, axis=-1, dtype=xp.float64)
    moment = xp.sum(odds * below, axis=-1, dtype=xp.float64)
    probs = odds / xp.astype(total, logits.dtype)[..., None]
    return probs, xp.log1p(total - 1.0) - moment / total


@dataclass(frozen=True, slots=True, eq=False)
class Confident:
    """The confident views of one image, and their joint prediction."""

    kept: Array  # (m, D), the views of lowest entropy
    logits: Array  # (m, K), s f . t for each of them
    feature: Array  # (D,), their normalised mean
    probs: Array  # (K,), the mean of their probabilities
    label: int
    entropy: float


def confident_views(views: Array, text: Array, scale: float, share: float) -> Confident:
    """Keep the ``share`` of views with the lowest entropy under softmax(s f . t)."""
    xp = namespace(views)
    logits = scale * (views @ text.T)  # (V, K)
    probs, entropies = softmax_and_entropy(logits)
    n_kept = count_kept(views.shape[0], share)
    if n_kept == 1:  # a single view is its own mean, to the last bit
        best = int(xp.argmin(entropies)) if views.shape[0] > 1 else 0
        kept, p, h = slice(best, best + 1), probs[best, :], float(entropies[best])
        label = int(xp.argmax(p))
        return Confident(views[kept, :], logits[kept, :], views[best, :], p, label, h)
    keep = xp.argsort(entropies, stable=True)[:n_kept]
    kept, p = xp.take(views, keep, axis=0), xp.mean(xp.take(probs, keep, axis=0), axis=0)
    feature, label = normalize(xp.mean(kept, axis=0)), int(xp.argmax(p))
    return Confident(kept, xp.take(logits, keep, axis=0), feature, p, label, float(entropy(p)))


def count_kept(n_views: int, share: float) -> int:
    """How many of the views are kept: the fraction of them, at least one."""
    return max(1, math.floor(share * n_views + 1e-9))


@functools.cache
def compiled(module: str) -> ModuleType | None:
    """The kernels of a module if numba is there; set CRG_COMPILED=0 to do without them."""
    if os.environ.get("CRG_COMPILED", "1") == "0":
        return None
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError):  # numba is an extra, and needs a folder for its cache
        return None
