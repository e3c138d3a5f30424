"""Methods that each fail one check, and nothing else if it can be helped."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from crg import Diagnostics, InputError, Prediction, Sample, Task, option
from crg.ops import softmax
from crg.types import Array
from outside_methods import Nearest


class Answering(Nearest):
    """Nearest with one place to spoil the logits."""

    def _answer(self, feature: Array, facts: Diagnostics) -> Prediction:
        good = super()._answer(feature, facts)
        return self._predicted(self.spoil(good.logits), facts)

    def spoil(self, logits: Array) -> Array:
        """What goes wrong."""
        return logits


class Unseeded(Answering):
    """Adds unseeded noise."""

    def spoil(self, logits: Array) -> Array:
        """Another answer each time."""
        return logits + 1e-9 * np.random.default_rng().standard_normal(logits.shape)


class GloballyRandom(Answering):
    """Draws from NumPy's global generator."""

    def spoil(self, logits: Array) -> Array:
        """Moves the generator although the answer does not show it."""
        return logits + 0.0 * np.random.random()


class SharedState(Answering):
    """Counts the steps of all adapters together."""

    steps = itertools.count()

    def spoil(self, logits: Array) -> Array:
        """The counter belongs to the class, not to the object."""
        return logits * (1.0 + 1e-9 * next(self.steps))


class WritesToTask(Answering):
    """Adapts the text features that belong to the caller."""

    def spoil(self, logits: Array) -> Array:
        """In place."""
        self.task.text_features[0, :] *= 1.0 + 1e-6
        return logits


class ReusesLogits(Answering):
    """Hands out the same array again and again."""

    def spoil(self, logits: Array) -> Array:
        """The earlier predictions change with it."""
        if "board" not in vars(self):
            self.board = np.zeros_like(logits)
        if self.board.shape != logits.shape:
            self.board = np.zeros_like(logits)
        self.board[:] = logits
        return self.board


class TwoDimensional(Answering):
    """Gives a matrix of one row."""

    def spoil(self, logits: Array) -> Array:
        """(1, K)."""
        return logits[None, :]


class ForgetsDtype(Answering):
    """Computes in single precision whatever the task is in."""

    def spoil(self, logits: Array) -> Array:
        """float32."""
        return array_namespace(logits).astype(logits, array_namespace(logits).float32)


class WrongLabel(Nearest):
    """Names the class after the right one."""

    def _predicted(
        self, logits: Array, diagnostics: Diagnostics, probs: Array | None = None
    ) -> Prediction:
        good = super()._predicted(logits, diagnostics, probs)
        label = (good.label + 1) % self.task.n_classes
        name = self.task.class_names[label]
        return Prediction(good.logits, good.probs, label, name, diagnostics)


class TakesLogOfZero(Answering):
    """Takes the logarithm of probabilities, which may be zero."""

    def spoil(self, logits: Array) -> Array:
        """Minus infinity where the scale is huge."""
        with np.errstate(divide="ignore"):
            return np.log(softmax(logits))


class RemembersAll(Answering):
    """Keeps every answer."""

    def reset(self) -> None:
        """An empty list that will only grow."""
        super().reset()
        self.answers: list[float] = []

    def spoil(self, logits: Array) -> Array:
        """One number more."""
        self.answers.append(float(logits[0]))
        return logits


class Counting(Answering):
    """Its answer depends on how many samples it saw."""

    def reset(self) -> None:
        """Start to count."""
        super().reset()
        self.count = 0

    def spoil(self, logits: Array) -> Array:
        """A little larger each time."""
        self.count += 1
        return logits * (1.0 + 1e-9 * self.count)


class ForgetsToReset(Counting):
    """Goes on counting after reset."""

    def reset(self) -> None:
        """Keeps the count of before."""
        count = vars(self).get("count", 0)
        super().reset()
        self.count = count


class ForgetsToSave(Counting):
    """Leaves the count out of the saved state."""

    _not_saved = Counting._not_saved | {"count"}


class ForgetsCorrections(Answering):
    """Counts corrections, and leaves the count out of the saved state."""

    _not_saved = Answering._not_saved | {"corrected"}

    def reset(self) -> None:
        """Nothing was corrected yet."""
        super().reset()
        self.corrected = 0

    def correct(self, sample: Sample, label: int) -> None:
        """One more."""
        self.corrected += 1
        super().correct(sample, label)

    def spoil(self, logits: Array) -> Array:
        """A little larger after each correction."""
        return logits * (1.0 + 1e-9 * self.corrected)


