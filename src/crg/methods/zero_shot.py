"""CLIP zero-shot (Radford et al., 2021): logits = s f . t, no adaptation.

The row that every other method is measured against. It predicts the original view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crg.methods.base import Method
from crg.methods.registry import register
from crg.types import Prediction, Sample, namespace


@register
class ZeroShot(Method):
    """Nearest text feature."""

    name = "zero_shot"
    paper = (
        "Radford et al., Learning Transferable Visual Models From Natural Language Supervision, "
        "ICML 2021"
    )

    @dataclass(frozen=True)
    class Config:
        """Zero-shot has nothing to set."""

    def reset(self) -> None:
        """There is no state."""

    def step(self, sample: Sample) -> Prediction:
        """logits = s f_0 . t."""
        return self.step_many([sample])[0]

    def step_many(self, samples: Sequence[Sample]) -> list[Prediction]:
        """All pictures in one product: there is no state that one could leave to the next."""
        originals = namespace(samples[0].views).stack([sample.views[0, :] for sample in samples])
        logits = self.task.logit_scale * (originals @ self.task.text_features.T)  # (N, K)
        return self._predicted_rows(logits)
