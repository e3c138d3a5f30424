"""Feature files: images and class names that were encoded once, for every run to read.

``docs/features.md`` lists the names that an ``.npz`` or ``.safetensors`` file has. Other names are
ignored, and vectors need not be of unit length. A store, a folder that ``crg encode`` made, is
read like a file.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crg.atomic import file_sha256
from crg.encoders import load_encoder
from crg.encoders.base import Encoder, GivenText
from crg.features.formats import read_raw, write_raw
from crg.features.store import read_store
from crg.resources import FEW, GENERATED, FewShot
from crg.suggest import near
from crg.types import InputError, SampleId, Task, like

Numbers = np.ndarray[Any, Any]

REQUIRED = ("image_features", "text_features", "class_names", "logit_scale")
OPTIONAL = ("labels", "ids", "few_features", "few_labels", "generated", "text_kind", "model",
            "dataset")  # fmt: skip
OWN_TEXT = ("clip", "own")  # kinds of text features that are the model's own
_CHUNK = 8192  # views that are checked at once, so that checking needs little memory


@dataclass(frozen=True, eq=False)
class Features:
    """Encoded images with their task; checked when made.

    ``image_features`` stays in the precision it was stored in, because half precision
    halves the memory; ``views`` converts to the precision of the task.
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
        _check_vectors("image_features", self.image_features, (2, 3), self.task.width)
        n, k = len(self.image_features), self.task.n_classes
        put = functools.partial(object.__setattr__, self)
        if self.labels is not None:
            put("labels", _checked_labels("labels", self.labels, n, k))
        if self.domains is not None:
            put("domains", _column("domains", self.domains, n, "iu", "whole numbers"))
        if self.ids is not None:
            put("ids", _checked_ids(self.ids, n))
        kind = _one_text("text_kind", self.text_kind, "simulated")
        put("text_kind", None if kind in OWN_TEXT else kind)
        put("model", _one_text("model", self.model, "ViT-B-16"))
        put("dataset", _one_text("dataset", self.dataset, "oxfordpets"))
        if (self.few_features is None) != (self.few_labels is None):
            raise InputError("few_features and few_labels belong together: give both or neither.")
        if self.few_features is not None:
            put("few_features", _floats("few_features", self.few_features))
            _check_vectors("few_features", self.few_features, (2,), self.task.width)
            few = _checked_labels("few_labels", self.few_labels, len(self.few_features), k)
            put("few_labels", few)
            rows = like(self.few_features, self.task.text_features)
            put("task", self.task.with_resources({FEW: FewShot(rows, tuple(few.tolist()))}))
        if self.generated is not None:
            put("generated", _checked_generated(self.generated, self.n_views))
            put("task", self.task.with_resources({GENERATED: self.generated}))

    def __len__(self) -> int:
        """N, the number of images."""
        return len(self.image_features)

    @property
    def n_views(self) -> int:
        """V, the number of views of each image."""
        return self.image_features.shape[1] if self.image_features.ndim == 3 else 1

    @property
    def sample_ids(self) -> tuple[SampleId, ...]:
        """The name of each image: its number, from 1, where the file gives none."""
        return self.ids if self.ids is not None else tuple(range(1, len(self) + 1))

    def views(self, row: int) -> Numbers:
        """The views (V, D) of one image in the precision of the task."""
        image = np.atleast_2d(np.asarray(self.image_features[row]))
        return image.astype(self.task.text_features.dtype, copy=False)


