"""Labelled images for few-shot methods, taken from a file or store of their own."""

from __future__ import annotations

import dataclasses

import numpy as np

from crg.features.files import Features
from crg.needs import FewShot
from crg.types import InputError, Task, like


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
