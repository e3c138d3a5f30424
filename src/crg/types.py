"""The values that flow: Task and Sample go into a method, Prediction comes out.

Shapes use fixed letters: K classes, D feature width, V views of one image. An ``Array`` is a NumPy
array or a torch tensor; code that handles one asks for its namespace and so works on both. This
module imports nothing of ours, so the checks on raw vectors live here too.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

_TOOLS = dict.fromkeys({"f2py", "ma", "testing"} - vars(np).keys())
vars(np).update(_TOOLS)  # the next line loads whatever NumPy names: 0.1 s for tools nobody uses
import array_api_compat.numpy  # noqa: E402

for _tool in _TOOLS:
    delattr(np, _tool)

Array: TypeAlias = Any
SampleId: TypeAlias = int | str
DEEPEST = 50  # levels of JSON, of which ours has a handful
_TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"


def namespace(array: Array) -> Any:
    """The array library that ``array`` belongs to, in the form of the array API standard."""
    if type(array) is np.ndarray:  # by far the most frequent, and looked up on the hot path
        return array_api_compat.numpy
    return array_api_compat.array_namespace(array)


class InputError(ValueError):
    """Bad input; the message is one sentence that names the remedy."""


def limit(variable: str, default: int) -> int:
    """A limit on what is read, which an environment variable may move."""
    given = os.environ.get(variable, "").strip() or str(default)
    if not given.isdecimal() or int(given) == 0:
        raise InputError(f"{variable} is {given!r}: set it to a whole number above zero.")
    return int(given)


def parsed_json(
    text: str | bytes, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """The value of a JSON text; whatever is wrong with it, its depth included, is a ValueError."""
    try:
        value = json.loads(text, object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level: list[Any] = [[value]]
    for _ in range(DEEPEST + 1):  # deeper nesting would overflow the stack of later readers
        parts = [each.values() if isinstance(each, dict) else each for each in level]
        level = [each for part in parts for each in part if isinstance(each, (dict, list))]
    if level:
        raise ValueError(_TOO_DEEP)
    return value


def printable(text: str) -> str:
    """Text as it can be shown: what a terminal might obey, and line breaks, are spelled out.

    >>> printable("caf\\u00e9 \\x1b[2J\\n")
    'café \\\\x1b[2J\\\\n'
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def counted(n: int, noun: str) -> str:
    """A number of things, such as ``1 view`` or ``2 views``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names in a sentence: the first few, and how many more there are.

    >>> listed(["cat", "dog", "fox"], 2)
    'cat, dog and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if names[most:] else "")


@dataclass(frozen=True, eq=False)
class Task:
    """The classes to choose from: their names and text features.

    >>> task = Task(["cat", "dog"], [[1.0, 0.0], [0.0, 2.0]])
    >>> task.n_classes, task.width, task.text_features.tolist()
    (2, 2, [[1.0, 0.0], [0.0, 1.0]])
    """

    class_names: Sequence[str]  # kept as a tuple
    text_features: Array  # (K, D), unit rows
    logit_scale: float = 100.0
    resources: Mapping[str, Any] = field(default_factory=dict)  # see crg.resources

    def __post_init__(self) -> None:
        if isinstance(self.class_names, str) or not isinstance(self.class_names, Iterable):
            raise InputError(f"The class names are {self.class_names!r}: give a list of names.")
        names = tuple(map(str, self.class_names))
        text = as_floats(self.text_features, "text features")
        _check_class_names(names, text)
        unit = namespace(text).asarray(unit_rows(text, "text features"), copy=True)
        object.__setattr__(self, "class_names", names)
        object.__setattr__(self, "text_features", unit)
        object.__setattr__(self, "logit_scale", _checked_scale(self.logit_scale))

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.class_names)

    @property
    def width(self) -> int:
        """D."""
        return int(self.text_features.shape[1])

    def with_resources(self, more: Mapping[str, Any]) -> Task:
        """The same task with more resources for methods that need it."""
        resources = {**self.resources, **more}
        return Task(self.class_names, self.text_features, self.logit_scale, resources)

    def with_class(self, name: str, text_feature: Array) -> Task:
        """The same task with one more class at the end."""
        if not isinstance(name, str):
            raise InputError(f"The class name {name!r} is not text: give every name as text.")
        row = as_floats(text_feature, "the text feature")
        if tuple(row.shape) != (self.width,):
            raise InputError(
                f"The text feature of {name!r} has shape {tuple(row.shape)}, but this task "
                f"needs one vector of width {self.width}: encode the name with the same model."
            )
        known = self.text_features
        text = namespace(known).concat([known, like(row, known)[None, :]], axis=0)
        return Task((*self.class_names, name), text, self.logit_scale, self.resources)

    def without_class(self, name: str) -> Task:
        """The same task with one class less."""
        index = self.index_of(name)
        if self.n_classes <= 2:
            raise InputError(
                f"{name!r} cannot be removed because a task needs at least two classes: "
                "add another class first."
            )
        keep = [i for i in range(self.n_classes) if i != index]
        names = [self.class_names[i] for i in keep]
        left = {
            need: thing.without_class(index) if hasattr(thing, "without_class") else thing
            for need, thing in self.resources.items()
        }
        return Task(names, self.text_features[keep, :], self.logit_scale, left)

    def index_of(self, name: str) -> int:
        """The row of a class."""
        if name not in self.class_names:
            known = listed(self.class_names)
            raise InputError(f"There is no class {name!r}: the classes are {known}.")
        return self.class_names.index(name)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One image: its views as unit rows (row 0 is the original) and its id."""

    views: Array  # (V, D)
    id: SampleId


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Facts about one step that explain its answer."""

    entropy: float  # of the averaged zero-shot probabilities, in nats
    pseudo_label: int  # the class whose queue was offered the image
    cache_changed: bool = False
    cache_fill: float = 0.0  # fraction of the cache's slots that hold an image
    events: tuple[str, ...] = ()  # numerical fallbacks in this step, one sentence each
    learnt: Array | None = None  # (K,), how much the image counts for each class from now on
    extra: Mapping[str, Any] = field(default_factory=dict)  # a method's own figures


@dataclass(frozen=True, slots=True)
class Decision:
    """What an adapter that decides says of an image beyond the most probable class."""

    outside: float = math.nan  # in [0, 1], that it is of no class; 0.5 for a typical image
    none_of_these: bool | None = None  # whether it is taken for one; None: not asked for
    class_set: list[str] | None = None  # holds the true one as often as asked for
    missing_labels: int | None = None  # labelled images, until sets can be given


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """The answer for one image."""

    logits: Array  # (K,)
    probs: Array  # (K,)
    label: int
    class_name: str
    diagnostics: Diagnostics
    class_names: Sequence[str] = ()  # all of them, in the order of the logits, where known
    decision: Decision = Decision()  # empty unless ``Adapter.decide`` was called

    def __repr__(self) -> str:
        probability = float(self.probs[self.label])
        return f"Prediction({self.class_name!r}, {probability:.3f}, {len(self.probs)} classes)"


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of an evaluation: the prediction beside the true label."""

    index: int  # place in the stream
    sample_id: SampleId
    label: int | None  # the true class, where known
    prediction: Prediction
    milliseconds: float  # processor time
    purity: float | None = None  # fraction of cached images with the right label, at checkpoints