def read_features(path: str | os.PathLike[str], verify: bool = True) -> Features:
    """Read and check a feature file or a store; every fault is reported in one sentence.

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
        images = _array("image_features", raw["image_features"])  # a store's stay on disk
        names, text = _classes(raw)
        scale = _array("logit_scale", raw["logit_scale"])
        if scale.size != 1 or scale.dtype.kind not in "fiu":
            raise InputError("logit_scale is not one number: store the model's, 100 for CLIP.")
        precision = np.float64 if images.dtype == np.float64 else np.float32
        with np.errstate(over="ignore"):  # values that overflow are refused as infinite
            task = Task(names, text.astype(precision), float(scale.item()))
        return Features(
            image_features=images,
            task=task,
            source=source,
            sha256=digest or file_sha256(source),
            prompts=tuple(raw.get("prompts") or ()),
            **{name: raw.get(name) for name in OPTIONAL},
        )
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def write_features(path: str | os.PathLike[str], features: Features) -> None:
    """Write a feature file, at once or not at all; the suffix chooses the format."""
    values: dict[str, Any] = {
        "text_features": np.asarray(features.task.text_features),
        "class_names": features.task.class_names,
        "logit_scale": features.task.logit_scale,
        **{name: getattr(features, name) for name in ("image_features", *OPTIONAL)},
    }
    write_raw(Path(path), {key: value for key, value in values.items() if value is not None})


def read_class_features(path: str | os.PathLike[str]) -> Task:
    """The classes of a file with ``text_features`` and ``class_names``, such as a feature file.

    The logit scale of the task is 1: the encoder has its own.
    """
    source, needed = Path(path), ("text_features", "class_names")
    raw = read_raw(source, needed)
    check_complete(source, raw, needed, "a file of text features")
    try:
        names, text = _classes(raw)
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
    """The encoder, with the classes of the file ``text_features`` if one is given."""
    known = None if text_features is None else read_class_features(text_features)
    if isinstance(model, str):
        model = load_encoder(model, device=device, precision=precision)
    return model if known is None else GivenText(model, known, str(text_features))


def check_complete(
    source: Path,
    raw: Mapping[str, Any],
    needed: Sequence[str] = REQUIRED,
    what: str = "a feature file",
) -> None:
    """Refuse a file that lacks a name that ``what`` needs, and suggest the nearest it has."""
    for key in needed:
        if key in raw:
            continue
        close = near(key, [name for name in raw if name not in (*REQUIRED, *OPTIONAL)])
        hint = f" (the nearest name in it is {close[0]!r})" if close else ""
        raise InputError(
            f"{source} holds no {key!r}{hint}: "
            f"{what} needs {', '.join(needed[:-1])} and {needed[-1]}."
        )


def _check_vectors(what: str, array: Any, ndims: tuple[int, ...], width: int) -> None:
    """Refuse anything but a stack of finite, non-zero vectors of this width."""
    shape = (array := _floats(what, array)).shape
    if len(shape) not in ndims:
        allowed = " or ".join({2: "(N, D)", 3: "(N, V, D)"}[n] for n in ndims)
        raise InputError(f"{what} has shape {shape}: store it as {allowed}.")
    if 0 in shape:
        raise InputError(f"{what} has shape {shape} and so holds no images: store at least one.")
    if shape[-1] != width:
        raise InputError(
            f"{what} is {shape[-1]} wide but text_features {width}: "
            "encode both with the same model."
        )
    rows = max(1, _CHUNK // (shape[1] if len(shape) == 3 else 1))
    for start in range(0, len(array), rows):
        part = array[start : start + rows]
        if part.dtype == np.float16:  # fifteen times faster than NumPy's arithmetic on halves:
            bits = part.view(np.uint16) & 0x7FFF  # without the sign they sort as integers do
            peaks = bits.max(axis=-1).view(np.float16)
        else:
            peaks = np.abs(part).max(axis=-1)
        bad = np.argwhere(~np.isfinite(peaks) | (peaks == 0))
        if bad.size:
            first = tuple(bad[0])
            fault = "is all zeros" if peaks[first] == 0 else "holds NaN or infinite values"
            view = f", view {first[1]}," if len(first) > 1 else ""
            raise InputError(
                f"Row {start + first[0]}{view} of {what} {fault}: "
                "encode that image again or leave it out."
            )


def _checked_labels(what: str, labels: Any, count: int, n_classes: int) -> Numbers:
    """``count`` class numbers as int64."""
    array = _column(what, labels, count, "iu", f"whole numbers from 0 to {n_classes - 1}")
    outside = np.flatnonzero((array < 0) | (array >= n_classes))
    if outside.size:
        row = int(outside[0])
        raise InputError(
            f"Row {row} of {what} is {array[row]} but there are {n_classes} classes: "
            f"number them from 0 to {n_classes - 1}."
        )
    return array.astype(np.int64)


def _checked_generated(stored: Any, n_views: int) -> int:
    """How many of the views a generator made: at least one, and never the original."""
    number = _array("generated", stored)
    if number.size == 1 and number.dtype.kind in "iu" and 0 < int(number.item()) < n_views:
        return int(number.item())
    raise InputError(
        f"generated is {stored} but there are {n_views} views, of which the first is the "
        "original: store how many of the others a generator made."
    )


def _checked_ids(ids: Any, count: int) -> tuple[SampleId, ...]:
    """``count`` distinct names of images."""
    array = _column("ids", ids, count, "iuUS", "strings or whole numbers")
    names: list[Any] = _decoded(array).tolist()
    [(twice, times)] = Counter(names).most_common(1)
    if times > 1:
        raise InputError(f"The id {twice!r} occurs more than once: give each image its own.")
    return tuple(names)


def _classes(raw: Mapping[str, Any]) -> tuple[tuple[str, ...], Numbers]:
    """The class names and their features, in the precision they were stored in."""
    names = _array("class_names", raw["class_names"])
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise InputError("class_names is not a list of strings: store one name per class.")
    return tuple(_decoded(names).tolist()), _floats("text_features", raw["text_features"])


def _column(what: str, stored: Any, count: int, kinds: str, wanted: str) -> Numbers:
    """One value per image, of one of these kinds of NumPy types."""
    array = _array(what, stored)
    if array.shape != (count,):
        raise InputError(
            f"{what} has shape {array.shape} but there are {count} images: store one per image."
        )
    if array.dtype.kind not in kinds:
        raise InputError(f"{what} holds {array.dtype} values: store {wanted}.")
    return array


def _one_text(what: str, stored: Any, example: str) -> str | None:
    """A text that may be left out or empty."""
    if stored is None:
        return None
    array = _array(what, stored)
    if array.size != 1 or array.dtype.kind not in "US":
        raise InputError(f"{what} is not one text: store a word such as {example}.")
    return str(_decoded(array).item()).strip() or None


def _decoded(array: Numbers) -> Numbers:
    try:
        return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
    except UnicodeDecodeError:
        raise InputError("A stored name is not UTF-8 text: store names as strings.") from None


def _array(what: str, stored: Any) -> Numbers:
    try:
        return np.asanyarray(stored)
    except ValueError:
        raise InputError(f"{what} has rows of several lengths: store a full array.") from None


def _floats(what: str, array: Any) -> Numbers:
    """An array of floating-point numbers, as they were stored."""
    values = _array(what, array)
    if values.dtype.kind != "f":
        raise InputError(
            f"{what} holds {values.dtype} values: store the encoder's output as float16 or float32."
        )
    return values
