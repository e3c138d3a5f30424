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

``Motion`` takes the step and says how the moved prototypes look from the image, in two forms of
one computation: plain array code for any library, and a compiled pass for NumPy arrays that
keeps no intermediate (K, D) array but the two that are needed later.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from crg.ops import Confident, lengths, log_probs, normalize, softmax
from crg.parts import kernels_for
from crg.parts.gaussian import Expansion, Frame, expand
from crg.parts.prototypes import VisualPrototypes, farthest_move
from crg.parts.state import Stateful
from crg.types import Array, Task, namespace

_REFRESH_ABOVE = 1e-3  # text separation is evaluated anew when a row moved farther than this


@dataclass(frozen=True, slots=True)
class ResidualRule:
    """Weights of the step; a weight of zero switches its term off."""

    scale: float  # s
    positive_weight: float  # lambda1
    negative_weight: float  # lambda2
    sharpness: float  # beta
    text_separation: float  # xi1, divided by the number of terms where the mean is asked for
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

    def as_array(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The numbers in the order in which the compiled kernel reads them."""
        first = (self.scale, self.positive_weight, self.negative_weight, self.sharpness)
        second = (self.text_separation, self.cache_separation)
        return np.array([*first, *second, self.text_rate, self.rate, self.eps])


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """R_T, R+ and R-, each (K, D)."""

    text: Array
    positive: Array
    negative: Array


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
        """Evaluate it anew if ``text`` has moved too far for the last one to stand.

        ``way`` is the longest that a row has gone just now. Ways add up to a bound on the
        distance, so the distance itself is looked at only when the bound is passed.
        """
        self.way += way
        if self.rule.text_separation and self.way > _REFRESH_ABOVE:
            self.way = farthest_move(text, self.reference)
            if self.way > _REFRESH_ABOVE:
                self.refresh(text)

    def step(self, views: Array, text: Array, positive: Array, negative: Array) -> Residuals:
        """The three residuals after one step on the kept ``views`` (m, D)."""
        rule = self.rule
        t, v, w = Unit.of(text), Unit.of(positive), Unit.of(negative)
        a = attraction(views @ v.rows.T, rule.positive_weight, rule.sharpness)  # (m, K)
        b = repulsion(views @ w.rows.T, rule.negative_weight, rule.sharpness)  # (m, K)
        slope = entropy_gradient(rule.scale * (views @ t.rows.T) + a + b)  # dL_TPT / dz, (m, K)
        g_text = t.pull_back(rule.scale * (slope.T @ views))
        g_positive = v.pull_back(
            rule.sharpness * ((slope * a).T @ views) + rule.cache_separation * w.rows
        )
        g_negative = w.pull_back(
            -rule.sharpness * ((slope * b).T @ views) + rule.cache_separation * v.rows
        )
        g_text = g_text + rule.text_separation * self.separation
        return Residuals(
            text=adamw_from_zero(g_text, rule.text_rate, rule.eps),
            positive=adamw_from_zero(g_positive, rule.rate, rule.eps),
            negative=adamw_from_zero(g_negative, rule.rate, rule.eps),
        )


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


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """The prototypes after the step. The arrays are valid until the next step."""

    text: Array  # t' (K, D)
    means: Array  # mu = v+ + R+ (K, D)
    text_cosine: Array  # f . t' (K,)
    positive_cosine: Array  # f . v+' (K,)
    negative_cosine: Array  # f . v-' (K,)
    expansion: Expansion  # of the Gaussian around its reference


@dataclass(frozen=True, slots=True, eq=False)
class StepInput:
    """All that one residual step depends on."""

    residual: Residual
    seen: Confident  # the kept views
    f: Array  # (D,), from where the moved prototypes are looked at
    text: Array  # t (K, D)
    visual: VisualPrototypes
    frame: Frame
    text_lengths: Array | None = None  # |t| (K,), where they are known


class Motion:
    """Moves prototypes; holds nothing between steps but buffers."""

    def __init__(self, text: Array) -> None:
        xp = namespace(text)
        self._text, self._means = xp.empty_like(text), xp.empty_like(text)

    def __call__(self, given: StepInput) -> Moved:
        """One step, compiled where that is possible."""
        kernels = kernels_for(given.text)
        return move_plainly(given) if kernels is None else self._move_compiled(kernels, given)

    def _move_compiled(self, kernels: ModuleType, given: StepInput) -> Moved:
        """The same as ``move_plainly``, set by set."""
        rule, views, f, text = given.residual.rule, given.seen.kept, given.f, given.text
        positive, total = given.visual.positive, given.visual.total.astype(text.dtype)
        long = kernels.row_lengths(text) if given.text_lengths is None else given.text_lengths
        sums = np.empty((7, len(text)))
        sizes, along = kernels.measure(views, long, positive, total)
        logits = np.ascontiguousarray(given.seen.logits)
        weights, frame = rule.as_array(), given.frame
        factors, onto, stir = kernels.weigh(views, logits, total, sizes, along, weights)
        kernels.move_text(
            views, factors[0], onto[0], long, text, given.residual.separation,
            f, rule.text_separation, rule.text_rate, rule.eps, self._text, sums[0],
        )  # fmt: skip
        kernels.move_visual(
            views, factors, onto, sizes, positive, total,
            f, rule.cache_separation, rule.rate, rule.eps, self._means, sums[1:3],
        )  # fmt: skip
        projected = frame.projected.astype(text.dtype)
        kernels.expand_all(
            self._means, projected, frame.reference, frame.solved, frame.spread, sums[3:]
        )
        # Below eps a view hardly changes an AdamW step that the separation loss determines.
        expansion = Expansion(sums[3], sums[4], sums[5], sums[6], stirred=stir > rule.eps)
        return Moved(self._text, self._means, sums[0], sums[1], sums[2], expansion)


def move_plainly(given: StepInput) -> Moved:
    """The step in plain array code."""
    f, positive, negative = given.f, given.visual.positive, given.visual.negative
    residuals = given.residual.step(given.seen.kept, given.text, positive, negative)
    moved_text = normalize(given.text + residuals.text)
    means = positive + residuals.positive
    return Moved(
        text=moved_text,
        means=means,
        text_cosine=_wide(moved_text @ f),
        positive_cosine=_wide(normalize(means) @ f),
        negative_cosine=_wide(normalize(negative + residuals.negative) @ f),
        expansion=expand(means, given.frame),
    )


def _wide(values: Array) -> Array:
    xp = namespace(values)
    return xp.astype(values, xp.float64)
