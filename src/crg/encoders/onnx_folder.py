"""The folder of an exported model, checked before anything in it is used; it may be a stranger's.

``encoder.json`` describes the model and names every file with its checksum. A graph may keep
weights in files beside it: one that the list does not name, or that lies elsewhere, is refused.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from crg.atomic import file_sha256
from crg.encoders.base import first_line
from crg.encoders.tokenizer import Words
from crg.images.preprocessing import Fit, Interpolation, Preprocessing
from crg.types import InputError, printable

FORMAT = "crg-onnx"
VERSION = 1
DESCRIPTION = "encoder.json"
IMAGE, TEXT = "image.onnx", "text.onnx"
_MAX_DESCRIPTION = 10_000_000  # bytes

_Channel = Annotated[float, Meta(ge=-100, le=100)]
_Positive = Annotated[float, Meta(gt=0, le=100)]
_Vectors = Annotated[
    list[list[Annotated[float, Meta(ge=-2, le=2)]]], Meta(min_length=2, max_length=2)
]


class Prepared(Struct):
    """How images are prepared: the fields of ``Preprocessing`` with the ranges they may have."""

    size: Annotated[int, Meta(ge=1, le=4096)]
    mean: tuple[_Channel, _Channel, _Channel]
    std: tuple[_Positive, _Positive, _Positive]
    interpolation: Interpolation = "bicubic"
    fit: Fit = "shortest"


class Reference(Struct):
    """Unit features of the built-in test images and sentences, by the model that was exported."""

    images: _Vectors
    texts: _Vectors | None = None


class About(Struct):
    """What ``encoder.json`` says; without ``tokenizer`` or ``text.onnx`` it is for images only."""

    width: Annotated[int, Meta(ge=1, le=65536)]
    logit_scale: Annotated[float, Meta(gt=0, le=1e6)]
    preprocessing: Prepared
    files: dict[str, str]
    logit_bias: Annotated[float, Meta(ge=-1e6, le=1e6)] = 0.0
    context_length: Annotated[int, Meta(ge=1, le=65536)] | None = None
    tokenizer: Words | None = None
    reference: Reference | None = None
    model: str = "a model"

    def prepared(self) -> Preprocessing:
        """How images are prepared."""
        return Preprocessing(**msgspec.structs.asdict(self.preprocessing))


def read_description(folder: Path) -> tuple[About, str]:
    """What the folder holds, and a hash of all that decides the features.

    Kinds and ranges are checked, and so is the checksum of every file.
    """
    file = folder / DESCRIPTION
    if not file.is_file():
        raise InputError(
            f"{folder} is not a folder with an exported model: make one with crg export."
        )
    try:
        if file.stat().st_size > _MAX_DESCRIPTION:
            raise ValueError(f"more than {_MAX_DESCRIPTION:,} bytes")
        raw = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        _check_version(file, raw)
        about = msgspec.convert(raw, About)
        if not (folder / TEXT).exists():
            about.tokenizer = about.context_length = None
        if (about.tokenizer is None) != (about.context_length is None):
            raise ValueError("context_length and tokenizer belong together")
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise damaged(file, error) from None
    _check_files(folder, about)
    facts = [raw.get(key) for key in ("preprocessing", "tokenizer", "context_length")]
    content = json.dumps([raw["files"], *facts], sort_keys=True)
    return about, hashlib.sha256(content.encode()).hexdigest()


def damaged(file: Path, error: Exception) -> InputError:
    """The refusal of a file that is not as it was written."""
    reason = printable(first_line(error)).replace("`", "'")
    return InputError(f"{file} is damaged ({reason}): export the model again.")


def _check_version(file: Path, raw: dict[str, Any]) -> None:
    kind, version = raw.get("format"), raw.get("version")
    if (kind, version) != (FORMAT, VERSION) or isinstance(version, bool):
        raise InputError(
            f"{file} is of format {kind!r:.40} version {version!r:.40} but this crg reads {FORMAT} "
            f"version {VERSION}: export the model again."
        )


def _check_files(folder: Path, about: About) -> None:
    graphs = [IMAGE] if about.tokenizer is None else [IMAGE, TEXT]
    for name in sorted({*graphs, *about.files}):
        file = folder / name
        if Path(name).name != name or "\\" in name or file.is_symlink():
            raise InputError(
                f"{folder / DESCRIPTION} names {printable(name)!r:.80}, which is not a file of "
                "this folder: put the files themselves beside it."
            )
        if not file.is_file():
            if about.tokenizer is None and name != IMAGE:
                continue  # it belongs to the text model, or the image model is refused below
            raise _missing(file)
        if file_sha256(file) != about.files.get(name):
            raise InputError(
                f"{printable(str(file))} is damaged or was changed: export the model again, or "
                f"write its new SHA-256 into {DESCRIPTION} if you changed it yourself."
            )
    for name in graphs:
        _check_external(folder / name, about)


def _missing(file: Path) -> InputError:
    return InputError(f"{printable(str(file))} is missing: export the model again.")


def _check_external(graph: Path, about: About) -> None:
    """Refuse weights from files that are not listed, and 8-bit ones with nothing to compare to."""
    try:
        locations, operators = _graph_facts(graph)
    except (ValueError, IndexError) as error:
        raise damaged(graph, error) from None
    for location in sorted(locations - set(about.files)):
        raise InputError(
            f"{graph} takes weights from {printable(location)!r:.80}, which {DESCRIPTION} does not "
            "list: export the model again."
        )
    for location in sorted(locations):
        if not (graph.parent / location).is_file():
            raise _missing(graph.parent / location)
    if about.reference is None and (found := sorted(operators & _EIGHT_BITS)):
        raise InputError(
            f"{graph} computes in 8 bits ({found[0]}) and {DESCRIPTION} holds no reference "
            "features to check it against: export the model with this crg, then convert it."
        )


# The part of ONNX's protocol buffers that leads to tensors: field numbers by kind of message.
_FIELDS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {4: "operator", 5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external"},
    "external": {1: "key", 2: "value"},
}
_EIGHT_BITS = frozenset(
    ["ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "DynamicQuantizeLinear",
     "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QuantizeLinear", "QGemm"]
)  # fmt: skip


def _graph_facts(file: Path) -> tuple[set[str], set[str]]:
    """The files that a graph takes weights from, and the names of its operators."""
    locations, operators = set(), set()
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        waiting = [("model", 0, len(data))]
        while waiting:
            kind, start, end = waiting.pop()
            entry = {}
            for number, first, last in _fields(data, start, end):
                inner = _FIELDS[kind].get(number)
                if inner in _FIELDS:
                    waiting.append((str(inner), first, last))
                elif inner is not None:
                    entry[inner] = data[first:last].decode("utf-8", "replace")
            if kind == "external" and entry.get("key") == "location":
                locations.add(entry.get("value", ""))
            if "operator" in entry:
                operators.add(entry["operator"])
    return locations, operators


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, first and last byte of each field of a message that has a length."""
    while at < end:
        tag, at = _varint(data, at)
        length = {1: 8, 5: 4}.get(tag & 7, 0)
        if tag & 7 == 0:
            _, at = _varint(data, at)
        elif tag & 7 == 2:
            length, at = _varint(data, at)
        elif not length:
            raise ValueError("not a graph of ONNX")
        if at + length > end:
            raise ValueError("truncated")
        if tag & 7 == 2:
            yield tag >> 3, at, at + length
        at += length


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    """A whole number in groups of seven bits, and where the next thing begins."""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError("not a graph of ONNX")
