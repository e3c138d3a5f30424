"""Joining files: as one stream of several domains, or with labelled images from another file."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from crg.features.files import Features
from crg.resources import FewShot
from crg.types import InputError, Task, like

Numbers = np.ndarray[Any, Any]

SIMULATED = "simulated"


def joined(parts: Sequence[Features]) -> Features:
    """All images over all classes; ``domains`` says which of the ``parts`` one comes from.

    A class that several files name has the text feature of the first of them. An image is
    called by the number of its file and its own id, such as ``1/photo-7``. Every image keeps
    as many views as the file with the fewest has: the first ordinary ones, and of those that a
    generator made, which stay last, the first ones too.
    """
    _check_alike(parts)
    task = _union(parts)
    place = {name: k for k, name in enumerate(task.class_names)}
    places = [np.array([place[name] for name in part.task.class_names]) for part in parts]
    n_ordinary = min(part.n_views - (part.generated or 0) for part in parts)
    n_generated = min(part.generated or 0 for part in parts)
    views = [_cut(part, n_ordinary, n_generated) for part in parts]
    unlabelled = parts[0].labels is None
    pairs = list(zip(parts, places, strict=True))
    few = [(part, to) for part, to in pairs if part.few_labels is not None]
    kinds = list(dict.fromkeys(part.text_kind for part in parts if part.text_kind))
    return Features(
        image_features=np.concatenate(views),
        task=task,
        labels=None if unlabelled else np.concatenate([to[part.labels] for part, to in pairs]),
        ids=tuple(f"{k}/{name}" for k, part in enumerate(parts) for name in part.sample_ids),
        few_features=np.concatenate([part.few_features for part, _ in few]) if few else None,
        few_labels=np.concatenate([to[part.few_labels] for part, to in few]) if few else None,
        generated=n_generated or None,
        model=next((part.model for part in parts if part.model), None),
        source=parts[0].source,
        sha256=joined_sha256(part.sha256 for part in parts),
        text_kind=SIMULATED if SIMULATED in kinds else ", ".join(kinds) or None,
        prompts=tuple(dict.fromkeys(each for part in parts for each in part.prompts)),
        dataset=" + ".join(dict.fromkeys(p.dataset for p in parts if p.dataset)) or None,
        domains=np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
    )


def joined_sha256(digests: Iterable[str | None]) -> str | None:
    """One digest for several files, in their order; None where one of them has none."""
    known = list(digests)
    if None in known:
        return None
    return hashlib.sha256("".join(map(str, known)).encode()).hexdigest()


def _check_alike(parts: Sequence[Features]) -> None:
    first = parts[0]
    for part in parts[1:]:
        pair = f"{first.source or 'the first file'} and {part.source or 'a later one'}"
        one, other, fault = first.task, part.task, None
        if one.width != other.width:
            fault = f"are {one.width} and {other.width} wide"
        elif not math.isclose(one.logit_scale, other.logit_scale, rel_tol=1e-5):
            fault = f"have scales {one.logit_scale:g} and {other.logit_scale:g}"
        elif first.model and part.model and part.model != first.model:
            fault = f"come from {first.model} and {part.model}"
        if fault:
            raise InputError(f"{pair} {fault}: encode both with the same model.")
        if (part.labels is None) != (first.labels is None):
            raise InputError(f"Only one of {pair} has labels: give them to both or to neither.")


def _union(parts: Sequence[Features]) -> Task:
    rows = {
        name: np.asarray(part.task.text_features)[k]
        for part in reversed(parts)  # so that the first one has the last word
        for k, name in enumerate(part.task.class_names)
    }
    names = tuple(dict.fromkeys(name for part in parts for name in part.task.class_names))
    return Task(names, np.stack([rows[name] for name in names]), parts[0].task.logit_scale)


def _cut(part: Features, n_ordinary: int, n_generated: int) -> Numbers:
    """The views that are kept, (N, D) where it is the original alone."""
    if part.image_features.ndim == 2:
        return part.image_features
    if n_ordinary + n_generated == 1:
        return np.asarray(part.image_features[:, 0])
    first = part.n_views - (part.generated or 0)
    kept = [*range(n_ordinary), *range(first, first + n_generated)]
    return np.asarray(part.image_features[:, kept])


def few_for(task: Task, few: Features) -> FewShot:
    """The original views of ``few`` with their labels, numbered as the classes of ``task``.

    Both need the same classes, in any order.
    """
    where = few.source or "The file of labelled images"
    if few.labels is None:
        raise InputError(f"{where} has no labels: encode a labelled dataset.")
    if few.task.width != task.width:
        raise InputError(
            f"{where} is {few.task.width} wide but the images {task.width}: "
            "encode both with the same model."
        )
    odd = sorted(set(few.task.class_names) ^ set(task.class_names))
    if odd:
        raise InputError(
            f"{where} has other classes ({odd[0]!r} is only in one of the two): "
            "give labelled images of the same classes."
        )
    place = {name: k for k, name in enumerate(task.class_names)}
    labels = tuple(place[few.task.class_names[label]] for label in few.labels)
    rows = few.image_features if few.image_features.ndim == 2 else few.image_features[:, 0]
    return FewShot(like(np.array(rows), task.text_features), labels)


def with_few(features: Features, few: Features) -> Features:
    """The features with the images of ``few`` as labelled ones."""
    found = few_for(features.task, few)
    labels = np.array(found.labels)
    return dataclasses.replace(features, few_features=found.features, few_labels=labels)
