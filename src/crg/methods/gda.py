"""GDA: Gaussian discriminant analysis of a few labelled images (Wang et al., ICLR 2024).

Each class is a Gaussian around the mean of its labelled features, all with one covariance,
so that Bayes' rule gives a linear classifier in closed form. It is added to the zero-shot
logits. CRG reads its cache by the same rule; the precision is the same part.

| equation | function | symbols |
| --- | --- | --- |
| mu_k, mean of the class's labelled features | _means | K classes, D width |
| P = D (S + r I)^-1, r = tr(S) / (n - 1) | parts.precision | S scatter within classes, n images |
| w_k = P mu_k, b_k = -1/2 mu_k . P mu_k | _fit | uniform prior, its logarithm is left out |
| logits = s f . t_k + alpha (w_k . f + b_k) | step | f original view, s scale, t text |

Differs from the paper: alpha stays 1, whereas the authors choose it among 1e-4, 1e-3, ..., 100
on validation images (on the test images for ImageNet). They encode several random crops of
each labelled image; here each counts once as it was encoded, so that with one shot there is
no scatter and the answer is that of zero-shot. r is the nearest value on a grid of 2% steps, as
in CRG, so it is at most 1% off.

A class without labelled images gets the mean of the other classes' means, so that only the text
term separates it from them. Neither its text feature nor a term of zero would do: text lies far
from all images and the logits of labelled classes far above zero, so that the class would never
be predicted.
"""

from __future__ import annotations

from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.parts.cache import Cache, labelled_queues
from crg.parts.precision import Precision
from crg.resources import FEW
from crg.types import Array, Prediction, Sample, namespace


@register
class GDA(Method):
    """Zero-shot plus one Gaussian per class, fitted to labelled images; nothing is adapted.

    >>> import crg
    >>> from crg.resources import FewShot
    >>> few = FewShot([[0.8, 0.1, 0.6], [0.7, 0.3, 0.6], [0.1, 0.8, 0.6]], (0, 0, 1))
    >>> task = crg.Task(["cat", "dog"], [[1.0, 0.2, 0.0], [0.2, 1.0, 0.0]], 100.0, {"few": few})
    >>> crg.create("gda", task).step([0.9, 0.1, 0.5]).class_name
    'cat'
    """

    name = "gda"
    forgets = True
    needs = (FEW,)
    _not_saved = Method._not_saved | {"weights", "biases"}  # what they are made of is in the task
    paper = (
        "Wang et al., A Hard-to-Beat Baseline for Training-free CLIP-Based Adaptation, ICLR 2024"
    )

    @dataclass(frozen=True)
    class Config:
        """One setting for all datasets."""

        shots: int = option(16, "labelled images per class; 0 takes all", at_least=0)
        alpha: float = option(1.0, "weight of the Gaussian logits", at_least=0, at_most=1e6)

    def reset(self) -> None:
        """There is nothing to forget, only the fit of the labelled images."""
        queues = labelled_queues(self.task, self.config.shots)
        self.weights, self.biases = self._fit(queues)  # w (K, D), b (K,), double precision

    _derive = reset  # a class that was added has no labelled images

    def step(self, sample: Sample) -> Prediction:
        """logits = s f . t + alpha (w . f + b)."""
        f, xp = sample.views[0, :], namespace(sample.views)
        logits = self._zero_shot(f)
        facts, _ = self._facts(logits)
        h = self.weights @ xp.astype(f, xp.float64) + self.biases
        return self._predicted(logits + xp.astype(self.config.alpha * h, logits.dtype), facts)

    def _fit(self, queues: Cache) -> tuple[Array, Array]:
        """w_k = P mu_k and b_k = -1/2 mu_k . P mu_k; zero while there is no scatter."""
        means, precision = self._means(queues), Precision(queues)
        xp = namespace(means)
        if not precision.ridge:
            return xp.zeros_like(means), xp.zeros_like(means[:, 0])
        weights = means.shape[1] * precision.solve(means)
        return weights, -0.5 * xp.sum(means * weights, axis=1)

    def _means(self, queues: Cache) -> Array:
        """mu_k, (K, D); for a class without labelled images the mean of the others."""
        xp, counts = namespace(queues.features), queues.counts.tolist()
        rows = xp.stack([queues.mean(k) for k in range(len(counts))])
        means = xp.astype(rows, xp.float64)
        known = [k for k, count in enumerate(counts) if count]
        unknown = [k for k, count in enumerate(counts) if not count]
        if known and unknown:
            means[unknown, :] = xp.mean(means[known, :], axis=0)
        return means
