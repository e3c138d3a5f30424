"""Corrections: what people say that images show, as the page of ``crg review`` writes them.

They are learnt before the stream, in the order of the file, and a person's word is final: a
corrected image is not asked about again.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crg.classifier import Classifier
from crg.images.reading import shown
from crg.predict.answers import unmarked
from crg.suggest import nearest
from crg.threads import one_blas_thread
from crg.types import InputError, parsed_json


def read_corrections(path: Path) -> dict[str, str]:
    """The label of each image by its path, from a CSV file or JSON lines."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    try:
        rows = _rows_of(text, is_csv=path.suffix.lower() == ".csv")
        pairs = [(row["path"], row["label"]) for row in rows]
        if not pairs or not all(
            isinstance(value, str) and value for each in pairs for value in each
        ):
            raise ValueError("a path or a label is missing")
    except KeyError as error:
        raise InputError(
            f"{path} has no column {error}: name the two columns path and label."
        ) from None
    except (ValueError, TypeError, csv.Error) as error:
        raise InputError(
            f"{path} holds no corrections ({error}): give a file with path and label in every "
            "line, as the page of crg review writes it."
        ) from None
    return _one_label_each(pairs, path)


def digest_of(corrections: Mapping[str, str]) -> str:
    """A name for some corrections."""
    return hashlib.sha256(json.dumps(list(corrections.items())).encode()).hexdigest()


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
    check(corrections, classifier.task.class_names)
    images = list(map(Path, corrections))
    for name, _, features in classifier.encode_many(images, corrections, workers=workers):
        if isinstance(features, InputError):
            raise _unreadable(str(features).rstrip("."))
        with one_blas_thread():
            classifier.adapter.correct(features, corrections[name], sample_id=name)


def _unreadable(why: str) -> InputError:
    return InputError(
        f"A corrected image cannot be read ({why}): put it back, call crg where the answers were "
        "made, or take its line out of the corrections."
    )


def _rows_of(text: str, is_csv: bool) -> list[Any]:
    if not is_csv:
        return [parsed_json(line) for line in text.split("\n") if line.strip()]
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    return [{name: unmarked(row[name] or "") for name in ("path", "label")} for row in rows]


def _one_label_each(pairs: Iterable[tuple[str, str]], file: Path) -> dict[str, str]:
    labels: dict[str, str] = {}
    for path, label in pairs:
        if labels.setdefault(path, label) != label:
            raise InputError(
                f"{file} gives {shown(path)} two labels, {labels[path]!r} and {label!r}: "
                "keep one of them."
            )
    return labels