def as_floats(values: Any, what: str) -> Array:
    """``values`` as a floating-point array: half precision and integers become float32."""
    array: Array = values
    if not array_api_compat.is_array_api_obj(values):
        try:
            with np.errstate(over="ignore"):
                array = np.asarray(values, dtype=np.float32)
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"The {what} could not be read as numbers: give an array of rows of equal width."
            ) from None
    _check_numbers(array, what)
    if getattr(array, "requires_grad", False):
        array = array.detach()  # a graph would grow with every image that is remembered
    xp = namespace(array)
    if array.dtype in (xp.float32, xp.float64):
        return array
    with np.errstate(over="ignore"):  # infinite values are refused later
        return xp.astype(array, xp.float32)


def _check_numbers(array: Array, what: str) -> None:
    """Refuse what is no dense array of real numbers."""
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(f"The {what} are a masked array: fill the gaps and give a plain one.")
    if array_api_compat.is_torch_array(array) and (
        str(array.layout) != "torch.strided"
        or array.is_meta
        or array.is_quantized
        or array.is_nested
    ):
        raise InputError(
            f"The {what} are a sparse, nested, quantized or empty tensor: give a dense one "
            "that holds numbers."
        )
    if isinstance(array, np.ndarray):
        is_real = array.dtype.kind in "biuf"
    else:
        is_real = not namespace(array).isdtype(array.dtype, "complex floating")
    if not is_real:
        raise InputError(f"The {what} hold {array.dtype} values: give real numbers.")


