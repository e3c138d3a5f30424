"""A good method that is not part of the package."""

from __future__ import annotations

from dataclasses import dataclass

from array_api_compat import array_namespace

from crg import Diagnostics, Method, Prediction, Sample, option
from crg.parts.cache import Cache
from crg.types import Array


class Nearest(Method):
    """A good method: zero-shot plus the similarity to each class's cached images."""

    name = "nearest"
    paper = "none, it serves the tests"

    @dataclass(frozen=True)
    class Config:
        """One weight and one size."""

        weight: float = option(2.0, "weight of the cached images", at_least=0)
        queue_size: int = option(4, "slots per queue", at_least=1)

    def reset(self) -> None:
        """Start from the text features."""
        self.cache = Cache(self.task.text_features, self.config.queue_size, seeded=True)

    def step(self, sample: Sample) -> Prediction:
        """Offer the image to the nearest class, then predict it."""
        feature = sample.views[0, :]
        nearness = self.task.text_features @ feature
        label = int(array_namespace(nearness).argmax(nearness))
        changed = self.cache.offer(label, feature, 1.0 - float(nearness[label]), sample.id)
        return self._answer(feature, Diagnostics(0.0, label, changed is not None))

    def _answer(self, feature: Array, facts: Diagnostics) -> Prediction:
        xp = array_namespace(feature)
        means = xp.stack([self.cache.mean(k) for k in range(self.task.n_classes)])
        text = self._zero_shot(feature)
        return self._predicted(text + self.config.weight * (means @ feature), facts)
