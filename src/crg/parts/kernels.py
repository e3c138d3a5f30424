"""Compiled forms of CRG's hot loops, for NumPy arrays, where numba is installed.

``parts.fused`` runs ``move``, ``confident_views``, ``drift``, ``take_terms`` and ``expand`` in
place of the plain functions of these names, which say what they compute. The algorithm is the
same, without the some forty (K, D) arrays that array code makes on the way. The loops stay in
small functions over few arrays: the compiler does not vectorise one large function.

Letters as in ``residual``: K classes, D width, m kept views. Sums over D are in the type of the
arrays; sums over classes, and whatever is one number per class, in double precision. In loops
over views the classes come first, (K, V), which makes the product of text and views quicker.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from crg import ops
from crg.ops import Confident, count_kept
from crg.parts.prototypes import VisualPrototypes
from crg.parts.residual import Moved, ResidualRule

Numbers = np.ndarray[Any, Any]

# Arrays of any precision come in, so the loops are untyped; the functions around them are not.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

# Sums may be reordered, which is what lets them be vectorised; NaN and infinity stay what
# they are. The error model of NumPy drops the test for zero before every division.
_REORDERED = {"reassoc", "contract", "arcp", "nsz"}
compiled: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath=_REORDERED)
_SHORTEST = 1e-12  # as in ops.lengths
_SMALLEST = 1e-300  # so that the logarithm of a probability is finite


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
def dot_views(x, views, out):
    """x . view for each view, three at a time, which reads x once for three."""
    m, width = views.shape
    for j in range(0, m - 2, 3):
        first, second, third = views[j], views[j + 1], views[j + 2]
        a = b = c = x.dtype.type(0.0)
        for d in range(width):
            a += x[d] * first[d]
            b += x[d] * second[d]
            c += x[d] * third[d]
        out[j], out[j + 1], out[j + 2] = a, b, c
    for j in range(m - m % 3, m):
        out[j] = dot(x, views[j])


@compiled
def add(x, factor, out):
    """out += a x."""
    a = out.dtype.type(factor)
    for d in range(out.shape[0]):
        out[d] += a * x[d]


@compiled
def add_views(views, factors, out):
    """out += sum_j factor_j view_j, three at a time, which reads and writes it once for three."""
    m, narrow = views.shape[0], out.dtype.type
    for j in range(0, m - 2, 3):
        first, second, third = views[j], views[j + 1], views[j + 2]
        a, b, c = narrow(factors[j]), narrow(factors[j + 1]), narrow(factors[j + 2])
        for d in range(out.shape[0]):
            out[d] += a * first[d] + b * second[d] + c * third[d]
    for j in range(m - m % 3, m):
        add(views[j], factors[j], out)


@compiled
def descend(start, gradient, rate, eps, f, out):
    """out = start - lr g / (|g| + eps); its length, and f . out.

    The arrays must not overlap: a loop over arrays that might is not vectorised.
    """
    lr, small = start.dtype.type(rate), start.dtype.type(eps)
    square = along = start.dtype.type(0.0)
    for d in range(start.shape[0]):
        out[d] = start[d] - lr * gradient[d] / (abs(gradient[d]) + small)
    for d in range(start.shape[0]):  # apart: a loop that writes and sums has two forms,
        # of which short arrays get one or the other by where they lie, with other last bits
        square += out[d] * out[d]
        along += out[d] * f[d]
    return max(math.sqrt(square), _SHORTEST), along


@compiled
def compare(v, total, share):
    """|v|, |w| and v . w for w = a (total - v)."""
    a = v.dtype.type(share)
    own = other = both = v.dtype.type(0.0)
    for d in range(v.shape[0]):
        w = a * (total[d] - v[d])
        own += v[d] * v[d]
        other += w * w
        both += v[d] * w
    return max(math.sqrt(own), _SHORTEST), max(math.sqrt(other), _SHORTEST), both


@compiled
def measure(views, text, positive, total):
    """|t|, |v+|, |v-| and v+ . v- as rows of (4, K), and f . v+ for each kept view (K, m)."""
    n_classes = positive.shape[0]
    sizes, along = np.empty((4, n_classes)), np.empty((n_classes, views.shape[0]))
    for k in range(n_classes):
        sizes[0, k] = max(math.sqrt(dot(text[k], text[k])), _SHORTEST)
        own, other, both = compare(positive[k], total, 1.0 / (n_classes - 1))
        sizes[1, k], sizes[2, k], sizes[3, k] = own, other, both
        dot_views(positive[k], views, along[k])
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
        mean[k] = -math.log(max(mean[k], _SMALLEST)) / m
    for j in range(m):
        z[j] *= mean - dot(z[j], mean)


@compiled
def weigh(views, logits, total, sizes, along, scale, lambda1, lambda2, beta, xi2):
    """Factors of the views in the three gradients (3, K, m), X . u for each set (3, K), and
    how much all views weigh in the gradient of v+ (K,).

    X is the gradient with respect to the unit rows u. ``Unit.pull_back`` takes away its
    part along u and divides by the length; the factors are already divided.
    """
    m, n_classes = logits.shape
    factors, onto = np.empty((3, n_classes, m)), np.zeros((3, n_classes))
    a, b, slope = np.empty(logits.shape), np.empty(logits.shape), np.empty(logits.shape)
    cosines, stir = np.empty((3, m, n_classes)), np.zeros(n_classes)
    for j in range(m):
        to_total = dot(views[j], total)
        for k in range(n_classes):
            cosines[0, j, k] = logits[j, k] / (scale * sizes[0, k])
            cosines[1, j, k] = along[k, j] / sizes[1, k]
            cosines[2, j, k] = (to_total - along[k, j]) / ((n_classes - 1) * sizes[2, k])
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
            stir[k] += abs(factors[1, k, j])
    return factors, onto, stir


@compiled
def move_text(views, factors, onto, sizes, text, separation, f, xi1, rate, eps, moved, cosines):
    """t' for every class, and its cosine to f: g = (X - (X.u) u) / |t| + xi1 L_inter'."""
    g = np.empty(text.shape[1], text.dtype)
    for k in range(text.shape[0]):
        mix(separation[k], text[k], xi1, -onto[k] / sizes[k] ** 2, g)
        add_views(views, factors[k], g)
        size, along = descend(text[k], g, rate, eps, f, moved[k])
        moved[k] *= text.dtype.type(1.0 / size)
        cosines[k] = along / size


def move(
    text: Numbers,
    visual: VisualPrototypes,
    seen: Confident,
    f: Numbers,
    separation: Numbers,
    rule: ResidualRule,
) -> Moved:
    """``residual.move``, set by set."""
    views, positive, total = seen.kept, visual.positive, visual.total.astype(text.dtype)
    moved_text, means, cosines = np.empty_like(text), np.empty_like(text), np.empty((3, len(text)))
    xi1, xi2 = rule.text_separation, rule.cache_separation
    sizes, along = measure(views, text, positive, total)
    factors, onto, stir = weigh(
        views, np.ascontiguousarray(seen.logits), total, sizes, along, rule.scale,
        rule.positive_weight, rule.negative_weight, rule.sharpness, xi2,
    )  # fmt: skip
    move_text(
        views, factors[0], onto[0], sizes[0], text, separation,
        f, xi1, rule.text_rate, rule.eps, moved_text, cosines[0],
    )  # fmt: skip
    move_visual(
        views, factors, onto, sizes, positive, total,
        f, xi2, rule.rate, rule.eps, means, cosines[1:],
    )  # fmt: skip
    # Below eps a view hardly changes an AdamW step that the separation loss determines.
    return Moved(moved_text, means, cosines[0], cosines[1], cosines[2], stir > rule.eps)


@compiled
def expand_row(mu, reference, solved, spread, projected):
    """mu . projected, and w . d, d . d and |d| . spread for d = mu - m."""
    linear = along = square = reach = mu.dtype.type(0.0)
    for d in range(mu.shape[0]):
        moved = mu[d] - reference[d]
        linear += mu[d] * projected[d]
        along += solved[d] * moved
        square += moved * moved
        reach += abs(moved) * spread[d]
    return linear, along, square, reach


@compiled
def move_visual(views, factors, onto, sizes, positive, total, f, xi2, rate, eps, means, cosines):
    """mu for every class, and the cosines of f to v+' and v-' as rows of (2, K).

    X = beta sum slope a f + xi2 v-/|v-| for v+, and -beta sum slope b f + xi2 v+/|v+| for v-.
    As v- = (total - v+) / (K - 1), what is not a view is a mix of ``total`` and v+.
    """
    g, negative, row = np.empty_like(total), np.empty_like(total), np.empty_like(total)
    share = 1.0 / (positive.shape[0] - 1)
    for k in range(positive.shape[0]):
        v, size_v, size_w = positive[k], sizes[1, k], sizes[2, k]
        apart = xi2 / (size_v * size_w)
        mix(total, v, share * apart, -share * apart - onto[1, k] / size_v**2, g)
        add_views(views, factors[1, k], g)
        size, along = descend(v, g, rate, eps, f, means[k])
        cosines[0, k] = along / size
        inward = share * onto[2, k] / size_w**2
        mix(total, v, -inward, apart + inward, g)
        add_views(views, factors[2, k], g)
        mix(total, v, share, -share, negative)
        size, along = descend(negative, g, rate, eps, f, row)
        cosines[1, k] = along / size


@compiled
def expand(means, projected, reference, solved, spread):
    """``gaussian.expand``: every class mean around its reference, (4, K)."""
    sums = np.empty((4, means.shape[0]))
    for k in range(means.shape[0]):
        mu, m, w = means[k], reference[k], solved[k]
        sums[0, k], sums[1, k], sums[2, k], sums[3, k] = expand_row(mu, m, w, spread, projected)
    return sums


@compiled
def drift(rows, moved, share):
    """``prototypes.drift``: rows += share (moved - rows); the longest way of a row."""
    longest, part = 0.0, rows.dtype.type(share)
    for k in range(rows.shape[0]):
        row, target, square = rows[k], moved[k], rows.dtype.type(0.0)
        for d in range(rows.shape[1]):
            way = part * (target[d] - row[d])
            square += way * way
        for d in range(rows.shape[1]):
            row[d] += part * (target[d] - row[d])
        longest = max(longest, math.sqrt(square))
    return longest


@compiled
def take_terms(reference, solved, quadratic, columns, weights):
    """``gaussian.take_terms``: w_k -= c (y . m_k) y and q_k -= c (y . m_k)^2 for each (c, y)."""
    narrow = columns.astype(solved.dtype)
    for k in range(reference.shape[0]):
        for j in range(weights.shape[0]):
            along = weights[j] * dot(reference[k], columns[j])
            quadratic[k] -= along * along / weights[j]
            add(narrow[j], -along, solved[k])


def confident_views(views: Numbers, text: Numbers, scale: float, share: float) -> Confident:
    """``ops.confident_views``; only kept views get probabilities."""
    if len(views) == 1:
        return ops.confident_views(views, text, scale, share)
    logits = text @ views.T  # (K, V)
    logits *= scale
    below = logits - logits.max(axis=0)
    odds = np.exp(below)
    total, moment = sum_odds(odds, below)
    entropies = np.log1p(total - 1.0) - moment / total
    keep = np.argsort(entropies, kind="stable")[: count_kept(len(views), share)]
    kept, (kept_logits, p) = views[keep], gather(logits, odds, total, keep)
    label = int(p.argmax())
    if len(keep) == 1:  # a single view is its own mean, to the last bit
        return Confident(kept, kept_logits, kept[0], p, label, float(entropies[keep[0]]))
    return Confident(kept, kept_logits, direction(kept), p, label, float(entropy(p, label)))


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
    return mean / mean.dtype.type(max(math.sqrt(square), _SHORTEST))
