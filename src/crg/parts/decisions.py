"""Decisions beside a method: whether an image is of no class, and sets of classes.

They need features, text features and probabilities only, so every method has them. A change makes
a new object and leaves the old one as it was, so that a step that fails is undone by keeping it.

An image with the cosines c to the text of all classes is compared with its stream:

| equation | function | symbols |
| --- | --- | --- |
| a = -max c, b = -max softmax(c) at temperature 1 | _facts | |
| s = (a - mean a) / dev a + (b - mean b) / dev b | Outside.score | mean, dev over the stream |
| outside = Phi(s / 2) | _decision | Phi normal distribution function |
| the smaller of a split and median + 3 (median - q) | _threshold | q 15.87% quantile |

The split finds images of no class that are a sizeable part of the stream, where Otsu's explains
0.78 of the variance (streams without any reached 0.76). It is moved up to where two Gaussians have
the least error (Kittler and Illingworth, 1986), past the classes that the model knows less well.
The tail finds rare ones; its width is taken from the lower side, where such images are not.

Sets are those of split conformal prediction with the score 1 - p of the true class (Sadinle, Lei
and Wasserman, 2019), in the last answer to an image before its label was learnt.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from crg.parts.state import Stateful
from crg.types import Array, Decision, InputError, Prediction, Sample, SampleId, namespace

AUTO: Literal["auto"] = "auto"  # a threshold that the stream gives
_ROUNDING = 1e-6  # of a figure; images that differ by less are the same
_WINDOW = 512  # scores that the threshold is taken from
_FIRST, _EVERY = 64, 16  # images before the first threshold, and from one to the next
_EXPLAINED = 0.78  # of the variance, by a split that counts
_DEVIATIONS, _QUANTILE = 3.0, 0.1587  # one deviation below the median of a normal distribution
LEAST = 20  # labelled images that sets need
_MOST = 512  # labelled images that are kept, the latest ones

NoneOfThese: TypeAlias = float | Literal["auto"] | None
Numbers = np.ndarray[Any, Any]


class Outside(Stateful):
    """How far images stand out from their stream."""

    def __init__(self) -> None:
        self.n_images = 0
        self.means = np.zeros(2)  # of a and b
        self.squares = np.zeros(2)  # sums of their squared deviations
        self.recent = np.zeros(_WINDOW)  # scores, in a ring
        self.threshold = np.full(1, np.inf)  # of the score, above which an image is foreign

    def score(self, facts: Numbers) -> float:
        """s of an image with these a and b."""
        deviations = np.sqrt(self.squares / max(1, self.n_images))
        differ = deviations > _ROUNDING * np.abs(self.means)
        return float(np.sum((facts - self.means)[differ] / deviations[differ]))

    def seen(self, facts: Numbers) -> tuple[float, Outside]:
        """s of the next image, whose own a and b count, and the statistics after it."""
        after = copy.copy(self)
        n = after.n_images = self.n_images + 1
        after.means = self.means + (facts - self.means) / n
        after.squares = self.squares + (facts - self.means) * (facts - after.means)
        score, after.recent = after.score(facts), self.recent.copy()
        after.recent[(n - 1) % _WINDOW] = score
        if n >= _FIRST and n % _EVERY == 0:
            after.threshold = np.full(1, _threshold(after.recent[:n]))
        return score, after

    def _is_sound(self) -> bool:
        return bool(np.all(self.squares >= 0))


class Calibration(Stateful):
    """Labelled images: id, label and 1 - p of the true class (None if p learnt of the image)."""

    def __init__(self) -> None:
        self.entries: list[list[Any]] = []

    @property
    def scores(self) -> list[float]:
        """1 - p of the true class, the smallest first."""
        return sorted(score for _, _, score in self.entries if score is not None)

    def knows(self, sample_id: SampleId) -> bool:
        """Whether an image is among the labelled ones."""
        return any(each[0] == sample_id for each in self.entries)

    def labelled(self, sample_id: SampleId, label: str, p: float) -> Calibration:
        """The calibration with an image whose class ``label`` had the probability ``p``.

        If a label of the image is known, ``p`` has learnt it: the earlier score stays if the label
        is the same, and goes if it is another.
        """
        if any(each[:2] == [sample_id, label] for each in self.entries):
            return self
        score = None if self.knows(sample_id) else min(1.0, max(0.0, 1.0 - p))
        after, kept = Calibration(), [each for each in self.entries if each[0] != sample_id]
        after.entries = [*kept, [sample_id, label, score]][-_MOST:]
        return after

    def set_of(self, probs: Array, level: float) -> list[int]:
        """The classes among which the true one is with probability ``level``, best first.

        Every class whose 1 - p is at most the ceil((n + 1) level)-th smallest of n scores, and
        always the most probable one; all of them if n is too small for the level.
        """
        scores = self.scores
        place = max(1, math.ceil((len(scores) + 1) * level - 1e-9))
        largest = scores[place - 1] if place <= len(scores) else 1.0
        order, p = namespace(probs).argsort(-probs, stable=True).tolist(), probs.tolist()
        return [k for k in order if k == order[0] or 1.0 - p[k] <= largest]

    def _is_sound(self) -> bool:
        scores = [each[2] if type(each) is list and len(each) == 3 else -1 for each in self.entries]
        return all(s is None or (type(s) in (int, float) and 0 <= s <= 1) for s in scores)


class Decisions(Stateful):
    """What was seen and labelled so far, and what is asked for.

    ``none_of_these`` is the value of ``outside`` above which an image is taken for none of the
    classes, or "auto"; ``sets`` is how often a set of classes is to hold the true one. Either may
    be None. ``before`` has images and labels to continue with. All is computed only if ``is_on``.
    """

    _not_saved: ClassVar[frozenset[str]] = frozenset({"none_of_these", "sets", "is_on"})

    def __init__(
        self,
        none_of_these: Any = None,
        sets: Any = None,
        before: Decisions | None = None,
        is_on: bool = True,
    ) -> None:
        self.none_of_these: NoneOfThese = fraction(none_of_these, "none_of_these", AUTO)
        self.sets, self.is_on = fraction(sets, "sets"), is_on
        self.outside: Outside = Outside() if before is None else before.outside
        self.calibration: Calibration = Calibration() if before is None else before.calibration

    def judged(self, text: Array, samples: Sequence[Sample]) -> tuple[list[Decision], Decisions]:
        """The decision on each of the next images of the stream, and the decisions after them."""
        if not self.is_on:
            return [Decision()] * len(samples), self
        after, found = copy.copy(self), []
        for sample in samples:
            limit = after.outside.threshold[0]
            score, after.outside = after.outside.seen(_facts(text, sample))
            found.append(self._decision(score, limit, sample.id))
        return found, after

    def on(self, text: Array, sample: Sample) -> Decision:
        """The decision on an image that does not count."""
        if not self.is_on:
            return Decision()
        score, limit = self.outside.score(_facts(text, sample)), self.outside.threshold[0]
        return self._decision(score, limit, sample.id)

    def labelled(self, sample_id: SampleId, label: str, p: float) -> Decisions:
        """The decisions after a label whose probability was ``p`` before it was learnt."""
        after = copy.copy(self)
        after.calibration = self.calibration.labelled(sample_id, label, p)
        return after

    def decided(
        self, prediction: Prediction, decision: Decision, class_names: Sequence[str]
    ) -> Prediction:
        """A prediction with its decision, and with a set of classes if one is asked for."""
        if self.sets is not None:
            missing = max(0, LEAST - len(self.calibration.scores))
            places = [] if missing else self.calibration.set_of(prediction.probs, self.sets)
            names = [class_names[k] for k in places]
            decision = replace(decision, class_set=names, missing_labels=missing or None)
        return replace(prediction, decision=decision) if self.is_on else prediction

    def _decision(self, score: float, threshold: float, sample_id: SampleId) -> Decision:
        """A person who labelled an image has said that it is of a class."""
        outside = 0.5 * (1.0 + math.erf(score / math.sqrt(8.0)))
        limit = self.none_of_these
        if limit is None:
            return Decision(outside)
        foreign = score > threshold if limit == AUTO else outside > limit
        return Decision(outside, bool(foreign) and not self.calibration.knows(sample_id))


def fraction(given: Any, what: str, word: str | None = None) -> Any:
    """``given`` as a number between 0 and 1; None and ``word`` stay, all else is refused."""
    if given is None or (isinstance(given, str) and given == word):
        return given
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < 1:
        other = f" or {word}" if word else ""
        raise InputError(f"{what} is {given!r}: give a number between 0 and 1{other}.")
    return number


def _threshold(scores: Numbers) -> float:
    """The score above which images are of no class; infinite where nothing sets them apart."""
    s = np.sort(scores)
    n, below = len(s), np.arange(1, len(s))
    above, sums, squares = n - below, np.cumsum(s), np.cumsum(s * s)
    low, high = sums[:-1] / below, (sums[-1] - sums[:-1]) / above  # means of both parts
    between = below * above / n**2 * (high - low) ** 2
    best = int(np.argmax(between))
    median, quantile = np.quantile(s, [0.5, _QUANTILE])
    if median == quantile:  # the same image again and again
        return math.inf
    tail = float(median + _DEVIATIONS * (median - quantile))
    if between[best] < _EXPLAINED * s.var():
        return tail
    spreads = squares[:-1] / below - low**2, (squares[-1] - squares[:-1]) / above - high**2
    errors = np.zeros(n - 1)
    for size, spread in zip((below / n, above / n), spreads, strict=True):
        errors += size * (np.log(np.maximum(spread, _ROUNDING)) - 2 * np.log(size))
    split = best + int(np.argmin(errors[best : max(best + 1, n - _EVERY)]))
    return min(tail, float(s[split] + s[split + 1]) / 2)


def _facts(text: Array, sample: Sample) -> Numbers:
    """a and b, from the original view."""
    xp = namespace(text)
    cosines = xp.astype(text @ sample.views[0, :], xp.float64)
    top = xp.max(cosines)
    return np.asarray([-float(top), -1.0 / float(xp.sum(xp.exp(cosines - top)))])
