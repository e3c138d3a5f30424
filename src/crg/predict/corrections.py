"""Corrections: what people say that images show, as the page of ``crg review`` writes them.

They are learnt before the stream, in the order of the file, and a person's word is final: a
corrected image is not asked about again.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, TypedDict

import msgspec

from crg.classifier import Classifier
from crg.images.reading import shown
from crg.predict.lines import unmarked
from crg.suggest import nearest
from crg.threads import one_blas_thread
from crg.types import InputError, parsed_json


class _Correction(TypedDict):
    path: Annotated[str, msgspec.Meta(min_length=1)]
    label: Annotated[str, msgspec.Meta(min_length=1)]


def read_corrections(path: Path) -> dict[str, str]:
    """The label of each image by its path, from a CSV file or JSON lines."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    try:
        if path.suffix.lower() == ".csv":
            table = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            rows = [{name: unmarked(row[name] or "") for name in row if name} for row in table]
        else:
            rows = [parsed_json(line) for line in text.split("\n") if line.strip()]
        said = msgspec.convert(rows, Annotated[list[_Correction], msgspec.Meta(min_length=1)])
    except (ValueError, csv.Error) as error:
        raise InputError(
            f"{path} holds no corrections ({error}): give a file with path and label in every "
            "line, as the page of crg review writes it."
        ) from None
    labels: dict[str, str] = {}
    for each in said:
        if labels.setdefault(each["path"], each["label"]) != each["label"]:
            raise InputError(
                f"{path} gives {shown(each['path'])} two labels, {labels[each['path']]!r} and "
                f"{each['label']!r}: keep one of them."
            )
    return labels


def check(corrections: Mapping[str, str], classes: Iterable[str]) -> None:
    """Refuse, before any work, a label that names no class and an image that is not there."""
    known = frozenset(classes)
    for path, label in corrections.items():
        if label not in known:
            raise InputError(
                f"The correction of {shown(path)} to {label!r} names no class: "
                f"{nearest(label, known, 'add it to the classes or change the label.')}"
            )
        if not os.path.isfile(path):
            raise _unreadable(f"there is no {shown(path)} below {os.getcwd()}")


def learn(classifier: Classifier, corrections: Mapping[str, str], workers: int = 1) -> None:
    """Encode every corrected image and learn its label."""
    images = list(map(Path, corrections))
    for name, _, features in classifier.encode_many(images, corrections, workers=workers):
        if isinstance(features, InputError):
            raise _unreadable(str(features).rstrip("."))
        with one_blas_thread():
            classifier.adapter.correct(features, corrections[name], sample_id=name)


def _unreadable(why: str) -> InputError:
    remedy = "put it back, call crg where the answers were made, or take its line out"
    return InputError(f"A corrected image cannot be read ({why}): {remedy} of the corrections.")
