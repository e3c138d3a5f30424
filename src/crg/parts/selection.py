"""Selection: the confident views of an image, with buffers that outlive a step."""

from __future__ import annotations

from typing import Any

import numpy as np

from crg.ops import Confident, confident_views, count_kept
from crg.parts import kernels_for
from crg.types import Array

Numbers = np.ndarray[Any, Any]


class Selection:
    """``ops.confident_views``; holds nothing between images but buffers.

    For several views of many classes, making the temporaries of array code costs more than
    filling them. The buffers have the classes first, (K, V), the order in which the product
    of text and views is quicker.
    """

    def __init__(self) -> None:
        self._buffers: tuple[Numbers, Numbers, Numbers] | None = None

    def __call__(self, views: Array, text: Array, scale: float, share: float) -> Confident:
        """The ``share`` of ``views`` with the lowest entropy, compiled where that is possible."""
        if kernels_for(text) is None or views.shape[0] == 1:
            return confident_views(views, text, scale, share)
        return self._select_compiled(views, text, scale, share)

    def _select_compiled(
        self, views: Numbers, text: Numbers, scale: float, share: float
    ) -> Confident:
        """The same as ``ops.confident_views``; only kept views get probabilities."""
        from crg.parts import kernels

        logits, below, odds = self._room(len(text), len(views), text.dtype)
        np.matmul(text, views.T, out=logits)
        kernels.fall(logits, scale, below)
        np.exp(below, out=odds)
        total, moment = kernels.sum_odds(odds, below)
        entropies = np.log1p(total - 1.0) - moment / total
        keep = np.argsort(entropies, kind="stable")[: count_kept(len(views), share)]
        kept, (kept_logits, p) = views[keep], kernels.gather(logits, odds, total, keep)
        label = int(p.argmax())
        if len(keep) == 1:  # a single view is its own mean, to the last bit
            return Confident(kept, kept_logits, kept[0], p, label, float(entropies[keep[0]]))
        h = float(kernels.entropy(p, label))
        return Confident(kept, kept_logits, kernels.direction(kept), p, label, h)

    def _room(
        self, n_classes: int, n_views: int, dtype: np.dtype[Any]
    ) -> tuple[Numbers, Numbers, Numbers]:
        shape = (n_classes, n_views)
        if self._buffers is None or self._buffers[0].shape != shape:
            self._buffers = (np.empty(shape, dtype), np.empty(shape, dtype), np.empty(shape, dtype))
        return self._buffers