def like(array: Array, reference: Array) -> Array:
    """``array`` in the library, precision and place of ``reference``."""
    if type(array) is type(reference) and array.dtype == reference.dtype:
        if isinstance(array, np.ndarray) or array.device == reference.device:
            return array
    if isinstance(reference, np.ndarray):
        if str(getattr(array, "device", "cpu")) != "cpu":
            array = array.cpu()  # only torch tensors get here
        with np.errstate(over="ignore"):  # infinite values are refused later
            return np.asarray(array, dtype=reference.dtype)
    xp = namespace(reference)
    if isinstance(array, np.ndarray) and not (array.flags.writeable and array.flags.c_contiguous):
        array = array.copy()  # torch shares neither read-only memory nor negative strides
    return xp.asarray(array, dtype=reference.dtype, device=reference.device)


def unit_rows(rows: Array, what: str) -> Array:
    """``rows`` (N, D) scaled to unit length; NaN, infinite and zero rows are refused.

    Rows of unit length up to rounding stay as they are: what is saved and read does not change.
    """
    xp = namespace(rows)
    with np.errstate(over="ignore", invalid="ignore"):  # it is noticed in the next line
        norms = xp.sqrt(xp.sum(rows * rows, axis=-1, keepdims=True))
    if not (0.0 < float(xp.min(norms)) and float(xp.max(norms)) < math.inf):  # NaN fails too
        rows = _rescue_rows(rows, what)
        norms = xp.sqrt(xp.sum(rows * rows, axis=-1, keepdims=True))
    off = xp.abs(norms - 1.0) > 16 * xp.finfo(rows.dtype).eps
    return rows / xp.where(off, norms, xp.ones_like(norms)) if bool(xp.any(off)) else rows


def _rescue_rows(rows: Array, what: str) -> Array:
    """Name the bad row; rows whose square merely over- or underflows are rescaled."""
    xp = namespace(rows)
    peak = xp.max(xp.abs(rows), axis=-1, keepdims=True)
    bad = {
        "holds NaN or infinite values": ~xp.all(xp.isfinite(rows), axis=-1),
        "is all zeros and has no direction": peak[:, 0] == 0,
    }
    for fault, is_bad in bad.items():
        if bool(xp.any(is_bad)):
            row = int(xp.argmax(xp.astype(is_bad, xp.int8)))
            raise InputError(f"Row {row} of the {what} {fault}: encode it again or leave it out.")
    return rows / peak


def _checked_scale(given: Any) -> float:
    try:
        scale = float(np.asarray(given, dtype=np.float64).reshape(()))  # (1,) too
    except (TypeError, ValueError, OverflowError):
        scale = math.nan
    if not 0 < scale <= 1e6:
        most = "at most 1,000,000" if scale > 1e6 else "a positive number"
        raise InputError(
            f"logit_scale is {given}, but it must be {most}: "
            "CLIP models use 100 (give the exponential, not the logarithm)."
        )
    return scale


def _check_class_names(names: tuple[str, ...], text: Array) -> None:
    if text.ndim != 2 or 0 in text.shape[1:]:
        raise InputError(
            f"The text features have shape {tuple(text.shape)}: give one row per class, (K, D)."
        )
    if len(names) != text.shape[0]:
        raise InputError(
            f"There are {len(names)} class names but {text.shape[0]} text features: "
            "give one row per class."
        )
    if len(names) < 2:
        raise InputError(f"The number of classes is {len(names)}: give at least two.")
    if not all(name.strip() for name in names):
        raise InputError("A class name is empty: name every class.")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"The class name {twice!r} occurs more than once: make names distinct.")