class DividesByCorrections(Answering):
    """Weighs its answers by a mean of nothing once it was corrected."""

    def correct(self, sample: Sample, label: int) -> None:
        """From now on the weight is no number."""
        super().correct(sample, label)
        self.weight = float("nan")

    def spoil(self, logits: Array) -> Array:
        """NaN after the first correction."""
        return logits * vars(self).get("weight", 1.0)


class RefusesCorrections(Nearest):
    """Learns from images, and yet cannot be corrected."""

    def correct(self, sample: Sample, label: int) -> None:
        """The sentence does not say that the method does not learn."""
        raise InputError("Not today: come back tomorrow.")


class NotPicklable(Nearest):
    """Keeps a function that has no name."""

    def __init__(self, task: Task, config: Any) -> None:
        super().__init__(task, config)
        self._scale = lambda logits: logits

    _not_saved = Nearest._not_saved | {"_scale"}


class SharesWithCopies(Counting):
    """Keeps its count in a place that copies share."""

    counts: list[int] = []  # noqa: RUF012 - the mistake that the check is to find

    def spoil(self, logits: Array) -> Array:
        """All copies write to one list."""
        self.counts.append(1)
        return logits * (1.0 + 1e-9 * len(self.counts))


class PrefersFirst(Answering):
    """Favours whatever class comes first."""

    def spoil(self, logits: Array) -> Array:
        """The order of classes matters."""
        return logits + array_namespace(logits).asarray([1.0] + [0.0] * (logits.shape[0] - 1))


class IgnoresClassChanges(Answering):
    """Keeps one number per class and does not follow when classes change."""

    def reset(self) -> None:
        """One number per class."""
        super().reset()
        self.bias = 0.0 * self.task.text_features[:, 0]

    def spoil(self, logits: Array) -> Array:
        """Does not fit any more once a class was added."""
        return logits + self.bias


class RemovesWrongClass(Nearest):
    """Drops the last queue whichever class is removed."""

    def remove_class(self, index: int) -> None:
        """The queues of the classes behind are one off."""
        super().remove_class(self.task.n_classes)

    def _answer(self, feature: Array, facts: Diagnostics) -> Prediction:
        xp = array_namespace(feature)
        means = xp.stack([self.cached.mean(k) for k in range(self.task.n_classes)])
        return self._predicted(100.0 * (means @ feature), facts)


class RemembersFirstTask(Answering):
    """Favours the classes that it was created with."""

    def reset(self) -> None:
        """Note how many classes there are."""
        super().reset()
        self.n_first = self.task.n_classes

    def spoil(self, logits: Array) -> Array:
        """A class added later, even before the first sample, is at a disadvantage."""
        return logits + 0.1 * (self.n_first - self.task.n_classes) * logits**2


class DiffersOnTorch(Answering):
    """Rounds differently on torch."""

    def spoil(self, logits: Array) -> Array:
        """Only visible when the answers are compared."""
        return logits if isinstance(logits, np.ndarray) else logits * (1.0 + 1e-6)


class FallsBackToNumpy(Answering):
    """Answers in NumPy whatever it was asked in."""

    def spoil(self, logits: Array) -> Array:
        """No tensor any more."""
        return np.asarray(logits)


class FailsInSingle(Answering):
    """Loses its way in single precision."""

    def spoil(self, logits: Array) -> Array:
        """The largest logit becomes the smallest."""
        return logits if logits.dtype in (np.float64,) else -logits


class LearnsFromAnswering(Nearest):
    """Takes every question for a step."""

    def answer(self, sample: Sample) -> Prediction:
        """The image is cached."""
        return self.step(sample)


class LosesOnFinishing(Nearest):
    """Draws its second pass at random."""

    def finish(self, samples: Iterable[Sample]) -> None:
        """Another cache each time."""
        noise = np.random.default_rng().standard_normal(self.cached.features.shape)
        self.cached.features = self.cached.features + 1e-3 * noise


class NoHelp(Nearest):
    """Has an option without help."""

    @dataclass(frozen=True)
    class Config(Nearest.Config):
        """One option without a word."""

        depth: int = 3


class Thawed(Nearest):
    """Has a configuration that can be changed."""

    @dataclass
    class Config:
        """Not frozen."""

        weight: float = option(2.0, "weight of the cached images")
        queue_size: int = option(4, "slots per queue", at_least=1)


class ListOption(Nearest):
    """Has an option that cannot be written on a command line."""

    @dataclass(frozen=True)
    class Config(Nearest.Config):
        """A tuple."""

        layers: tuple[int, ...] = option((1, 2), "no text can give this")
