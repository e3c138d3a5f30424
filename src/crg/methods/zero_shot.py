"""CLIP zero-shot (Radford et al., 2021): logits = s f . t, no adaptation.

The baseline of every other method. It predicts the original view or, with ``predict_on``
confident, the mean of the confident views, which separates the gain of views from that of
adaptation.
"""

from __future__ import annotations

from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.types import Prediction, Sample


@register
class ZeroShot(Method):
    """The class whose text feature is nearest; no adaptation.

    >>> import crg
    >>> task = crg.Task(["cat", "dog"], [[1.0, 0.0], [0.0, 1.0]])
    >>> crg.create("zero_shot", task).step([0.9, 0.1]).class_name
    'cat'
    """

    name = "zero_shot"
    forgets = True
    paper = (
        "Radford et al., Learning Transferable Visual Models From Natural Language Supervision, "
        "ICML 2021"
    )

    @dataclass(frozen=True)
    class Config:
        """Which view is predicted."""

        predict_on: str = option("original", "view to predict", choices=("original", "confident"))
        view_share: float = option(0.1, "fraction of confident views", above=0, at_most=1)

    def reset(self) -> None:
        """There is no state."""

    def step(self, sample: Sample) -> Prediction:
        """logits = s f . t."""
        views = sample.views
        original = self.config.predict_on == "original"
        f = views[0, :] if original else self._confident(views).feature
        return self._predicted_plainly(self._zero_shot(f))
