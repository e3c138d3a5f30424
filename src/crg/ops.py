"""Pure array functions that several methods share. They hold no state."""

from __future__ import annotations

import math
from dataclasses import dataclass

from array_api_compat import array_namespace

from crg.types import Array

_SHORTEST = 1e-12  # below this length a vector has no direction


def lengths(rows: Array) -> Array:
    """Euclidean length of each row, never below 1e-12 so that one can divide by it."""
    xp = array_namespace(rows)
    return xp.sqrt(xp.clip(xp.sum(rows * rows, axis=-1), _SHORTEST**2))


def normalize(rows: Array) -> Array:
    """Rows scaled to unit length."""
    return rows / lengths(rows)[..., None]


def softmax(logits: Array) -> Array:
    """Probabilities along the last axis."""
    xp = array_namespace(logits)
    weights = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def log_probs(probs: Array) -> Array:
    """Logarithm of probabilities, finite where one is zero."""
    xp = array_namespace(probs)
    return xp.log(xp.clip(probs, xp.finfo(probs.dtype).smallest_normal))


def entropy(probs: Array) -> Array:
    """H(p) = - sum p ln p along the last axis, in nats.

    The largest probability enters as one minus the rest, -(1 - rest) ln(1 - rest): near
    certainty it is rounded to one, but the rest is not, and queues order pictures by it.
    """
    xp = array_namespace(probs)
    classes = xp.arange(probs.shape[-1], device=probs.device)
    is_largest = classes == xp.argmax(probs, axis=-1, keepdims=True)
    others = xp.where(is_largest, xp.zeros_like(probs), probs)
    rest = xp.sum(others, axis=-1)
    return xp.abs((1.0 - rest) * xp.log1p(-rest) + xp.sum(others * log_probs(others), axis=-1))


def normalized_entropy(probs: Array) -> float:
    """H(p) / ln K of one distribution, in [0, 1]."""
    return min(1.0, float(entropy(probs)) / math.log(probs.shape[-1]))


@dataclass(frozen=True, slots=True, eq=False)
class Confident:
    """What the confident views of one picture say together."""

    kept: Array  # (m, D), the views of lowest entropy
    feature: Array  # (D,), their normalised mean
    probs: Array  # (K,), the mean of their probabilities
    label: int
    entropy: float


def confident_views(views: Array, text: Array, scale: float, share: float) -> Confident:
    """Keep the ``share`` of views with the lowest entropy under softmax(s f . t)."""
    xp = array_namespace(views)
    probs = softmax(scale * (views @ text.T))  # (V, K)
    n_kept = max(1, math.floor(share * views.shape[0] + 1e-9))
    if views.shape[0] > 1:
        keep = xp.argsort(entropy(probs), stable=True)[:n_kept]
        views, probs = xp.take(views, keep, axis=0), xp.take(probs, keep, axis=0)
    if n_kept == 1:  # a single view is its own mean, to the last bit
        feature, mean_probs = views[0, :], probs[0, :]
    else:
        feature, mean_probs = normalize(xp.mean(views, axis=0)), xp.mean(probs, axis=0)
    return Confident(
        kept=views,
        feature=feature,
        probs=mean_probs,
        label=int(xp.argmax(mean_probs)),
        entropy=float(entropy(mean_probs)),
    )
