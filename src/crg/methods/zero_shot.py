"""CLIP zero-shot (Radford et al., 2021): logits = s f . t, no adaptation.

The row that every other method is measured against. It predicts the original view.
"""

from __future__ import annotations

from dataclasses import dataclass

from crg.methods.base import Method
from crg.methods.registry import register
from crg.ops import softmax_and_entropy
from crg.types import Diagnostics, Prediction, Sample, namespace


@register
class ZeroShot(Method):
    """Nearest text feature."""

    name = "zero_shot"
    paper = "Radford et al., Learning Transferable Visual Models From Language, ICML 2021"

    @dataclass(frozen=True)
    class Config:
        """Zero-shot has nothing to set."""

    def reset(self) -> None:
        """There is no state."""

    def step(self, sample: Sample) -> Prediction:
        """logits = s f_0 . t."""
        logits = self.task.logit_scale * (self.task.text_features @ sample.views[0, :])
        probs, entropy = softmax_and_entropy(logits)
        label = int(namespace(logits).argmax(logits))
        return self._predicted(logits, Diagnostics(float(entropy), label), probs)
