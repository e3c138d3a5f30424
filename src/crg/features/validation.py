"""What the values of a feature file must be like; what is wrong is reported in one sentence."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from crg.types import InputError, SampleId

Numbers = np.ndarray[Any, Any]

OWN_TEXT = ("clip", "own")  # kinds of text features that are the model's own
_CHUNK = 8192  # views that are checked at once, so that checking needs little memory


def check_vectors(what: str, array: Any, ndims: tuple[int, ...], width: int) -> None:
    """Refuse what is no stack of finite vectors of this width that point somewhere."""
    shape = floats(what, array).shape
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
    _check_rows(what, array)


def _check_rows(what: str, array: Numbers) -> None:
    rows = max(1, _CHUNK // (array.shape[1] if array.ndim == 3 else 1))
    for start in range(0, len(array), rows):
        peaks = _peaks(array[start : start + rows])
        bad = np.argwhere(~np.isfinite(peaks) | (peaks == 0))
        if not bad.size:
            continue
        first = tuple(bad[0])
        fault = "is all zeros" if peaks[first] == 0 else "holds NaN or infinite values"
        view = f", view {first[1]}," if len(first) > 1 else ""
        raise InputError(
            f"Row {start + first[0]}{view} of {what} {fault}: "
            "encode that image again or leave it out."
        )


def _peaks(rows: Numbers) -> Numbers:
    """The largest magnitude of each vector; NaN or infinity where it holds such a value."""
    if rows.dtype == np.float16:  # fifteen times faster than NumPy's arithmetic on halves:
        bits = rows.view(np.uint16) & 0x7FFF  # without the sign their order is that of integers
        rows = bits.max(axis=-1).view(np.float16)
    else:
        rows = np.abs(rows).max(axis=-1)
    return rows


def checked_labels(what: str, labels: Any, count: int, n_classes: int) -> Numbers:
    """``count`` class numbers as int64."""
    array = np.asarray(labels)
    if array.shape != (count,):
        raise InputError(
            f"{what} has shape {array.shape} but there are {count} images: store one label each."
        )
    if array.dtype.kind not in "iu":
        raise InputError(
            f"{what} holds {array.dtype} values: store whole numbers from 0 to {n_classes - 1}."
        )
    outside = np.flatnonzero((array < 0) | (array >= n_classes))
    if outside.size:
        row = int(outside[0])
        raise InputError(
            f"Row {row} of {what} is {array[row]} but there are {n_classes} classes: "
            f"number them from 0 to {n_classes - 1}."
        )
    return array.astype(np.int64)


def checked_generated(stored: Any, n_views: int) -> int:
    """How many of the views a generator made: at least one, and never the original."""
    number = np.asarray(stored)
    if number.size != 1 or number.dtype.kind not in "iu" or not 0 < int(number.item()) < n_views:
        raise InputError(
            f"generated is {stored} but there are {n_views} views, of which the first is the "
            "original: store how many of the others a generator made."
        )
    return int(number.item())


def checked_ids(ids: Any, count: int) -> tuple[SampleId, ...]:
    """``count`` distinct names of images."""
    array = np.asarray(ids)
    if array.shape != (count,):
        raise InputError(
            f"ids has shape {array.shape} but there are {count} images: store one id each."
        )
    if array.dtype.kind not in "iuUS":
        raise InputError(f"ids holds {array.dtype} values: store strings or whole numbers.")
    names: list[Any] = _decoded(array).tolist()
    if len(set(names)) != count:
        [(twice, _)] = Counter(names).most_common(1)
        raise InputError(f"The id {twice!r} occurs more than once: give each image its own.")
    return tuple(names)


def names_of(stored: Any) -> tuple[str, ...]:
    """The class names as text."""
    array = np.asarray(stored)
    if array.ndim != 1 or array.dtype.kind not in "US":
        raise InputError("class_names is not a list of strings: store one name per class.")
    return tuple(_decoded(array).tolist())


def text_kind_of(stored: Any) -> str | None:
    """Where text features come from; None where that is the model's own text encoder.

    >>> text_kind_of("simulated"), text_kind_of("clip"), text_kind_of(None)
    ('simulated', None, None)
    """
    if stored is None:
        return None
    array = np.asarray(stored)
    if array.size != 1 or array.dtype.kind not in "US":
        raise InputError("text_kind is not one text: store a word such as simulated.")
    kind = str(_decoded(array).item()).strip()
    return None if kind in ("", *OWN_TEXT) else kind


def _decoded(array: Numbers) -> Numbers:
    try:
        return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
    except UnicodeDecodeError:
        raise InputError("A stored name is not UTF-8 text: store names as strings.") from None


def floats(what: str, array: Any) -> Numbers:
    """An array of floating-point numbers, as they were stored."""
    values = np.asarray(array)
    if values.dtype.kind != "f":
        raise InputError(
            f"{what} holds {values.dtype} values: store the encoder's output as float16 or float32."
        )
    return values


def one_number(stored: Any) -> float:
    """The logit scale."""
    array = np.asarray(stored)
    if array.size != 1 or array.dtype.kind not in "fiu":
        raise InputError("logit_scale is not one number: store the model's scale, 100 for CLIP.")
    return float(array.reshape(()))
