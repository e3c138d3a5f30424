"""Files with names and features of classes, which stand in for a text encoder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from crg.encoders import load_encoder
from crg.encoders.base import Encoder
from crg.encoders.given_text import GivenText
from crg.features.files import check_names, text_of
from crg.features.formats import read_raw
from crg.types import InputError, Task

_NEEDED = ("text_features", "class_names")


def read_class_features(path: str | os.PathLike[str]) -> Task:
    """The classes of an ``.npz`` or ``.safetensors`` file that holds at least these two names.

    ``text_features`` are (K, D) and ``class_names`` K strings, as in a feature file, which will
    do as well. The scale of the task is 1: the encoder has its own.
    """
    source = Path(path)
    raw = read_raw(source, _NEEDED)
    check_names(source, raw, _NEEDED, "a file of text features")
    try:
        names, text = text_of(raw)
        return Task(names, text.astype(np.float32), 1.0)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def load_with_classes(
    model: str | Encoder,
    text_features: str | os.PathLike[str] | None,
    *,
    device: str | None = None,
    precision: str | None = None,
) -> Encoder:
    """The encoder; where a file of text features is given, it has those for its classes."""
    known = None if text_features is None else read_class_features(text_features)
    encoder = (
        load_encoder(model, device=device, precision=precision) if isinstance(model, str) else model
    )
    return encoder if known is None else GivenText(encoder, known, str(text_features))
