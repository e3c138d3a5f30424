"""CLIP zero-shot (Radford et al., 2021): logits = s f . t, no adaptation.

The row that every other method is measured against. It predicts the original view.
"""

from __future__ import annotations

from dataclasses import dataclass

from crg.methods.base import Method
from crg.methods.registry import register
from crg.ops import entropy
from crg.types import Diagnostics, Prediction, Sample


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
        prediction = self._predicted(logits, Diagnostics(0.0, 0))
        facts = Diagnostics(float(entropy(prediction.probs)), prediction.label)
        return Prediction(logits, prediction.probs, prediction.label, prediction.class_name, facts)
