"""Motion: the residual step, and how the moved prototypes look from the image.

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


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """All that one step depends on."""

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

    def __call__(self, scene: Scene) -> Moved:
        """One step, compiled where that is possible."""
        kernels = kernels_for(scene.text)
        return move_plainly(scene) if kernels is None else self._move_compiled(kernels, scene)

    def _move_compiled(self, kernels: ModuleType, scene: Scene) -> Moved:
        """The same as ``move_plainly``, set by set."""
        rule, views, f, text = scene.residual.rule, scene.seen.kept, scene.f, scene.text
        positive, total = scene.visual.positive, scene.visual.total.astype(text.dtype)
        long = kernels.row_lengths(text) if scene.text_lengths is None else scene.text_lengths
        sums = np.empty((7, len(text)))
        sizes, along = kernels.measure(views, long, positive, total)
        logits = np.ascontiguousarray(scene.seen.logits)
        weights, frame = rule.as_array(), scene.frame
        factors, onto, stir = kernels.weigh(views, logits, total, sizes, along, weights)
        kernels.move_text(
            views, factors[0], onto[0], long, text, scene.residual.separation,
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


def move_plainly(scene: Scene) -> Moved:
    """The step in plain array code."""
    f, positive, negative = scene.f, scene.visual.positive, scene.visual.negative
    residuals = scene.residual.step(scene.seen.kept, scene.text, positive, negative)
    moved_text = normalize(scene.text + residuals.text)
    means = positive + residuals.positive
    return Moved(
        text=moved_text,
        means=means,
        text_cosine=_wide(moved_text @ f),
        positive_cosine=_wide(normalize(means) @ f),
        negative_cosine=_wide(normalize(negative + residuals.negative) @ f),
        expansion=expand(means, scene.frame),
    )


def _wide(values: Array) -> Array:
    xp = namespace(values)
    return xp.astype(values, xp.float64)
