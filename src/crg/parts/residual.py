"""Residual: one gradient step per image on three sets of prototypes, in closed form.

With t' = normalize(t + R_T), v+' = normalize(v+ + R+), v-' = normalize(v- + R-) and the
kept views f of one image, the loss is

    L       = L_TPT + xi1 L_inter + xi2 L_pn
    L_TPT   = H(mean over kept views of softmax(z)),
              z_k = s f.t'_k + A(f.v+'_k) + B(f.v-'_k)
    L_inter = sum over m != n of exp(-gamma |t'_m - t'_n|^2)
    L_pn    = sum over c of v+'_c . v-'_c
    A(c)    = lambda1 exp(-beta (1 - c)),  B(c) = lambda2 exp(beta (1 - c))

One AdamW step from R = 0 moves every coordinate by -lr g / (|g| + eps), g the gradient
at zero: bias correction makes both moments g and g^2, and weight decay acts on zero.

The gradients are those of softmax and exponentials, pulled back through the
normalisation: for u = r / |r| a gradient G with respect to u is (G - (G.u) u) / |r| with
respect to r.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crg.ops import Confident, lengths, log_probs, normalize, softmax
from crg.parts import fused
from crg.parts.prototypes import VisualPrototypes
from crg.parts.state import Stateful
from crg.types import Array, Task, namespace

_REFRESH_ABOVE = 1e-3  # a row that moved farther than this makes the text separation stale


@dataclass(frozen=True, slots=True)
class ResidualRule:
    """Weights of the step; a weight of zero switches its term off."""

    scale: float  # s
    positive_weight: float  # lambda1
    negative_weight: float  # lambda2
    sharpness: float  # beta
    text_separation: float  # xi1, divided by the number of terms if the reduction is a mean
    cache_separation: float  # xi2, likewise
    kernel_width: float  # gamma
    text_rate: float  # lr of R_T
    rate: float  # lr of R+ and R-
    eps: float

    @classmethod
    def of(cls, options: Any, task: Task) -> ResidualRule:
        """The rule that CRG's options make, its switches applied."""
        n, mean = task.n_classes, options.reduction == "mean"
        n_pairs, n_terms = (n * (n - 1), n) if mean else (1, 1)
        return cls(
            scale=task.logit_scale,
            positive_weight=options.lambda1 * options.positive,
            negative_weight=options.lambda2 * options.negative,
            sharpness=options.beta,
            text_separation=options.xi1 * options.text_separation / n_pairs,
            cache_separation=options.xi2 * options.cache_separation / n_terms,
            kernel_width=options.gamma,
            text_rate=options.lr * (options.residual and options.text_cache),
            rate=options.lr * options.residual,
            eps=options.eps,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """The prototypes after the step, and their cosines to f in double precision."""

    text: Array  # t' (K, D)
    means: Array  # mu = v+ + R+ (K, D)
    text_cosine: Array  # f . t' (K,)
    positive_cosine: Array  # f . v+' (K,)
    negative_cosine: Array  # f . v-' (K,)
    stirred: Array  # whether the image, not only the separation loss, moved a class (K,)


class Residual(Stateful):
    """The step; its only state is the text separation gradient and where it was taken."""

    _not_saved = frozenset({"rule"})

    def __init__(self, rule: ResidualRule, text: Array) -> None:
        self.rule = rule
        self.refresh(text)

    def refresh(self, text: Array) -> None:
        """Evaluate the text separation gradient at ``text`` (K, D)."""
        self.reference = namespace(text).asarray(text, copy=True)
        self.separation = separation_gradient(text, self.rule.kernel_width)
        self.way = 0.0  # no row has moved farther than this since

    def follow(self, text: Array, way: float) -> None:
        """Refresh the gradient if a row of ``text`` is too far from the reference.

        ``way`` is how far the one that moved most has just gone; the sum bounds the distance.
        """
        self.way += way
        if self.rule.text_separation and self.way > _REFRESH_ABOVE:
            self.way = float(namespace(text).max(lengths(text - self.reference)))
            if self.way > _REFRESH_ABOVE:
                self.refresh(text)


@fused
def move(
    text: Array,
    visual: VisualPrototypes,
    seen: Confident,
    f: Array,
    separation: Array,
    rule: ResidualRule,
) -> Moved:
    """Text t (K, D) and visual prototypes after one step, with their cosines to ``f`` (D,)."""
    xp, positive, negative = namespace(text), visual.positive, visual.negative
    r_text, r_positive, r_negative = residuals(
        seen.kept, text, positive, negative, separation, rule
    )
    moved_text, means = normalize(text + r_text), positive + r_positive
    sets = moved_text, normalize(means), normalize(negative + r_negative)
    to_text, to_positive, to_negative = (xp.astype(rows @ f, xp.float64) for rows in sets)
    unstirred = xp.zeros_like(to_text, dtype=xp.bool)
    return Moved(moved_text, means, to_text, to_positive, to_negative, unstirred)


def residuals(
    views: Array,
    text: Array,
    positive: Array,
    negative: Array,
    separation: Array,
    rule: ResidualRule,
) -> tuple[Array, Array, Array]:
    """R_T, R+ and R-, each (K, D), after one step on the kept ``views`` (m, D)."""
    t, v, w = Unit.of(text), Unit.of(positive), Unit.of(negative)
    a = attraction(views @ v.rows.T, rule.positive_weight, rule.sharpness)  # (m, K)
    b = repulsion(views @ w.rows.T, rule.negative_weight, rule.sharpness)  # (m, K)
    slope = entropy_gradient(rule.scale * (views @ t.rows.T) + a + b)  # dL_TPT / dz, (m, K)
    g_text = t.pull_back(rule.scale * (slope.T @ views))
    beta, xi2 = rule.sharpness, rule.cache_separation
    g_positive = v.pull_back(beta * ((slope * a).T @ views) + xi2 * w.rows)
    g_negative = w.pull_back(-beta * ((slope * b).T @ views) + xi2 * v.rows)
    g_text = g_text + rule.text_separation * separation
    gradients = (g_text, rule.text_rate), (g_positive, rule.rate), (g_negative, rule.rate)
    r_text, r_positive, r_negative = (adamw_from_zero(g, lr, rule.eps) for g, lr in gradients)
    return r_text, r_positive, r_negative


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Rows scaled to unit length, with the lengths they had."""

    rows: Array  # (K, D)
    lengths: Array  # (K, 1)

    @classmethod
    def of(cls, rows: Array) -> Unit:
        """Normalise ``rows`` and remember their lengths."""
        size = lengths(rows)[:, None]
        return cls(rows / size, size)

    def pull_back(self, gradient: Array) -> Array:
        """The gradient with respect to the rows before they were normalised."""
        xp = namespace(gradient)
        along = xp.sum(gradient * self.rows, axis=1, keepdims=True)
        return (gradient - along * self.rows) / self.lengths


def attraction(cosine: Array, weight: float, sharpness: float) -> Array:
    """A(c) = lambda1 exp(-beta (1 - c)); its derivative is beta A."""
    return weight * namespace(cosine).exp(sharpness * (cosine - 1.0))


def repulsion(cosine: Array, weight: float, sharpness: float) -> Array:
    """B(c) = lambda2 exp(beta (1 - c)); its derivative is -beta B."""
    return weight * namespace(cosine).exp(sharpness * (1.0 - cosine))


def entropy_gradient(logits: Array) -> Array:
    """Gradient of H(mean over rows of softmax(logits)) with respect to ``logits`` (m, K).

    With q = mean of p_v: dH/dp_vk = -(ln q_k + 1) / m, and softmax maps a gradient G to
    p (G - sum_k p G), which also removes the constant.
    """
    xp = namespace(logits)
    probs = softmax(logits)
    gradient = -log_probs(xp.mean(probs, axis=0)) / logits.shape[0]  # (K,)
    return probs * (gradient - xp.sum(probs * gradient, axis=1, keepdims=True))


def separation_gradient(text: Array, width: float) -> Array:
    """Gradient of L_inter with respect to R_T at zero, (K, D).

    dL/du_m = -4 gamma sum_n k_mn (u_m - u_n), each pair counting twice; what points along
    u_m vanishes on the sphere, so only 4 gamma sum_n k_mn u_n is left to pull back.
    """
    xp = namespace(text)
    u = Unit.of(text)
    kernel = xp.exp(-width * xp.clip(2.0 - 2.0 * (u.rows @ u.rows.T), 0.0))  # (K, K)
    itself = xp.eye(text.shape[0], dtype=text.dtype, device=text.device)
    return u.pull_back(4.0 * width * ((kernel * (1.0 - itself)) @ u.rows))


def adamw_from_zero(gradient: Array, rate: float, eps: float) -> Array:
    """One AdamW step from zero: -lr g / (|g| + eps)."""
    return -rate * gradient / (namespace(gradient).abs(gradient) + eps)
