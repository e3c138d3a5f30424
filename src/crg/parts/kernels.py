"""Compiled forms of the hot loops, for NumPy arrays, where numba is installed.

Nothing here is another algorithm. ``measure``, ``weigh`` and ``move_...`` are the residual
step together with the sums over rows that the prediction needs, without the some forty
(K, D) arrays that array code makes on the way; the others are single lines of array code
without their temporaries. The tests hold them to the plain forms in ``residual``,
``motion``, ``prototypes`` and ``gaussian``.

The loops stay in small functions over few arrays because the compiler vectorises them only
then: as one large function they ran several times slower.

Letters as in ``residual``: K classes, D width, m kept views. What is summed over D is
summed in the type of the arrays, what is one number per class is in double precision.
"""

# Arrays of any precision come in, so the functions are untyped; those who call them are not.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

# Sums may be reordered, which is what lets them be vectorised; NaN and infinity stay what
# they are. The error model of NumPy drops the test for zero before every division.
compiled: Any = njit(
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"reassoc", "contract", "arcp", "nsz"},
)
_SHORTEST = 1e-12  # as in ops.lengths


@compiled
def dot(x, y):
    """x . y in the wider type of the two."""
    total = x.dtype.type(0.0) * y.dtype.type(0.0)
    for d in range(x.shape[0]):
        total += x[d] * y[d]
    return total


@compiled
def mix(x, y, of_x, of_y, out):
    """out = a x + b y."""
    a, b = out.dtype.type(of_x), out.dtype.type(of_y)
    for d in range(out.shape[0]):
        out[d] = a * x[d] + b * y[d]


@compiled
def stretch(row, factor):
    """row *= a."""
    a = row.dtype.type(factor)
    for d in range(row.shape[0]):
        row[d] *= a


@compiled
def descend(start, gradient, views, factors, rate, eps, out):
    """out = start - lr g / (|g| + eps) for g = gradient + sum_j factor_j view_j.

    The arrays must not overlap: a loop over arrays that might is not vectorised.
    """
    width = start.shape[0]
    for j in range(views.shape[0]):
        view, factor = views[j], start.dtype.type(factors[j])
        for d in range(width):
            gradient[d] += factor * view[d]
    lr, small = start.dtype.type(rate), start.dtype.type(eps)
    for d in range(width):
        out[d] = start[d] - lr * gradient[d] / (abs(gradient[d]) + small)


@compiled
def measure(views, text, positive, total):
    """|t|, |v+|, |v-| and v+ . v- as rows of (4, K), and f . v+ for each kept view (m, K)."""
    n_classes, width = positive.shape
    sizes, along = np.empty((4, n_classes)), np.empty((views.shape[0], n_classes))
    negative = np.empty(width, positive.dtype)
    share = 1.0 / (n_classes - 1)
    for k in range(n_classes):
        v = positive[k]
        mix(total, v, share, -share, negative)
        sizes[0, k] = max(math.sqrt(dot(text[k], text[k])), _SHORTEST)
        sizes[1, k] = max(math.sqrt(dot(v, v)), _SHORTEST)
        sizes[2, k] = max(math.sqrt(dot(negative, negative)), _SHORTEST)
        sizes[3, k] = dot(v, negative)
        for j in range(views.shape[0]):
            along[j, k] = dot(views[j], v)
    return sizes, along


@compiled
def entropy_slope(z):
    """Gradient of H(mean over rows of softmax(z)) with respect to z, in place of it (m, K)."""
    m, n_classes = z.shape
    mean = np.zeros(n_classes)
    for j in range(m):
        z[j] = np.exp(z[j] - z[j].max())
        z[j] /= z[j].sum()
        mean += z[j] / m
    for k in range(n_classes):
        mean[k] = -math.log(max(mean[k], 1e-300)) / m
    for j in range(m):
        z[j] *= mean - dot(z[j], mean)


@compiled
def weigh(views, logits, total, sizes, along, rule):
    """Factors of the views in the three gradients (3, K, m), and X . u for each set (3, K).

    X is the gradient with respect to the unit rows u. ``Unit.pull_back`` takes away its
    part along u and divides by the length, which the factors have behind them already.
    """
    scale, lambda1, lambda2, beta, _, xi2 = rule[:6]
    m, n_classes = logits.shape
    factors, onto = np.empty((3, n_classes, m)), np.zeros((3, n_classes))
    a, b, slope = np.empty_like(along), np.empty_like(along), np.empty_like(along)
    cosines = np.empty((3, m, n_classes))
    for j in range(m):
        to_total = dot(views[j], total)
        for k in range(n_classes):
            cosines[0, j, k] = logits[j, k] / (scale * sizes[0, k])
            cosines[1, j, k] = along[j, k] / sizes[1, k]
            cosines[2, j, k] = (to_total - along[j, k]) / ((n_classes - 1) * sizes[2, k])
            a[j, k] = lambda1 * math.exp(beta * (cosines[1, j, k] - 1.0))
            b[j, k] = lambda2 * math.exp(beta * (1.0 - cosines[2, j, k]))
            slope[j, k] = scale * cosines[0, j, k] + a[j, k] + b[j, k]
    entropy_slope(slope)
    for k in range(n_classes):
        onto[1, k] = onto[2, k] = xi2 * sizes[3, k] / (sizes[1, k] * sizes[2, k])
        for j in range(m):
            factors[0, k, j] = scale * slope[j, k]
            factors[1, k, j] = beta * slope[j, k] * a[j, k]
            factors[2, k, j] = -beta * slope[j, k] * b[j, k]
            for i in range(3):
                onto[i, k] += factors[i, k, j] * cosines[i, j, k]
                factors[i, k, j] /= sizes[i, k]
    return factors, onto


