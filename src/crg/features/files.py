"""Feature files: images and class names that were encoded once, for every run to read.

A feature file is an ``.npz`` archive or a ``.safetensors`` file with these names:

==================  ==============  ===================================================
``image_features``  (N, D) or       one image per row, or V views of it with the
                    (N, V, D)       original first; float16, float32 or float64
``text_features``   (K, D)          one class per row
``class_names``     K strings       distinct
``logit_scale``     one number      the model's own, 100 for CLIP
``labels``          (N,) integers   optional: the true class of each image
``ids``             N names         optional: strings or integers, distinct
``few_features``    (F, D)          optional: labelled images for few-shot methods
``few_labels``      (F,) integers   optional: their classes
``generated``       one integer     optional: how many views, the last ones, were generated
``text_kind``       one string      optional: where ``text_features`` come from if not from
                                    the model's own text encoder, such as "simulated";
                                    "clip" and "own" say that they do
==================  ==============  ===================================================

In a safetensors file ``class_names`` and ``ids`` are JSON lists in the metadata,
``text_kind`` is a JSON string there, and ``logit_scale`` is a tensor or a JSON number there.
Other names are ignored. Vectors need not be of unit length. A folder that ``crg encode`` made,
a store, is read like a file.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crg.features.formats import read_raw, write_raw
from crg.features.store import read_store
from crg.features.validation import (
    Numbers,
    check_vectors,
    checked_generated,
    checked_ids,
    checked_labels,
    floats,
    names_of,
    one_number,
    text_kind_of,
)
from crg.needs import FEW, GENERATED, FewShot
from crg.types import InputError, SampleId, Task, like

REQUIRED = ("image_features", "text_features", "class_names", "logit_scale")
OPTIONAL = ("labels", "ids", "few_features", "few_labels", "generated", "text_kind")


@dataclass(frozen=True, eq=False)
class Features:
    """Encoded images with their task; checked when made.

    ``image_features`` stays in the precision it was stored in, because half precision
    halves the memory; ``views`` hands it out in the precision that is computed in.
    """

    image_features: Numbers  # (N, D) or (N, V, D)
    task: Task
    labels: Numbers | None = None  # (N,)
    ids: tuple[SampleId, ...] | None = None
    few_features: Numbers | None = None  # (F, D)
    few_labels: Numbers | None = None  # (F,)
    generated: int | None = None  # how many views, the last ones, a generator made
    model: str | None = None  # the encoder that made them, where it is known
    source: Path | None = None  # the file they were read from
    sha256: str | None = None  # of that file's content
    text_kind: str | None = None  # where text features come from if not from the model
    prompts: tuple[str, ...] = ()  # templates of the text features, where they are known
    dataset: str | None = None  # its name, where it is known
    domains: Numbers | None = None  # (N,): which of the joined files an image comes from

    def __post_init__(self) -> None:
        """Check everything against the task."""
        check_vectors("image_features", self.image_features, (2, 3), self.task.width)
        n, k = len(self.image_features), self.task.n_classes
        if self.labels is not None:
            object.__setattr__(self, "labels", checked_labels("labels", self.labels, n, k))
        if self.domains is not None and np.shape(self.domains) != (n,):
            raise InputError(f"domains has shape {np.shape(self.domains)}: give one per image.")
        if self.ids is not None:
            object.__setattr__(self, "ids", checked_ids(self.ids, n))
        object.__setattr__(self, "text_kind", text_kind_of(self.text_kind))
        if (self.few_features is None) != (self.few_labels is None):
            raise InputError("few_features and few_labels belong together: give both or neither.")
        if self.few_features is not None and self.few_labels is not None:
            check_vectors("few_features", self.few_features, (2,), self.task.width)
            few = checked_labels("few_labels", self.few_labels, len(self.few_features), k)
            object.__setattr__(self, "few_labels", few)
            rows = like(self.few_features, self.task.text_features)
            known = {FEW: FewShot(rows, tuple(few.tolist()))}
            object.__setattr__(self, "task", self.task.with_resources(known))
        if self.generated is not None:
            count = checked_generated(self.generated, self.n_views)
            object.__setattr__(self, "generated", count)
            object.__setattr__(self, "task", self.task.with_resources({GENERATED: count}))

    def __len__(self) -> int:
        """N, the number of images."""
        return len(self.image_features)

    @property
    def n_views(self) -> int:
        """V, the number of views of each image."""
        return self.image_features.shape[1] if self.image_features.ndim == 3 else 1

    @property
    def sample_ids(self) -> tuple[SampleId, ...]:
        """The name of each image: its row number where the file gives none."""
        return self.ids if self.ids is not None else tuple(range(len(self)))

    def views(self, row: int) -> Numbers:
        """The views (V, D) of one image in the precision of the task."""
        image = np.atleast_2d(self.image_features[row])
        return image.astype(self.task.text_features.dtype, copy=False)


def read_features(path: str | os.PathLike[str], verify: bool = True) -> Features:
    """Read and check a feature file or a store; what is wrong is reported in one sentence.

    A store is mapped into memory rather than loaded; without ``verify`` the checksums of its
    images are not computed.
    """
    source = Path(path)
    if source.is_dir():
        raw, digest = read_store(source, verify)
    else:
        raw, digest = read_raw(source, (*REQUIRED, *OPTIONAL)), None
    check_complete(source, raw)
    try:
        return _assembled(source, raw, digest or _digest_of(source))
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def write_features(path: str | os.PathLike[str], features: Features) -> None:
    """Write a feature file, at once or not at all; the suffix chooses the format."""
    values: dict[str, Any] = {
        "image_features": features.image_features,
        "text_features": np.asarray(features.task.text_features),
        "class_names": features.task.class_names,
        "logit_scale": features.task.logit_scale,
        "labels": features.labels,
        "ids": features.ids,
        "few_features": features.few_features,
        "few_labels": features.few_labels,
        "generated": features.generated,
        "text_kind": features.text_kind,
    }
    write_raw(Path(path), {key: value for key, value in values.items() if value is not None})


def _digest_of(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _assembled(source: Path, raw: Mapping[str, Any], digest: str) -> Features:
    images = np.asarray(raw["image_features"])
    text = floats("text_features", raw["text_features"])
    precision = np.float64 if images.dtype == np.float64 else np.float32
    task = Task(
        names_of(raw["class_names"]), text.astype(precision), one_number(raw["logit_scale"])
    )
    return Features(
        image_features=images,
        task=task,
        labels=raw.get("labels"),
        ids=raw.get("ids"),
        few_features=raw.get("few_features"),
        few_labels=raw.get("few_labels"),
        generated=raw.get("generated"),
        model=raw.get("model"),
        source=source,
        sha256=digest,
        text_kind=raw.get("text_kind"),
        prompts=tuple(raw.get("prompts") or ()),
        dataset=raw.get("dataset"),
    )


def check_complete(source: Path, raw: Mapping[str, Any]) -> None:
    """Refuse what lacks a required name, with the nearest name that it has."""
    for key in REQUIRED:
        if key in raw:
            continue
        spare = [name for name in raw if name not in (*REQUIRED, *OPTIONAL)]
        close = difflib.get_close_matches(key, spare, n=1)
        hint = f" (the nearest name in it is {close[0]!r})" if close else ""
        raise InputError(
            f"{source} holds no {key!r}{hint}: "
            f"a feature file needs {', '.join(REQUIRED[:-1])} and {REQUIRED[-1]}."
        )


def open_store(path: str | os.PathLike[str], verify: bool = True) -> Features:
    """The features of a finished store, mapped into memory rather than loaded.

    Every checksum is computed unless ``verify`` is false, which leaves out the large file.
    """
    if not Path(path).is_dir():
        raise InputError(f"{path} is no folder: give a store that crg encode made.")
    return read_features(path, verify=verify)
