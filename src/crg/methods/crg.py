"""CRG: cache, residual, Gaussian (Zhai et al., ICME 2025, arXiv 2503.18334).

A priority queue per class keeps the most confident images and a text cache drifts with
confident predictions. One gradient step per image moves text, positive and negative
prototypes; then the cache is read as one Gaussian per class, so that a wrongly labelled
entry does little harm.

| step | function | symbols |
| --- | --- | --- |
| 1 select | ops.confident_views | f views, rho fraction kept, x confident feature, h entropy |
| 2 cache | parts.cache | M slots per queue |
| 3 prototypes | parts.prototypes | v+ positive, v- negative, t text |
| 4 residual | parts.residual | R_T, R+, R-; xi1, xi2, gamma, lr |
| 5 Gaussian | parts.gaussian, parts.precision | S scatter, P precision, mu = v+ + R+ |
| 6 predict | _logits | lambda1, lambda2, beta |
| 7 evolve | _evolve | tau_t gate, n_t updates |

Differs from the paper: it is silent on some choices, which are options here: ``gamma``,
``eps``, ``reduction``, ``predict_on``. The scale s touches the cosine only, v- is constant
with respect to R+, and the shifted cache features are not normalised again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.ops import Confident, confident_views, softmax_and_entropy
from crg.parts import fused
from crg.parts.cache import Cache
from crg.parts.gaussian import Gaussian
from crg.parts.prototypes import TextPrototypes, VisualPrototypes
from crg.parts.residual import Moved, Residual, ResidualRule, attraction, move, repulsion
from crg.types import Array, Diagnostics, Prediction, Sample, namespace

_confident_views = fused(confident_views)


@register
class CRG(Method):
    """Cache, residual, Gaussian: a noisy cache of confident images, read robustly.

    One gradient step per image moves text and visual prototypes; a Gaussian per class then reads
    the cache. ``Config`` has the paper's constants and the switches of its ablation.

    >>> import crg
    >>> task = crg.Task(["cat", "dog"], [[1.0, 0.2, 0.0], [0.2, 1.0, 0.0]])
    >>> adapter = crg.create("crg", task, queue_size=4)
    >>> adapter.step([0.9, 0.1, 0.3]).class_name
    'cat'
    """

    name = "crg"
    paper = (
        "Zhai et al., Mitigating Cache Noise in Test-Time Adaptation for Large Vision-Language "
        "Models, ICME 2025"
    )

    @dataclass(frozen=True)
    class Config:
        """The paper's defaults; the last eight are the switches of its ablation."""

        queue_size: int = option(12, "M, slots per queue", at_least=1, at_most=10_000)
        view_share: float = option(0.1, "rho, fraction of views kept", above=0, at_most=1)
        beta: float = option(5.0, "sharpness of the similarity terms", at_least=0, at_most=30)
        lambda1: float = option(7.0, "positive or Gaussian weight", at_least=0, at_most=1e6)
        lambda2: float = option(0.3, "weight of the negative logits", at_least=0, at_most=1e6)
        xi1: float = option(1.0, "weight of the text separation loss", at_least=0, at_most=1e6)
        xi2: float = option(10.0, "weight of the cache separation loss", at_least=0, at_most=1e6)
        gamma: float = option(2.0, "kernel width of text separation", at_least=0, at_most=1e3)
        lr: float = option(5e-4, "size of the AdamW step", at_least=0, at_most=1)
        eps: float = option(1e-3, "AdamW's eps", at_least=1e-9, at_most=1e6)
        tau_t: float = option(0.1, "normalised entropy below which text evolves", at_least=0)
        reduction: str = option("sum", "of the separation losses", choices=("sum", "mean"))
        predict_on: str = option("original", "view to predict", choices=("original", "confident"))
        text_cache: bool = option(True, "text prototypes move and evolve")
        positive: bool = option(True, "positive similarity in the logits")
        negative: bool = option(True, "negative similarity in the logits")
        gaussian: bool = option(True, "Gaussian logits in place of positive similarity")
        text_separation: bool = option(True, "text separation loss")
        cache_separation: bool = option(True, "cache separation loss")
        residual: bool = option(True, "the gradient step")
        evolve: bool = option(True, "text prototypes keep part of their residual")

    def reset(self) -> None:
        """Queues hold their class's text feature and nothing else."""
        text = self.task.text_features
        self.cache = Cache(text, self.config.queue_size, seeded=True)
        self.text = TextPrototypes(text)
        self._derive()

    def _derive(self) -> None:
        """Compute everything that depends on the cache and the text prototypes from scratch."""
        self.visual = VisualPrototypes(self.cache)
        self.residual = Residual(ResidualRule.of(self.config, self.task), self.text.rows)
        self.gaussian = Gaussian(self.cache)

    def step(self, sample: Sample) -> Prediction:
        """The seven steps of the method for one image."""
        seen, f = self._select(sample)
        change = self.cache.offer(seen.label, seen.feature, seen.entropy, sample.id)
        if change is not None:
            self.visual.update(self.cache, change)
            if self.config.gaussian:
                self.gaussian.update(self.cache, change)
        moved = self._moved(seen, f)
        logits = self._logits(f, moved)
        probs, entropy = softmax_and_entropy(logits)
        self._evolve(float(entropy), moved.text)
        fill, events = self.cache.fill, self.gaussian.precision.take_events()
        facts = Diagnostics(seen.entropy, seen.label, change is not None, fill, events)
        return self._predicted(logits, facts, probs)

    def answer(self, sample: Sample) -> Prediction:
        """Steps 1 and 4 to 6: nothing is cached and no text prototype evolves."""
        seen, f = self._select(sample)
        moved = self._moved(seen, f)
        facts = Diagnostics(seen.entropy, seen.label, cache_fill=self.cache.fill)
        return self._predicted(self._logits(f, moved, learn=False), facts)

    def _select(self, sample: Sample) -> tuple[Confident, Array]:
        """Step 1: the confident views, and the view f (D,) to predict."""
        c, scale = self.config, self.task.logit_scale
        seen = _confident_views(sample.views, self.text.rows, scale, c.view_share)
        return seen, sample.views[0, :] if c.predict_on == "original" else seen.feature

    def _moved(self, seen: Confident, f: Array) -> Moved:
        """Step 4: the prototypes after one gradient step on the kept views."""
        step = self.residual
        return move(self.text.rows, self.visual, seen, f, step.separation, step.rule)

    def _logits(self, f: Array, moved: Moved, learn: bool = True) -> Array:
        """Steps 5 and 6: s f . t' + lambda1 h(f), or A(f . v+'), + B(f . v-')."""
        c = self.config
        logits = self.task.logit_scale * moved.text_cosine
        if c.gaussian:
            h = self.gaussian.logits(f, moved.means, moved.stirred, refer=learn)
            logits = logits + c.lambda1 * h
        elif c.positive:
            logits = logits + attraction(moved.positive_cosine, c.lambda1, c.beta)
        if c.negative:
            logits = logits + repulsion(moved.negative_cosine, c.lambda2, c.beta)
        return namespace(logits).astype(logits, moved.text.dtype)

    def _evolve(self, entropy: float, moved_text: Array) -> None:
        """Step 7: a confident prediction moves the text prototypes."""
        c = self.config
        if c.text_cache and c.evolve and entropy < c.tau_t * math.log(self.task.n_classes):
            self.residual.follow(self.text.rows, self.text.evolve(moved_text))
