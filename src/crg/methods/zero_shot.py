"""CLIP zero-shot (Radford et al., 2021): logits = s f . t, no adaptation.

The baseline of every other method. It predicts the original view or, with ``predict_on``
confident, the mean of the confident views, which separates the gain of views from that of
adaptation.
"""

from __future__ import annotations

from dataclasses import dataclass

from crg.methods.base import Method
from crg.methods.options import option
from crg.methods.registry import register
from crg.ops import confident_views
from crg.types import Array, Prediction, Sample


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

        predict_on: str = option(
            "original", "view that is predicted", choices=("original", "confident")
        )
        view_share: float = option(
            0.1, "fraction of views kept, where confident ones are predicted", above=0, at_most=1
        )

    def reset(self) -> None:
        """There is no state."""

    def step(self, sample: Sample) -> Prediction:
        """logits = s f . t."""
        feature = self._feature(sample.views)
        return self._predicted_plainly(self.task.logit_scale * (self.task.text_features @ feature))

    def _feature(self, views: Array) -> Array:
        """f: the original view, or the normalised mean of the confident ones, (D,)."""
        if self.config.predict_on == "original":
            return views[0, :]
        task = self.task
        share = self.config.view_share
        return confident_views(views, task.text_features, task.logit_scale, share).feature
