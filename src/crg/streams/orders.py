"""Stream orders: which images of a file reach a method, and when.

Each order is a pure function from labels (or domains) and a seed to rows; classes without images
do not count. ``lay_out`` makes the stream of a scenario from a file.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crg.features.files import Features
from crg.resources import FEW, FewShot
from crg.streams import SEVERAL_FILES, SHUFFLED, STRENGTHS, Scenario
from crg.types import InputError, Task

Rows = np.ndarray[Any, np.dtype[np.int64]]
Numbers = np.ndarray[Any, Any]

NO_CLASS = -1  # label of an image that belongs to none of the classes of the task
_NAMES_SEED = 9  # of names that are made up
_SUBSET_SEED = 8  # of the images that a limited stream consists of, for all orders


@dataclass(frozen=True, eq=False)
class Stream:
    """A file as a method sees it, and the labels that only evaluation sees."""

    features: Features  # with the task that the method sees
    rows: Rows  # rows of the file in the order in which they come
    labels: Numbers | None  # (N,) by row of the file, in classes of that task; -1 for none


def lay_out(features: Features, scenario: Scenario, seed: int) -> Stream:
    """The stream of a scenario; the seed decides the shuffle and the choice of classes."""
    domains = features.domains
    groups = [as_stored(len(features))] if domains is None else _members(domains)
    offered = _some_of(groups, scenario.images)
    if scenario.order == SHUFFLED:
        return Stream(features, offered[shuffled(len(offered), seed)], features.labels)
    if scenario.order in SEVERAL_FILES:
        return _of_several_files(features, offered, scenario, seed)
    if features.labels is None:
        raise InputError(
            f"The order {scenario.order!r} needs labels: give a file that has them, or shuffle."
        )
    strength, labels = scenario.chosen_strength or 0.0, features.labels[offered]
    k = features.task.n_classes
    if scenario.order == "out_of_distribution":
        gone = outside_classes(labels, k, seed, strength)
        rows = offered[shuffled(len(offered), seed)]
        return Stream(_without(features, gone), rows, _renumbered(features.labels, gone, k))
    if scenario.order == "by_class":
        rows = by_class(labels, seed)
    elif scenario.order == "few_present":
        rows = few_present(labels, k, seed, strength)
    else:
        order = dirichlet if scenario.order == "dirichlet" else imbalanced
        rows = order(labels, seed, strength)
    return Stream(features, offered[rows], features.labels)


def _of_several_files(features: Features, offered: Rows, scenario: Scenario, seed: int) -> Stream:
    """File after file; or the images of the first one, with the names of all and more."""
    if features.domains is None:
        raise InputError(
            f"The order {scenario.order!r} needs several files: name the files that follow."
        )
    if scenario.order == "domains":
        rows = offered[by_domain(features.domains[offered], seed)]
        return Stream(features, rows, features.labels)
    first = _some_of([np.flatnonzero(features.domains == 0)], scenario.images)
    task = _with_names(features.task, int(scenario.chosen_strength or 0))
    rows = first[shuffled(len(first), seed)]
    return Stream(dataclasses.replace(features, task=task), rows, features.labels)


def _with_names(task: Task, count: int) -> Task:
    """Add ``count`` names whose text features have the mean and covariance of the real ones."""
    if not count:
        return task
    rng = np.random.Generator(np.random.PCG64([_NAMES_SEED, count]))
    text = np.asarray(task.text_features, dtype=np.float64)
    mean, spread = text.mean(axis=0), text - text.mean(axis=0)
    drawn = mean + rng.standard_normal((count, len(text))) @ spread / math.sqrt(len(text) - 1)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    names = (*task.class_names, *(f"random {k}" for k in range(count)))
    rows = np.concatenate([np.asarray(task.text_features), drawn.astype(np.float32)])
    return Task(names, rows, task.logit_scale)


def shuffled(n: int, seed: int) -> Rows:
    """The numbers 0 to n - 1 in an order that depends on ``n`` and ``seed`` alone.

    >>> shuffled(5, seed=0).tolist() == shuffled(5, seed=0).tolist()
    True
    """
    return _generator(seed).permutation(n).astype(np.int64)


def as_stored(n: int) -> Rows:
    """The order of the file. Files are often sorted by class, which is a hard stream."""
    return np.arange(n, dtype=np.int64)


def by_class(labels: Numbers, seed: int) -> Rows:
    """One class after the other, in an order that the seed decides; shuffled within a class.

    >>> labels = np.array([0, 1, 0, 1])
    >>> labels[by_class(labels, seed=0)].tolist()
    [0, 0, 1, 1]
    """
    rng, members = _generator(seed), _members(labels)
    return _in_turn(rng.permutation(members[k]) for k in rng.permutation(len(members)))


def by_domain(domains: Numbers, seed: int) -> Rows:
    """Domain after domain by its number, shuffled within.

    >>> domains = np.array([1, 0, 1, 0])
    >>> domains[by_domain(domains, seed=0)].tolist()
    [0, 0, 1, 1]
    """
    rng = _generator(seed)
    return _in_turn(rng.permutation(rows) for rows in _members(domains))


def dirichlet(labels: Numbers, seed: int, strength: float = STRENGTHS["dirichlet"]) -> Rows:
    """Classes in bursts: there are as many slots as classes, one after the other.

    The images of each class are split over the slots in proportions from a Dirichlet
    distribution of concentration ``strength``: near zero a class keeps to one slot, and a
    large one makes a plain shuffle of it. Within a slot all is shuffled.

    >>> sorted(dirichlet(np.array([0, 1, 0, 1, 1]), seed=3).tolist())
    [0, 1, 2, 3, 4]
    """
    rng, members = _generator(seed), _members(labels)
    slots: list[list[Rows]] = [[] for _ in members]
    for rows in members:
        parts = rng.dirichlet(np.full(len(slots), strength))
        cuts = np.rint(np.cumsum(parts)[:-1] * len(rows)).astype(np.int64)
        for slot, part in zip(slots, np.split(rng.permutation(rows), cuts), strict=True):
            slot.append(part)
    return _in_turn(rng.permutation(np.concatenate(slot)) for slot in slots)


def imbalanced(labels: Numbers, seed: int, factor: float = STRENGTHS["imbalanced"]) -> Rows:
    """A long tail: few classes are frequent and most are rare; shuffled.

    The class of rank r of K keeps n factor^(-r / (K - 1)) of its images, n being the size
    of the largest class, but at least one and at most all. The seed decides ranks and images.

    >>> labels = np.repeat([0, 1, 2], 100)
    >>> sorted(np.bincount(labels[imbalanced(labels, seed=0, factor=25)]).tolist())
    [4, 20, 100]
    """
    rng, members = _generator(seed), _members(labels)
    largest, last = max(len(rows) for rows in members), max(1, len(members) - 1)
    kept = []
    for rank, place in enumerate(rng.permutation(len(members))):
        count = max(1, round(largest * factor ** (-rank / last)))
        kept.append(rng.permutation(members[place])[:count])
    return rng.permutation(np.concatenate(kept)).astype(np.int64)


def few_present(
    labels: Numbers, n_classes: int, seed: int, fraction: float = STRENGTHS["few_present"]
) -> Rows:
    """The images of a ``fraction`` of the classes, at least two, that the seed chooses; shuffled.

    >>> labels = np.arange(100) % 10
    >>> len(few_present(labels, 10, seed=0)), len(set(labels[few_present(labels, 10, seed=0)]))
    (20, 2)
    """
    rng, members = _generator(seed), _members(labels)
    count = max(2, math.ceil(fraction * n_classes - 1e-9))
    chosen = rng.permutation(len(members))[:count]
    return rng.permutation(np.concatenate([members[k] for k in chosen])).astype(np.int64)


def outside_classes(
    labels: Numbers, n_classes: int, seed: int, fraction: float = STRENGTHS["out_of_distribution"]
) -> tuple[int, ...]:
    """Classes to remove from the task, so that their images are out of distribution.

    A ``fraction`` of the classes, at least one; two classes of the task are left, and one that
    has images.

    >>> len(outside_classes(np.arange(100) % 10, 10, seed=0))
    2
    """
    present = np.unique(labels)
    most = min(n_classes - 2, len(present) - 1)
    if most < 1:
        raise InputError(
            "The order 'out_of_distribution' needs at least three classes, two of them with "
            f"images, and here are {n_classes}, {len(present)} with images: give another file."
        )
    count = min(most, max(1, round(fraction * n_classes)))
    return tuple(sorted(_generator(seed).permutation(present)[:count].tolist()))


def _generator(seed: int) -> np.random.Generator:
    if seed < 0:
        raise InputError(f"The seed is {seed}: give a whole number that is not negative.")
    return np.random.Generator(np.random.PCG64(seed))


def _members(groups: Numbers) -> list[Rows]:
    """The rows of each group that has some, by the number of the group."""
    order = np.argsort(groups, kind="stable").astype(np.int64)
    _, counts = np.unique(groups, return_counts=True)
    return np.split(order, np.cumsum(counts)[:-1])


def _in_turn(parts: Iterable[Rows]) -> Rows:
    return np.concatenate(list(parts)).astype(np.int64)


def _some_of(groups: Sequence[Rows], count: int | None) -> Rows:
    """Sorted rows: all, or ``count`` at random, the same for every seed.

    Of several groups, files that were joined, each gives the same number if it has enough.
    """
    total = sum(map(len, groups))
    if count is None or count >= total:
        return np.sort(np.concatenate(groups))
    rng = np.random.Generator(np.random.PCG64([_SUBSET_SEED, total]))
    sizes = _equal_parts(count, [len(rows) for rows in groups])
    drawn = [rng.permutation(rows)[:size] for rows, size in zip(groups, sizes, strict=True)]
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def _equal_parts(total: int, available: list[int]) -> list[int]:
    """``total`` in parts as equal as what is available allows.

    >>> _equal_parts(10, [2, 9, 9]), _equal_parts(5, [9, 9])
    ([2, 4, 4], [3, 2])
    """
    parts = [0] * len(available)
    smallest_first = sorted(range(len(available)), key=lambda k: (available[k], -k))
    for done, k in enumerate(smallest_first):
        parts[k] = min(available[k], (total - sum(parts)) // (len(available) - done))
    return parts


def _without(features: Features, classes: Iterable[int]) -> Features:
    """The file with a task without some classes, and without their labelled images."""
    task = features.task
    for name in [task.class_names[k] for k in classes]:
        task = task.without_class(name)
    few: FewShot | None = task.resources.get(FEW)
    kept: dict[str, Any] = {"few_features": None, "few_labels": None}
    if few is not None and few.labels:
        kept = {"few_features": few.features, "few_labels": np.array(few.labels)}
    return dataclasses.replace(features, task=task, labels=None, **kept)


def _renumbered(labels: Numbers, gone: Iterable[int], n_classes: int) -> Numbers:
    """Labels renumbered for the remaining classes; -1 where the class was removed."""
    number = np.full(n_classes, NO_CLASS, dtype=np.int64)
    left = sorted(set(range(n_classes)) - set(gone))
    number[left] = np.arange(len(left))
    return np.asarray(number[labels])
