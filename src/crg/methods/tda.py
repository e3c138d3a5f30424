"""TDA: a training-free dynamic adapter (Karmanov et al., CVPR 2024).

Two caches of test features are keyed by features and need no learning. The positive one
keeps each class's most confident images and raises the classes they were taken for; the
negative one keeps images of middling entropy and lowers the classes they might be.

| equation | function | symbols |
| --- | --- | --- |
| positive cache, A(z) = alpha exp(-beta (1 - z)) | _positive | f feature, key cached feature |
| negative cache, mask p > 0.03 | _negative | m mask of the probabilities |
| final logits = s f.t + positive - negative | step | s logit scale, t text |

Differs from the paper: one setting for all datasets (the authors ship one per dataset);
with several views the mean of the confident ones is normalised, and the pseudo-label is
that of their mean probabilities, as in the other methods here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.ops import Confident
from crg.parts.cache import Cache
from crg.types import Array, Diagnostics, Prediction, Sample, namespace


@register
class TDA(Method):
    """Two caches of confident and of unsure images correct the zero-shot logits; no gradient.

    >>> import crg
    >>> task = crg.Task(["cat", "dog"], [[1.0, 0.2, 0.0], [0.2, 1.0, 0.0]])
    >>> adapter = crg.create("tda", task, positive_size=5)
    >>> adapter.step([0.9, 0.1, 0.3]).class_name
    'cat'
    """

    name = "tda"
    paper = "Karmanov et al., Efficient Test-Time Adaptation of Vision-Language Models, CVPR 2024"
    _rows = _columns = ("masks",)

    @dataclass(frozen=True)
    class Config:
        """The paper's constants, one setting for all datasets."""

        view_share: float = option(0.1, "fraction of views kept", above=0, at_most=1)
        positive_size: int = option(3, "slots per positive queue", at_least=1, at_most=10_000)
        positive_weight: float = option(2.0, "alpha, positive cache", at_least=0, at_most=1e6)
        positive_sharpness: float = option(5.0, "beta, positive cache", at_least=0, at_most=50)
        negative_size: int = option(2, "slots per negative queue", at_least=1, at_most=10_000)
        negative_weight: float = option(0.117, "alpha, negative cache", at_least=0, at_most=1e6)
        negative_sharpness: float = option(1.0, "beta, negative cache", at_least=0, at_most=50)
        entropy_low: float = option(0.2, "negative cache: H/log2 K above this", at_least=0)
        entropy_high: float = option(0.5, "negative cache: H/log2 K below this", at_least=0)
        mask_above: float = option(0.03, "probability above which a class is possible", at_least=0)

    def reset(self) -> None:
        """Empty both caches."""
        text = self.task.text_features
        self.positive = Cache(text, self.config.positive_size, seeded=False)
        self.negative = Cache(text, self.config.negative_size, seeded=False)
        # Kept as numbers of the features' type: they are multiplied at every step.
        shape = (text.shape[0], self.config.negative_size, text.shape[0])
        self.masks = namespace(text).zeros(shape, dtype=text.dtype, device=text.device)  # (K, M, K)

    def step(self, sample: Sample) -> Prediction:
        """Cache the image, then add what the caches say to the zero-shot logits."""
        c, seen = self.config, self._confident(sample.views)
        added = self.positive.offer(seen.label, seen.feature, seen.entropy, sample.id)
        if c.entropy_low < seen.entropy / math.log2(self.task.n_classes) < c.entropy_high:
            noted = self.negative.offer(seen.label, seen.feature, seen.entropy, sample.id)
            if noted is not None:
                self.masks[noted.label, noted.place, :] = seen.probs > c.mask_above
        return self._answered(seen, added is not None)

    def answer(self, sample: Sample) -> Prediction:
        """Add what the caches say to the zero-shot logits; nothing is cached."""
        return self._answered(self._confident(sample.views), cached=False)

    def _answered(self, seen: Confident, cached: bool) -> Prediction:
        """s f . t + positive - negative."""
        f = seen.feature
        logits = self._zero_shot(f) + self._positive(f) - self._negative(f)
        facts = Diagnostics(seen.entropy, seen.label, cached, self.positive.fill)
        return self._predicted(logits, facts)

    def _positive(self, feature: Array) -> Array:
        """alpha sum over the class's keys of exp(-beta (1 - f . key)), (K,)."""
        c = self.config
        affinity = self.positive.affinity(feature, c.positive_sharpness)  # (K, M)
        return c.positive_weight * namespace(affinity).sum(affinity, axis=1)

    def _negative(self, feature: Array) -> Array:
        """The affinity to all negative keys, added to the classes of each key's mask, (K,)."""
        xp, c = namespace(feature), self.config
        affinity = self.negative.affinity(feature, c.negative_sharpness)
        rows = xp.reshape(self.masks, (-1, self.task.n_classes))
        return c.negative_weight * (xp.reshape(affinity, (-1,)) @ rows)

    @property
    def queues(self) -> Cache:
        """The positive cache."""
        return self.positive
