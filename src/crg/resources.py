"""Resources that some methods need: labelled images, a text encoder, generated views.

A method names them in ``needs``; the maker of the task puts them into ``Task.resources``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from crg.types import Array, InputError, Task, as_floats, unit_rows

FEW = "few"
TEXT_ENCODER = "text_encoder"
GENERATED = "generated"  # how many of the views, the last ones, a generator made

_REMEDIES = {
    FEW: "labelled images: give a file with few_features and few_labels, "
    "or name a labelled file or store with --few",
    TEXT_ENCODER: "a text encoder that takes embeddings: give a store that crg encode made "
    "with mini or a model of open_clip",
    GENERATED: "views that a generator made: give a store that was encoded with --variations, "
    "or a feature file that gives their number as generated",
}


@dataclass(frozen=True, eq=False)
class FewShot:
    """Labelled images; a method that wants fewer takes the first of each class."""

    features: Array  # (F, D), unit rows
    labels: tuple[int, ...]  # F of them

    def __post_init__(self) -> None:
        rows = as_floats(self.features, "labelled images")
        rows = unit_rows(rows, "labelled images") if rows.shape[0] else rows
        try:
            labels = np.asarray(self.labels).tolist()
        except ValueError:  # rows of several lengths
            labels = None
        if not isinstance(labels, list) or not all(type(k) is int and k >= 0 for k in labels):
            raise InputError("The labels are not class numbers: give one whole number from 0 each.")
        if len(labels) != rows.shape[0]:
            raise InputError(
                f"There are {rows.shape[0]} labelled images but {len(labels)} labels: "
                "give one label each."
            )
        object.__setattr__(self, "features", rows)
        object.__setattr__(self, "labels", tuple(labels))

    def shots(self, per_class: int) -> FewShot:
        """The first ``per_class`` images of each class, in their order."""
        seen: Counter[int] = Counter()
        rows = []
        for row, label in enumerate(self.labels):
            seen[label] += 1
            if seen[label] <= per_class:
                rows.append(row)
        return FewShot(self.features[rows, :], tuple(self.labels[row] for row in rows))

    def without_class(self, index: int) -> FewShot:
        """The images of the other classes, renumbered."""
        rows = [row for row, label in enumerate(self.labels) if label != index]
        labels = tuple(self.labels[row] - (self.labels[row] > index) for row in rows)
        return FewShot(self.features[rows, :], labels)


class PromptableTextEncoder(Protocol):
    """A text encoder into which context vectors can be put in place of words; needs torch.

    M context vectors of width E stand before each ending, such as a class name.
    """

    name: str  # of the encoder that it belongs to; ``load_encoder(name)`` has it again

    def context_of(self, words: str) -> Any:
        """The embeddings (M, E) of some words, to begin with."""
        ...

    def encode(self, context: Any, endings: Sequence[str]) -> Any:
        """Features (K, D) of unit length, differentiable, under one context (M, E)."""
        ...


def check_needs(method: str, needs: Iterable[str], task: Task) -> None:
    """Refuse, before any work, a method whose needs the task does not meet."""
    for need in needs:
        if task.resources.get(need) is None:
            raise InputError(f"Method {method!r} needs {_REMEDIES[need]}.")