@compiled
def expand(mu, reference, solved, spread):
    """w . d, d . d and |d| . spread for d = mu - m."""
    along, square, reach = mu.dtype.type(0.0), mu.dtype.type(0.0), mu.dtype.type(0.0)
    for d in range(mu.shape[0]):
        moved = mu[d] - reference[d]
        along += solved[d] * moved
        square += moved * moved
        reach += abs(moved) * spread[d]
    return along, square, reach


@compiled
def move_text(views, factors, onto, sizes, text, separation, f, xi1, rate, eps, moved, cosines):
    """t' for every class, and its cosine to f: g = (X - (X.u) u) / |t| + xi1 L_inter'."""
    g = np.empty(text.shape[1], text.dtype)
    for k in range(text.shape[0]):
        row = moved[k]
        mix(separation[k], text[k], xi1, -onto[k] / sizes[k] ** 2, g)
        descend(text[k], g, views, factors[k], rate, eps, row)
        stretch(row, 1.0 / max(math.sqrt(dot(row, row)), _SHORTEST))
        cosines[k] = dot(row, f)


@compiled
def move_positive(views, factors, onto, sizes, positive, total, f, xi2, rate, eps, means, cosines):
    """mu for every class, and the cosine of f to v+': X = beta sum slope a f + xi2 v-/|v-|."""
    g, negative = np.empty_like(total), np.empty_like(total)
    share = 1.0 / (positive.shape[0] - 1)
    for k in range(positive.shape[0]):
        size_v, size_w = sizes[1, k], sizes[2, k]
        mix(total, positive[k], share, -share, negative)
        mix(negative, positive[k], xi2 / (size_w * size_v), -onto[k] / size_v**2, g)
        descend(positive[k], g, views, factors[k], rate, eps, means[k])
        cosines[k] = dot(means[k], f) / max(math.sqrt(dot(means[k], means[k])), _SHORTEST)


@compiled
def move_negative(views, factors, onto, sizes, positive, total, f, xi2, rate, eps, cosines):
    """The cosine of f to v-' for every class: X = -beta sum slope b f + xi2 v+/|v+|."""
    g, negative, row = np.empty_like(total), np.empty_like(total), np.empty_like(total)
    share = 1.0 / (positive.shape[0] - 1)
    for k in range(positive.shape[0]):
        size_v, size_w = sizes[1, k], sizes[2, k]
        mix(total, positive[k], share, -share, negative)
        mix(positive[k], negative, xi2 / (size_v * size_w), -onto[k] / size_w**2, g)
        descend(negative, g, views, factors[k], rate, eps, row)
        cosines[k] = dot(row, f) / max(math.sqrt(dot(row, row)), _SHORTEST)


@compiled
def expand_all(means, projected, reference, solved, spread, sums):
    """The Gaussian's expansion of every class around its reference, into (4, K)."""
    for k in range(means.shape[0]):
        sums[0, k] = dot(means[k], projected)
        sums[1, k], sums[2, k], sums[3, k] = expand(means[k], reference[k], solved[k], spread)


@compiled
def drift(rows, moved, share):
    """rows += share (moved - rows); the longest way that a row has gone."""
    longest, part = 0.0, rows.dtype.type(share)
    for k in range(rows.shape[0]):
        row, target, square = rows[k], moved[k], rows.dtype.type(0.0)
        for d in range(rows.shape[1]):
            way = part * (target[d] - row[d])
            row[d] += way
            square += way * way
        longest = max(longest, math.sqrt(square))
    return longest


@compiled
def take_term(reference, solved, quadratic, y, weight):
    """w_k -= c (y . m_k) y and q_k -= c (y . m_k)^2 for every class."""
    narrow = y.astype(solved.dtype)
    for k in range(reference.shape[0]):
        along = weight * dot(reference[k], y)
        quadratic[k] -= along * along / weight
        mix(solved[k], narrow, 1.0, -along, solved[k])
