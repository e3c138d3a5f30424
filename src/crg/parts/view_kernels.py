"""Compiled forms of the loops over views and classes, where numba is installed.

All arrays have the classes first, (K, V), as ``selection`` keeps them. Sums over classes are
in double precision, as in ``ops.softmax_and_entropy``.
"""

# Arrays of any precision come in, so the functions are untyped; those who call them are not.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import math

import numpy as np

from crg.parts.kernels import compiled

_SMALLEST = 1e-300  # so that the logarithm of a probability is finite


@compiled
def fall(logits, scale, below):
    """logits *= s, and how far each is below the largest of its view."""
    a = logits.dtype.type(scale)
    top = logits[0] * a
    for k in range(logits.shape[0]):
        row = logits[k]
        for j in range(row.shape[0]):
            row[j] *= a
            top[j] = max(top[j], row[j])
    for k in range(logits.shape[0]):
        row, lower = logits[k], below[k]
        for j in range(row.shape[0]):
            lower[j] = row[j] - top[j]


@compiled
def sum_odds(odds, below):
    """sum e and sum e ln e over classes for each view, as rows of (2, V)."""
    sums = np.zeros((2, odds.shape[1]))
    total, moment = sums[0], sums[1]
    for k in range(odds.shape[0]):
        e, logarithm = odds[k], below[k]
        for j in range(e.shape[0]):
            total[j] += e[j]
            moment[j] += np.float64(e[j]) * np.float64(logarithm[j])
    return sums


@compiled
def gather(logits, odds, total, keep):
    """Logits of the kept views (m, K), and the mean of their probabilities (K,)."""
    n_classes, m = logits.shape[0], keep.shape[0]
    kept, probs = np.empty((m, n_classes), logits.dtype), np.empty(n_classes, logits.dtype)
    for k in range(n_classes):
        share = 0.0
        for i in range(m):
            kept[i, k] = logits[k, keep[i]]
            share += odds[k, keep[i]] / total[keep[i]]
        probs[k] = share / m
    return kept, probs


@compiled
def entropy(probs, label):
    """``ops.entropy`` of one distribution whose largest probability is that of ``label``."""
    rest = moment = 0.0
    for k in range(probs.shape[0]):
        if k != label:
            p = np.float64(probs[k])
            rest += p
            moment += p * math.log(max(p, _SMALLEST))
    return abs((1.0 - rest) * math.log1p(-rest) + moment)


@compiled
def direction(rows):
    """The mean of ``rows`` (m, D), scaled to unit length."""
    mean = np.zeros(rows.shape[1], rows.dtype)
    for j in range(rows.shape[0]):
        mean += rows[j]
    square = np.float64(0.0)
    for d in range(mean.shape[0]):
        mean[d] /= rows.shape[0]
        square += mean[d] * mean[d]
    return mean / mean.dtype.type(max(math.sqrt(square), 1e-12))
