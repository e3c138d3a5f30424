"""Anchored: a Gaussian per class, learnt from all images and anchored at the text.

Our own method, not a paper's; ``Anchored`` has the idea. An image is answered before it is learnt
from. No gradient, no queue, one configuration for all data.

| equation | function | symbols |
| --- | --- | --- |
| x: the original view, or blended with the mean of all | _feature | f_v views |
| 1. z = s t . x, p = softmax(z) | step | s logit scale, t text |
| 2. u = exp(H(q)) / (sum sqrt(q))^2 | soft_counts.spread | q = E / sum E, E evidence |
| 2. kappa = strictness / u^2 + growth (1/u^2 - 1) Nbar | _firmness | Nbar = sum N^2 / sum N |
| 2. a_k, P = (f + D) (S + D v I)^-1 | _refresh | a anchors, S scatter, P precision |
| 2. psi = mean of (m - a) . P (m - a) - D V / N^2 | SoftCounts.anchor_error | m = M / N |
| 3. mu_k = (kappa a_k + M_k) / (kappa + N_k) | _place_means | N, V, M soft counts and sums |
| 4. c_k = (kappa^2 psi + D N_k / 2) / (kappa + N_k)^2 | _self_distances | |
| 4. G_k = -1/2 ((x - mu_k) . P (x - mu_k) - u^2 c_k) | _densities | |
| 5. e = min(1, (Nbar / ready)^3) | _readiness | e readiness |
| 6. z + b + e tau G | _answer | b balance, F, Q sums of answers and of p, tau weight |
| 7. ln tau += rate clip(...) | _weigh | |
| 8. r_k = p_k^power, added to the sums | _learn, parts.soft_counts | r responsibilities |
| second pass: r_k = answer_k^power, sums recomputed | finish | E is kept |
| corrections: r is 0 or 1, and logits get W (x - mean) | correct, parts.soft_counts.Shifts | W |
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from crg.methods.base import copied
from crg.methods.registry import Method, option, register
from crg.ops import normalize, softmax, softmax_and_entropy
from crg.parts.cache import one_class
from crg.parts.precision import ridged
from crg.parts.soft_counts import RecentImages, Shifts, SoftCounts, spread
from crg.types import Array, Diagnostics, Prediction, Sample, SampleId, namespace

_AGREEMENT = 0.85  # of the mean view with the original, above which both are blended
_LEAST_VARIANCE = 1e-6  # of all dimensions together
_HEAVIEST = 50.0  # ln tau: no stream gets near, and e^50 times a density still fits float32
_FARTHEST = 1e12  # psi: precisions times squared distances of unit vectors stay below
Projection: TypeAlias = tuple[Array, float]  # mu_k . P x, (K,), double precision, and x . P x
_FALLBACK = "the covariance needed ten times the prior variance to be inverted"


@register
class Anchored(Method):
    """A Gaussian per class, learnt from all images and anchored at the text.

    One Gaussian per class with a shared covariance is learnt from all images, each of which counts
    for each class by its zero-shot probability, so no cache of confident images fills with errors.
    Class means are anchored at the text, moved across the gap between images and text, and follow
    the images as evidence grows: the fewer of the names in question are in evidence, the closer
    every class stays to its text. A name that no image resembles does not count, so the list may
    be long. The weight of the Gaussian is fitted to the zero-shot probabilities, without labels,
    and is small until there are enough images per class.

    Examples
    --------
    >>> import numpy as np, crg
    >>> rng = np.random.default_rng(0)
    >>> centres = rng.normal(size=(6, 32))
    >>> text = centres + 1.6 * rng.normal(size=(6, 32))
    >>> truth = rng.integers(6, size=400)
    >>> images = centres[truth] + rng.normal(size=(400, 32))
    >>> task = crg.Task(list("abcdef"), text, logit_scale=20.0)
    >>> for method in ("zero_shot", "anchored"):
    ...     answers = crg.create(method, task).step_many(images)
    ...     print(method, f"{np.mean([each.label for each in answers] == truth):.2f}")
    zero_shot 0.86
    anchored 0.90
    """

    name = "anchored"
    paper = "a method of this project: docs/methods.md"
    _rows = ("answered", "expected", "evidence", "quadratic")
    _text_rows = ("anchors", "means")

    @dataclass(frozen=True)
    class Config:
        """One set of constants for all data."""

        # fmt: off
        power: float = option(1.5, "an image counts for a class by its probability to this power; "
                              "larger: for the most probable class only", above=0, at_most=10)
        strictness: float = option(0.5, "images that the text is worth, all names in evidence; "
                                   "larger: means stay closer to it", at_least=1e-6, at_most=1e6)
        growth: float = option(0.05, "growth of that number with the images per class where names "
                               "are absent; larger: slower, safer", at_least=0, at_most=1e3)
        firmest: float = option(1000.0, "upper limit of that number, a guard", at_least=1e-6,
                                at_most=1e6)
        ready: float = option(3.0, "images per class at which the Gaussian counts in full; larger: "
                              "a longer cold start", above=0, at_most=1e6)
        rate: float = option(0.02, "step of the Gaussian's weight; larger: faster, less steady",
                             at_least=0, at_most=1)
        first_weight: float = option(math.exp(-4.0), "weight at the start", above=0, at_most=100)
        balance: float = option(0.5, "how far class frequencies follow earlier answers: 0 not at "
                                "all, 1 fully", at_least=0, at_most=1)
        refresh: float = option(1.25, "growth of the stream after which the covariance is "
                                "recomputed; smaller: slower steps", at_least=1.01, at_most=100)
        floor: float = option(1e-3, "smaller responsibilities are zero", at_least=1e-6, at_most=1)
        views: str = option("blend", "several views: averaged where they agree with the original, "
                            "ignored, or always averaged", choices=("blend", "original", "always"))
        half_life: float = option(0.0, "images after which an image counts half, for streams that "
                                  "drift; 0: never", at_least=1, or_zero=True, at_most=1e9)
        margin: float = option(2.0, "lead that a correction gives, nats", at_least=0, at_most=100)
        memory: int = option(1000, "images that can be corrected by id", at_least=0, at_most=10**6)
        # fmt: on

    def reset(self) -> None:
        """Forget all images."""
        text = self.task.text_features
        xp, n_classes = namespace(text), text.shape[0]
        self.filing = None
        self.seen = SoftCounts(text)
        self.recent = RecentImages(text, self.config.memory)
        self.log_weight = math.log(self.config.first_weight)  # ln tau
        self.answered = xp.zeros(n_classes, dtype=xp.float64, device=text.device)  # F, (K,)
        self.expected = xp.zeros_like(self.answered)  # Q, (K,)
        self.evidence = xp.zeros_like(self.answered)  # E, (K,): N of the first pass
        self.n_views, self.n_agreed = 0, 0  # images with several views; where views agreed
        self.refreshed_at, self.n_since = 0.0, 0  # n at the last refresh; images since
        self.spread, self.anchor_error = 1.0, 0.0  # u, psi
        self.firmness = self.config.firmest  # kappa
        self.anchors = xp.asarray(text, copy=True)  # a, (K, D)
        self.precision = xp.eye(text.shape[1], dtype=text.dtype, device=text.device)  # P, (D, D)
        self.means = xp.asarray(text, copy=True)  # mu, (K, D)
        self.quadratic = xp.zeros_like(self.answered)  # mu . P mu, (K,)
        self.shifts = Shifts(text)

    def step(self, sample: Sample) -> Prediction:
        """Answer one image, then learn from it."""
        x = self._feature(sample.views, count=True)
        logits = zero_shot = self._zero_shot(x)
        p, h = softmax_and_entropy(zero_shot)
        probs, sight, events = p, None, ()  # type: Array, Projection | None, tuple[str, ...]
        if self._has_evidence():
            events = self._refresh() if self._is_due() else ()
            sight = self._see(x)
            logits, probs = self._answer(x, sight, zero_shot, p)
        label = int(namespace(p).argmax(p))
        r = self._responsibilities(p, label, sample.id)
        self._learn(x, p, r, sample.id, sight)
        facts = Diagnostics(float(h), label, events=events, learnt=r, extra=self._extra())
        return self._predicted(logits, facts, probs)

    def answer(self, sample: Sample) -> Prediction:
        """Answer one image with what was learnt; learn nothing from it."""
        if self._has_evidence() and not self.refreshed_at:
            (refreshed := copied(self))._refresh()
            return refreshed.answer(sample)
        x = self._feature(sample.views)
        logits = zero_shot = self._zero_shot(x)
        p, h = softmax_and_entropy(zero_shot)
        if self._has_evidence():
            logits = self._logits(x, zero_shot, self._densities(self._see(x)))
        facts = Diagnostics(float(h), int(namespace(p).argmax(p)), extra=self._extra())
        return self._predicted(logits, facts)

    def finish(self, samples: Iterable[Sample]) -> None:
        """Recompute the sums with the final answers, or corrections, as responsibilities.

        The evidence stays: sharper answers would make the list of names look fuller than it is.
        """
        if not self._has_evidence():
            return
        self._refresh()
        learnt, text = copied(self), self.task.text_features
        self.seen, self.recent = SoftCounts(text), RecentImages(text, self.config.memory)
        self.refreshed_at = 0.0
        for sample in samples:
            x, answer = self._feature(sample.views), learnt.answer(sample)
            known = learnt.recent.find(sample.id) if learnt.shifts.n_steps else None
            if known and float(known.counted @ known.counted) == 1.0:  # a person corrected it
                r = known.counted
            else:
                label = answer.diagnostics.pseudo_label
                r = self._responsibilities(answer.probs, label, sample.id)
            self._learn(x, softmax(self._zero_shot(x)), r, sample.id, None)
        for name in ("answered", "expected", "evidence"):  # _learn faded and counted them again
            setattr(self, name, getattr(learnt, name))
        self._refresh()

    def _feature(self, views: Array, count: bool = False) -> Array:
        """x: normalise(f_0 + normalise(mean of all views)) where the two agree often enough."""
        original, how = views[0, :], self.config.views
        if views.shape[0] == 1 or how == "original":
            return original
        xp, text = namespace(views), self.task.text_features
        mean = normalize(xp.mean(views, axis=0))
        if count:  # an image that is learnt from
            both = xp.argmax(text @ xp.stack([original, mean], axis=1), axis=0)
            self.n_views += 1
            self.n_agreed += int(both[0] == both[1])
        if how == "blend" and self.n_agreed < _AGREEMENT * self.n_views:
            return original
        return normalize(original + mean)

    def _has_evidence(self) -> bool:
        return self.seen.weight > 0.0 and float(namespace(self.means).sum(self.seen.counts)) > 0.0

    def _is_due(self) -> bool:
        """Whether the number of images has grown by the factor ``refresh``."""
        enough = (self.config.refresh - 1.0) * self.refreshed_at
        return self.refreshed_at == 0.0 or self.n_since >= enough - 1e-9

    def _refresh(self) -> tuple[str, ...]:
        """Step 2: recompute what changes slowly; return numerical fallbacks to report."""
        seen, text = self.seen, self.task.text_features
        xp, (n_classes, width) = namespace(text), text.shape
        self.spread = spread(self.evidence)
        self.firmness = self._firmness()
        self.anchors = xp.astype(seen.gaps / seen.n_images, text.dtype) + text
        mean = seen.total / seen.n_images
        variance = 1.0 - float(mean @ mean) + 1.0 / seen.n_images  # D v
        variance = max(_LEAST_VARIANCE, min(1.0, variance))
        freedom = seen.weight - float(xp.sum(seen.counts / (seen.counts + 1.0)))  # f
        eye = xp.eye(width, dtype=xp.float64, device=text.device)
        found, times = ridged(seen.inverse_scatter, variance, eye)
        self.precision = xp.astype((max(0.0, freedom) + width) * found, text.dtype)
        self.anchor_error = seen.anchor_error(self.anchors, self.precision)
        self.refreshed_at, self.n_since = seen.n_images, 0
        everything = xp.arange(n_classes, device=text.device)
        self._place_means(everything)
        self._measure_means(everything)
        return times * (_FALLBACK,)

    def _firmness(self) -> float:
        """Step 2: kappa = strictness / u^2 + growth (1/u^2 - 1) Nbar, at most ``firmest``."""
        c, lacking = self.config, 1.0 / self.spread**2
        grown = c.growth * (lacking - 1.0) * self.seen.typical_count
        return float(min(c.firmest, c.strictness * lacking + grown))

    def _place_means(self, classes: Array) -> None:
        """Step 3: mu_k = (kappa a_k + M_k) / (kappa + N_k) for some of the classes."""
        xp, kappa = namespace(self.means), self.firmness
        share = xp.astype(kappa + self.seen.counts[classes], self.means.dtype)[:, None]
        means = (kappa * self.anchors[classes, :] + self.seen.sums[classes, :]) / share
        self.means[classes, :] = means

    def _measure_means(self, classes: Array) -> None:
        """mu_k . P mu_k for some of the classes."""
        xp, means = namespace(self.means), self.means[classes, :]
        form = xp.sum((means @ self.precision) * means, axis=1)
        self.quadratic[classes] = xp.astype(form, xp.float64)

    def _see(self, x: Array) -> Projection:
        """Multiply an image with the precision: mu . P x and x . P x."""
        xp, onto = namespace(x), self.precision @ x
        return xp.astype(self.means @ onto, xp.float64), float(x @ onto)

    def _densities(self, sight: Projection) -> Array:
        """Step 4: G_k = -1/2 ((x - mu_k) . P (x - mu_k) - u^2 c_k) - max G."""
        xp, (linear, square) = namespace(self.quadratic), sight
        form = self.quadratic - 2.0 * linear + square
        densities = -0.5 * (form - self.spread**2 * self._self_distances())
        return densities - xp.max(densities)

    def _self_distances(self) -> Array:
        """Step 4: c_k, the expected distance of a class from its images: larger for few, (K,)."""
        counts, kappa, width = self.seen.counts, self.firmness, self.means.shape[1]
        return (kappa**2 * self.anchor_error + 0.5 * width * counts) / (kappa + counts) ** 2

    def _readiness(self) -> float:
        """Step 5: e, from 0 to 1 as the class of a typical image gets ``ready`` images."""
        return float(min(1.0, self.seen.typical_count / self.config.ready) ** 3)

    def _answer(self, x: Array, sight: Projection, z: Array, p: Array) -> tuple[Array, Array]:
        """Compute logits and probabilities, then update the weight and the balance."""
        xp, densities = namespace(p), self._densities(sight)
        logits = self._logits(x, z, densities)
        probs, p = softmax(logits), xp.astype(p, xp.float64)
        self._weigh(densities, p)
        self.answered += xp.astype(probs, xp.float64)
        self.expected += p
        return logits, probs

    def _logits(self, x: Array, zero_shot: Array, densities: Array) -> Array:
        """Step 6: z + b + e tau G, plus W (x - mean) after corrections."""
        xp, e = namespace(zero_shot), self._readiness()
        balance = self.config.balance * xp.log((self.answered + 1.0) / (self.expected + 1.0))
        gained = e * balance + e * math.exp(self.log_weight) * densities
        logits = zero_shot + xp.astype(gained, zero_shot.dtype)
        return logits + self.shifts.rows @ self._centred(x) if self.shifts.n_steps else logits

    def _centred(self, x: Array) -> Array:
        """x less the mean of all images, (D,)."""
        return x - namespace(x).astype(self.seen.total / self.seen.n_images, x.dtype)

    def _weigh(self, densities: Array, p: Array) -> None:
        """Step 7: trust the Gaussian as far as it predicts the zero-shot probabilities."""
        weighted = math.exp(self.log_weight) * densities
        slope = float((p - softmax(weighted)) @ weighted)
        self.log_weight += self.config.rate * min(1.0, max(-1.0, slope))

    def _responsibilities(self, p: Array, label: int, sample_id: SampleId) -> Array:
        """r_k = p_k^power, or 1 for the class that injected label noise chose, (K,)."""
        xp, r = namespace(p), p**self.config.power
        r = xp.where(r < self.config.floor, xp.zeros_like(r), r)
        return self._filed(r, label, sample_id)

    def _learn(
        self, x: Array, p: Array, r: Array, sample_id: SampleId, sight: Projection | None
    ) -> None:
        """Step 8: add an image to the sums; step 3 for the classes that it counts for."""
        if self.config.half_life:
            factor = 0.5 ** (1.0 / self.config.half_life)
            self.seen.fade(factor)
            for array in (self.answered, self.expected, self.evidence):
                array *= factor
        self.seen.see(x, x - p @ self.task.text_features)
        touched = self.seen.count(x, r)
        self.evidence += namespace(r).astype(r, self.evidence.dtype)
        self.recent.add(x, r, sample_id)
        self.n_since += 1
        if self.refreshed_at:
            self._place_means(touched)
            if sight is None or self.config.half_life:
                self._measure_means(touched)
            else:
                self._follow_means(touched, r[touched], sight)

    def _follow_means(self, classes: Array, r: Array, sight: Projection) -> None:
        """mu . P mu after mu moved to (1 - c) mu + c x, with c = r / (kappa + N)."""
        xp, (linear, square) = namespace(r), sight
        c = xp.astype(r, xp.float64) / (self.firmness + self.seen.counts[classes])
        kept = 1.0 - c
        moved = kept * self.quadratic[classes] + 2.0 * c * linear[classes]
        self.quadratic[classes] = kept * moved + c * c * square

    def _extra(self) -> dict[str, float]:
        return {"weight": math.exp(self.log_weight), "firmness": self.firmness}

    def recall(self, sample_id: SampleId) -> Array | None:
        """The feature of an image among the latest ``memory``, (D,)."""
        return (known := self.recent.find(sample_id)) and known.feature

    def correct(self, sample: Sample, label: int) -> None:
        """Let an image count 1 for ``label`` and 0 for all others; undo what it counted before."""
        known, r = self.recent.find(sample.id), one_class(label, self.task.text_features[:, 0])
        if known is None:
            x = self._feature(sample.views, count=True)
            self._learn(x, r, r, sample.id, None)
        else:
            half_life = self.config.half_life
            x, faded = known.feature, 0.5 ** (known.age / half_life) if half_life else 1.0
            self.seen.count(x, known.counted, sign=-faded)
            self.seen.count(x, r, sign=faded)
            change = namespace(x).astype(faded * (r - known.counted), self.evidence.dtype)
            self.evidence = namespace(x).clip(self.evidence + change, min=0.0)
            self.recent.counted[known.place, :] = r
        self._refresh()
        logits = self._logits(x, self._zero_shot(x), self._densities(self._see(x)))
        self.shifts.learn(logits, label, self._centred(x), self.config.margin)

    def _is_sound(self) -> bool:
        counts = (self.answered, self.expected, self.evidence)
        return (
            abs(self.log_weight) <= _HEAVIEST
            and all(float(namespace(n).min(n)) >= 0.0 for n in counts)
            and 0.0 < self.spread <= 1.0
            and 0.0 < self.firmness <= self.config.firmest
            and 0.0 <= self.anchor_error <= _FARTHEST
        )

    def _derive(self) -> None:
        """After a change of classes the next image refreshes the Gaussian."""
        self.refreshed_at = 0.0
