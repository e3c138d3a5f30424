"""Motion: the residual step, and how the moved prototypes look from the picture.

Two forms of one computation: plain array code for any library, and a compiled pass for
NumPy arrays that keeps no intermediate (K, D) array but the two that are needed later.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from crg.ops import Confident, normalize
from crg.parts.compiled import kernels_for
from crg.parts.gaussian import Expansion, Frame, expand
from crg.parts.prototypes import VisualPrototypes
from crg.parts.residual import Residual
from crg.types import Array, namespace


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """The prototypes after the step. The arrays are valid until the next step."""

    text: Array  # t' (K, D)
    means: Array  # mu = v+ + R+ (K, D)
    text_cosine: Array  # f . t' (K,)
    positive_cosine: Array  # f . v+' (K,)
    negative_cosine: Array  # f . v-' (K,)
    expansion: Expansion  # of the Gaussian around its reference


class Motion:
    """Moves prototypes; holds nothing between steps but buffers."""

    def __init__(self, text: Array) -> None:
        xp = namespace(text)
        self._text, self._means = xp.empty_like(text), xp.empty_like(text)

    def __call__(
        self,
        residual: Residual,
        seen: Confident,
        f: Array,
        text: Array,
        visual: VisualPrototypes,
        frame: Frame,
    ) -> Moved:
        """One step on the views that were ``seen``, looked at from ``f`` (D,)."""
        kernels = kernels_for(text)
        if kernels is None:
            return move_plainly(residual, seen, f, text, visual, frame)
        return self._move_compiled(kernels, residual, seen, f, text, visual, frame)

    def _move_compiled(
        self,
        kernels: ModuleType,
        residual: Residual,
        seen: Confident,
        f: Array,
        text: Array,
        visual: VisualPrototypes,
        frame: Frame,
    ) -> Moved:
        """The same as ``move_plainly``, set by set."""
        rule, views = residual.rule, seen.kept
        positive, total = visual.positive, visual.total.astype(text.dtype)
        sums = np.empty((7, len(text)))
        sizes, along = kernels.measure(views, text, positive, total)
        factors, onto = kernels.weigh(views, seen.logits, total, sizes, along, rule.as_array())
        kernels.move_text(
            views, factors[0], onto[0], sizes[0], text, residual.separation,
            f, rule.text_separation, rule.text_rate, rule.eps, self._text, sums[0],
        )  # fmt: skip
        kernels.move_positive(
            views, factors[1], onto[1], sizes, positive, total,
            f, rule.cache_separation, rule.rate, rule.eps, self._means, sums[1],
        )  # fmt: skip
        kernels.move_negative(
            views, factors[2], onto[2], sizes, positive, total,
            f, rule.cache_separation, rule.rate, rule.eps, sums[2],
        )  # fmt: skip
        kernels.expand_all(
            self._means, frame.projected, frame.reference, frame.solved, frame.spread, sums[3:]
        )
        # Below eps a view hardly changes an AdamW step that the separation loss determines.
        stirred = np.abs(factors[1]).sum(axis=1) > rule.eps
        expansion = Expansion(sums[3], sums[4], sums[5], sums[6], stirred)
        return Moved(self._text, self._means, sums[0], sums[1], sums[2], expansion)


def move_plainly(
    residual: Residual,
    seen: Confident,
    f: Array,
    text: Array,
    visual: VisualPrototypes,
    frame: Frame,
) -> Moved:
    """The step in plain array code."""
    negative = visual.negative
    residuals = residual.step(seen.kept, text, visual.positive, negative)
    moved_text = normalize(text + residuals.text)
    means = visual.positive + residuals.positive
    return Moved(
        text=moved_text,
        means=means,
        text_cosine=_wide(moved_text @ f),
        positive_cosine=_wide(normalize(means) @ f),
        negative_cosine=_wide(normalize(negative + residuals.negative) @ f),
        expansion=expand(means, frame),
    )


def _wide(values: Array) -> Array:
    xp = namespace(values)
    return xp.astype(values, xp.float64)
