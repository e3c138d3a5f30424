"""A good method, and methods and adapters that each fail one check, and no other if possible."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, make_dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from crg import Adapter, Diagnostics, InputError, Method, Prediction, Sample, option
from crg.ops import softmax
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
        self.cache = Cache(self.task.text_features, self.config.queue_size, seeded=True)

    def step(self, sample: Sample) -> Prediction:
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


class Answering(Nearest):
    """Nearest with one place to spoil the logits, and a count that ``reset`` sets to zero."""

    spoil: ClassVar[Callable[[Any, Any], Any]] = lambda self, logits: logits

    def reset(self) -> None:
        super().reset()
        self.count = 0

    def _answer(self, feature: Array, facts: Diagnostics) -> Prediction:
        good = super()._answer(feature, facts)
        return self._predicted(self.spoil(good.logits), facts)


def spoiled(name: str, spoil: Callable[[Any, Any], Any], **members: Any) -> type[Answering]:
    """A method whose logits z go through ``spoil(self, z)``."""
    return type(name, (Answering,), {"__doc__": name, "spoil": spoil, **members})


def _moved_text(method: Any, logits: Any) -> Any:
    method.task.text_features[0, :] *= 1.0 + 1e-6
    return logits


def _same_array(method: Any, logits: Any) -> Any:
    board = vars(method).get("board")
    method.board = logits if board is None or board.shape != logits.shape else board
    method.board[:] = logits
    return method.board


def _log_of_zero(_: Any, logits: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.log(softmax(logits))


def _remembered(method: Any, logits: Any) -> Any:
    method.answers = [*vars(method).get("answers", []), float(logits[0])]
    return logits


def _counted(method: Any, logits: Any) -> Any:
    method.count += 1
    return logits * (1.0 + 1e-9 * method.count)


STEPS = itertools.count()  # of all adapters together
Unseeded = spoiled("Unseeded", lambda self, z: z + 1e-9 * np.random.default_rng().random(z.shape))
GloballyRandom = spoiled("GloballyRandom", lambda self, z: z + 0.0 * np.random.random())
SharedState = spoiled("SharedState", lambda self, z: z * (1.0 + 1e-9 * next(STEPS)))
WritesToTask = spoiled("WritesToTask", _moved_text)  # the caller's array
ReusesLogits = spoiled("ReusesLogits", _same_array)  # earlier predictions change with it
TwoDimensional = spoiled("TwoDimensional", lambda self, z: z[None, :])
ForgetsDtype = spoiled("ForgetsDtype", lambda self, z: np.asarray(z, dtype=np.float32))
TakesLogOfZero = spoiled("TakesLogOfZero", _log_of_zero)  # where the scale is huge
RemembersAll = spoiled("RemembersAll", _remembered)
ForgetsToSave = spoiled("ForgetsToSave", _counted, _not_saved=Nearest._not_saved | {"count"})
PrefersFirst = spoiled("PrefersFirst", lambda self, z: z + np.eye(len(z))[0])
FallsBackToNumpy = spoiled("FallsBackToNumpy", lambda self, z: np.asarray(z))
DiffersOnTorch = spoiled(  # it rounds differently there
    "DiffersOnTorch", lambda self, z: z if isinstance(z, np.ndarray) else z * (1.0 + 1e-6)
)
FailsInSingle = spoiled("FailsInSingle", lambda self, z: z if z.dtype in (np.float64,) else -z)
LearnsFromAnswering = spoiled(  # takes every question for a step
    "LearnsFromAnswering", Answering.spoil, answer=lambda self, sample: self.step(sample)
)


class WrongLabel(Nearest):
    """Names the class after the right one."""

    def _predicted(
        self, logits: Array, diagnostics: Diagnostics, probs: Array | None = None
    ) -> Prediction:
        good = super()._predicted(logits, diagnostics, probs)
        label = (good.label + 1) % self.task.n_classes
        return Prediction(good.logits, good.probs, label, self.task.class_names[label], diagnostics)


class ForgetsToReset(spoiled("Counting", _counted)):  # type: ignore[misc]
    """Goes on counting after reset."""

    def reset(self) -> None:
        count = vars(self).get("count", 0)
        super().reset()
        self.count = count


class ForgetsCorrections(Answering):
    """Counts corrections, and leaves the count out of the saved state."""

    _not_saved = Answering._not_saved | {"count"}
    spoil = lambda self, logits: logits * (1.0 + 1e-9 * self.count)  # noqa: E731

    def correct(self, sample: Sample, label: int) -> None:
        self.count += 1
        super().correct(sample, label)


class DividesByCorrections(Answering):
    """Weighs its answers by a mean of nothing once it was corrected."""

    spoil = lambda self, logits: logits * vars(self).get("weight", 1.0)  # noqa: E731

    def correct(self, sample: Sample, label: int) -> None:
        super().correct(sample, label)
        self.weight = float("nan")


class RefusesCorrections(Nearest):
    """Learns from images, and yet cannot be corrected, in a sentence that does not say why."""

    def correct(self, sample: Sample, label: int) -> None:
        raise InputError("Not today: come back tomorrow.")


class NotPicklable(Nearest):
    """Keeps a function that has no name."""

    _not_saved = Nearest._not_saved | {"_scale"}

    def reset(self) -> None:
        super().reset()
        self._scale = lambda logits: logits


class IgnoresClassChanges(Answering):
    """Keeps the number of classes that it began with."""

    spoil = lambda self, z: z + np.zeros(self.n_first)  # noqa: E731

    def reset(self) -> None:
        super().reset()
        self.n_first = self.task.n_classes


class RemovesWrongClass(Nearest):
    """Drops the last queue whichever class is removed."""

    def remove_class(self, index: int) -> None:
        super().remove_class(self.task.n_classes)

    def _answer(self, feature: Array, facts: Diagnostics) -> Prediction:
        xp = array_namespace(feature)
        means = xp.stack([self.cache.mean(k) for k in range(self.task.n_classes)])
        return self._predicted(100.0 * (means @ feature), facts)


class RemembersFirstTask(IgnoresClassChanges):
    """Puts classes that were added later, even before the first sample, at a disadvantage."""

    spoil = lambda self, z: z + 0.1 * (self.n_first - self.task.n_classes) * z**2  # noqa: E731


class LosesOnFinishing(Nearest):
    """Draws its second pass at random."""

    def finish(self, samples: Iterable[Sample]) -> None:
        noise = np.random.default_rng().standard_normal(self.cache.features.shape)
        self.cache.features = self.cache.features + 1e-3 * noise


def configured(name: str, option_of: tuple[Any, ...], frozen: bool = True) -> type[Nearest]:
    """Nearest with one more option, in a Config that may be changed unless it is ``frozen``."""
    known = [] if frozen else [(f.name, f.type, f) for f in fields(Nearest.Config)]
    bases = (Nearest.Config,) if frozen else ()
    config = make_dataclass("Config", [*known, option_of], bases=bases, frozen=frozen)
    return type(name, (Nearest,), {"__doc__": name, "Config": config})


NoHelp = configured("NoHelp", ("depth", int, 3))
Thawed = configured("Thawed", ("depth", int, option(3, "how deep")), frozen=False)
ListOption = configured("ListOption", ("layers", tuple, option((1, 2), "no text can give this")))


def stepping(name: str, change: Callable[[Any], Any]) -> type[Adapter]:
    """An adapter that changes the views before each step."""

    def step(self: Adapter, views: Array, sample_id: Any = None) -> Prediction:
        return Adapter.step(self, change(views), sample_id)

    return type(name, (Adapter,), {"__doc__": name, "step": step})


def _halved_in_place(views: Any) -> Any:
    views *= 0.5
    return views


def _half_shifted(views: Any) -> Any:
    return views + np.float16(0.5) if np.asarray(views).dtype == np.float16 else views


def _repaired(views: Any) -> Any:
    return np.nan_to_num(np.asarray(views), posinf=1, neginf=1)


AcceptsAll = stepping("AcceptsAll", _repaired)
SumsHalf = stepping("SumsHalf", _half_shifted)
NeedsRows = stepping("NeedsRows", lambda views: views[::-1] if np.ndim(views) == 1 else views)
FeelsLength = stepping("FeelsLength", lambda views: views + 0.01)
WritesToViews = stepping("WritesToViews", _halved_in_place)


class CountsBeforeChecking(Adapter):
    """An adapter that counts a sample before it knows that it is good."""

    def step(self, views: Array, sample_id: Any = None) -> Prediction:
        self.n_steps += 1
        prediction = super().step(views, sample_id)
        self.n_steps -= 1
        return prediction


class ForgetsBeforeChecking(Adapter):
    """An adapter that starts over for a class before it knows that the class is good."""

    def add_class(self, name: str, text_feature: Array) -> None:
        self._method.reset()
        super().add_class(name, text_feature)


class RemovesLastTwo(Adapter):
    """An adapter that forgets a class even when it must stay."""

    def remove_class(self, name: str) -> None:
        self._method.cache.remove_class(0)  # type: ignore[attr-defined]
        super().remove_class(name)


class BackwardsInBulk(Adapter):
    """An adapter that takes a stream from its end."""

    def step_many(self, stream: Array, sample_ids: Any = None) -> Any:
        return [self.step(views) for views in stream[::-1]]


class CountsCorrections(Adapter):
    """An adapter that takes a correction for a sample."""

    def correct(self, image: Any, class_name: str, sample_id: Any = None) -> None:
        super().correct(image, class_name, sample_id)
        self.n_steps += 1
