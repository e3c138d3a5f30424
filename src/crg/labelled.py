"""Labelled pictures for few-shot methods, taken from a file or store of their own."""

from __future__ import annotations

import dataclasses

import numpy as np

from crg.features import Features
from crg.types import InputError


def with_few(features: Features, few: Features) -> Features:
    """The features with the original views of ``few`` as labelled pictures.

    Both need the same classes, in any order; a class without labelled pictures is refused.
    """
    where = few.source or "The file of labelled pictures"
    if few.labels is None:
        raise InputError(f"{where} has no labels: encode a labelled dataset.")
    if few.task.width != features.task.width:
        raise InputError(
            f"{where} is {few.task.width} wide but the pictures {features.task.width}: "
            "encode both with the same model."
        )
    theirs, ours = few.task.class_names, features.task.class_names
    odd = sorted(set(theirs) ^ set(ours))
    if odd:
        raise InputError(
            f"{where} has other classes ({odd[0]!r} is only in one of the two): "
            "give labelled pictures of the same classes."
        )
    place = {name: k for k, name in enumerate(ours)}
    labels = np.array([place[theirs[label]] for label in few.labels])
    rows = few.image_features if few.image_features.ndim == 2 else few.image_features[:, 0]
    return dataclasses.replace(features, few_features=np.array(rows), few_labels=labels)
