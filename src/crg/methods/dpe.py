"""DPE: dual prototype evolving (Zhang et al., NeurIPS 2024).

Every class has a text prototype and a visual prototype, the mean of its three most
confident images. One AdamW step per image moves both by residuals that start at zero;
text prototypes then evolve by a cumulative mean over confident predictions.

| equation | function | symbols |
| --- | --- | --- |
| visual prototypes, mean per class | _visual | v (C, D), C classes seen so far |
| logits s x.t' + alpha exp(-beta (1 - x.v')) | _logits | x confident feature |
| entropy + align InfoNCE(v', t') | _residuals | tau = 0.01 |
| text evolution, H / log2 K < 0.1 | step | n_t updates |

The gradient is written out instead of left to autograd; ``parts.residual`` says why one
AdamW step from zero has a closed form.

Differs from the paper: one setting for all datasets (the authors ship one per dataset);
with several views the mean of the confident ones is normalised, and the pseudo-label is
that of their mean probabilities, as in the other methods here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.ops import confident_views, normalize, softmax, softmax_and_entropy
from crg.parts.cache import Cache
from crg.parts.prototypes import TextPrototypes
from crg.parts.residual import Unit, adamw_from_zero, attraction, entropy_gradient
from crg.types import Array, Diagnostics, Prediction, Sample, namespace


@register
class DPE(Method):
    """Text and visual prototypes that evolve together, with one gradient step per image."""

    name = "dpe"
    paper = (
        "Zhang et al., Dual Prototype Evolving for Test-Time Generalization of Vision-Language "
        "Models, NeurIPS 2024"
    )

    @dataclass(frozen=True)
    class Config:
        """The paper's setting for ImageNet, used for all datasets."""

        view_share: float = option(0.1, "fraction of views kept", above=0, at_most=1)
        queue_size: int = option(3, "slots per queue", at_least=1, at_most=10_000)
        alpha: float = option(6.0, "weight of the visual logits", at_least=0, at_most=1e6)
        beta: float = option(5.0, "sharpness of the visual logits", at_least=0, at_most=50)
        align: float = option(0.5, "weight of the alignment loss", at_least=0, at_most=1e6)
        temperature: float = option(0.01, "of the alignment loss", at_least=1e-4, at_most=1e6)
        lr: float = option(6e-4, "size of the AdamW step", at_least=0, at_most=1)
        eps: float = option(1e-3, "AdamW's eps", at_least=1e-9, at_most=1e6)
        evolve_below: float = option(0.1, "text evolves where H/log2 K is below this", at_least=0)

    def reset(self) -> None:
        """Empty queues, text prototypes at the prompts."""
        self.cache = Cache(self.task.text_features, self.config.queue_size, seeded=False)
        self.text = TextPrototypes(self.task.text_features)

    def step(self, sample: Sample) -> Prediction:
        """Cache the image, take one step, predict the original view, evolve."""
        text, c = self.text.rows, self.config
        seen = confident_views(sample.views, normalize(text), self.task.logit_scale, c.view_share)
        change = self.cache.offer(seen.label, seen.feature, seen.entropy, sample.id)
        logits, moved_text = self._moved(sample.views[0, :], seen.feature)
        facts = Diagnostics(seen.entropy, seen.label, change is not None, self.cache.fill)
        probs, uncertainty = softmax_and_entropy(logits)
        if float(uncertainty) / math.log2(self.task.n_classes) < c.evolve_below:
            self.text.evolve(moved_text)  # a cumulative mean over confident predictions
        return self._predicted(logits, facts, probs)

    def answer(self, sample: Sample) -> Prediction:
        """Take one step and predict the original view; nothing is cached, nothing evolves."""
        text, f, scale = normalize(self.text.rows), sample.views[0, :], self.task.logit_scale
        if not self.cache.counts.any():  # no image has been cached, so there is nothing to step to
            return self._predicted_plainly(scale * (text @ f))
        seen = confident_views(sample.views, text, scale, self.config.view_share)
        facts = Diagnostics(seen.entropy, seen.label, cache_fill=self.cache.fill)
        return self._predicted(self._moved(f, seen.feature)[0], facts)

    def _moved(self, f: Array, x: Array) -> tuple[Array, Array]:
        """Logits of ``f`` (K,) and text prototypes (K, D) after one step for ``x``."""
        visual, classes = self._visual()
        text_residual, visual_residual = self._residuals(x, visual, classes)
        text = normalize(self.text.rows + text_residual)
        return self._logits(f, text, normalize(visual + visual_residual), classes), text

    def _visual(self) -> tuple[Array, Array]:
        """Means of the queues that are not empty (C, D), and their classes (C,)."""
        xp, features = namespace(self.cache.features), self.cache.features
        counts = xp.asarray(self.cache.counts, device=features.device)
        classes = xp.nonzero(counts)[0]
        sums = xp.sum(xp.take(features, classes, axis=0), axis=1)  # empty slots are zero
        return sums / xp.astype(xp.take(counts, classes), features.dtype)[:, None], classes

    def _logits(self, f: Array, text: Array, visual: Array, classes: Array) -> Array:
        """s f . t' + alpha exp(-beta (1 - f . v')), the latter for classes seen so far."""
        logits = self.task.logit_scale * (text @ f)
        logits[classes] += attraction(visual @ f, self.config.alpha, self.config.beta)
        return logits

    def _residuals(self, x: Array, visual: Array, classes: Array) -> tuple[Array, Array]:
        """-lr g / (|g| + eps) with g the gradient of entropy + align InfoNCE at zero."""
        xp, c = namespace(x), self.config
        t, v = Unit.of(self.text.rows), Unit.of(visual)
        slope = entropy_gradient(self._logits(x, t.rows, v.rows, classes)[None, :])[0, :]  # (K,)
        g_text = self.task.logit_scale * slope[:, None] * x
        affinity = attraction(v.rows @ x, c.alpha, c.beta)
        g_visual = (c.beta * xp.take(slope, classes) * affinity)[:, None] * x
        # InfoNCE: mean over c of -ln softmax_j(v_c . t_j / tau)_c, over classes seen so far.
        paired = xp.take(t.rows, classes, axis=0)  # (C, D)
        excess = softmax(v.rows @ paired.T / c.temperature)
        excess = excess - xp.eye(excess.shape[0], dtype=x.dtype, device=x.device)
        weight = c.align / (c.temperature * classes.shape[0])
        g_text[classes, :] += weight * (excess.T @ v.rows)
        g_visual = g_visual + weight * (excess @ paired)
        return (
            adamw_from_zero(t.pull_back(g_text), c.lr, c.eps),
            adamw_from_zero(v.pull_back(g_visual), c.lr, c.eps),
        )
