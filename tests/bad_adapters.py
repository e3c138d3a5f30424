"""Adapters that each fail one check that no method could break by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from crg import Adapter, Prediction
from crg.types import Array


class CountsBeforeChecking(Adapter):
    """An adapter that counts a sample before it knows that it is good."""

    def step(self, views: Array, sample_id: Any = None) -> Prediction:
        """Counts twice, and refused samples too."""
        self.n_steps += 1
        prediction = super().step(views, sample_id)
        self.n_steps -= 1
        return prediction


class ForgetsBeforeChecking(Adapter):
    """An adapter that starts afresh for a class before it knows that the class is good."""

    def add_class(self, name: str, text_feature: Array) -> None:
        """Too early."""
        self._method.reset()
        super().add_class(name, text_feature)


class AcceptsAll(Adapter):
    """An adapter that repairs bad samples instead of refusing them."""

    def step(self, views: Array, sample_id: Any = None) -> Prediction:
        """NaN becomes zero."""
        return super().step(np.nan_to_num(np.asarray(views), posinf=1, neginf=1), sample_id)


class RemovesLastTwo(Adapter):
    """An adapter that forgets a class even when it must stay."""

    def remove_class(self, name: str) -> None:
        """The refusal comes too late."""
        self._method.cached.remove_class(0)  # type: ignore[attr-defined]
        super().remove_class(name)


class BackwardsInBulk(Adapter):
    """An adapter that takes a stream from its end."""

    def step_many(self, stream: Array, sample_ids: Any = None) -> Any:
        """The answers come in the wrong order."""
        return [self.step(views) for views in stream[::-1]]


class SumsHalf(Adapter):
    """An adapter that treats half precision in its own way."""

    def step(self, views: Array, sample_id: Any = None) -> Prediction:
        """Only half of a float16 image counts."""
        if np.asarray(views).dtype == np.float16:
            views = np.asarray(views) + np.float16(0.5)
        return super().step(views, sample_id)


class NeedsRows(Adapter):
    """An adapter that reverses single vectors."""

    def step(self, views: Array, sample_id: Any = None) -> Prediction:
        """(D,) is read from right to left."""
        return super().step(views[::-1] if np.ndim(views) == 1 else views, sample_id)


class FeelsLength(Adapter):
    """An adapter that answers differently to long vectors."""

    def step(self, views: Array, sample_id: Any = None) -> Prediction:
        """Long images are shifted."""
        return super().step(views + 0.01, sample_id)


class WritesToViews(Adapter):
    """An adapter that works on the caller's own array."""

    def step(self, views: Array, sample_id: Any = None) -> Prediction:
        """In place."""
        views *= 0.5
        return super().step(views, sample_id)


class CountsCorrections(Adapter):
    """An adapter that takes a correction for a sample."""

    def correct(self, image: Any, class_name: str, sample_id: Any = None) -> None:
        """One step more."""
        super().correct(image, class_name, sample_id)
        self.n_steps += 1
