"""A folder with an image and a text graph for ONNX Runtime, as ``crg encoders`` writes it.

``encoder.json`` describes the model and names its files with their checksums; ``tokenizer.json``
is the tokenizer. torch is not needed. Without ``text.onnx`` and tokenizer the model encodes
images only. A folder may come from a stranger, so everything is checked before it is used. A
graph may keep weights in files beside it, which ``encoder.json`` must list; the runtime refuses
weights from other places.

A graph in 8 bits may quantise a whole batch by its largest value, so that an image's features
depend on its neighbours; and signed 8-bit products overflow on processors without VNNI. So
processors encode one image at a time, the runtime is asked for products that cannot overflow, and
a graph is compared with itself when it is loaded.
"""

from __future__ import annotations

import hashlib
import html
import json
import mmap
import os
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta, Struct

from crg.atomic import file_sha256
from crg.encoders.base import Vectors, check_pixels, check_texts, encode_in_pieces
from crg.extras import first_line, library
from crg.images.preprocessing import Pixels, Preprocessing, reference_pixels
from crg.suggest import nearest
from crg.types import InputError, printable, unit_rows

FORMAT = "crg-onnx"
VERSION = 1
DESCRIPTION = "encoder.json"
IMAGE, TEXT, TOKENIZER = "image.onnx", "text.onnx", "tokenizer.json"
TEST_SENTENCES = ("a photo of 2 red cats.", "a satellite image of an airport")
_MAX_DESCRIPTION = 10_000_000  # bytes
_MOST_ERROR = 0.25  # of test features, as a fraction of the distance between the two
_ROWS_AT_ONCE = 64  # on a GPU, and of texts
_MOST_AT_ONCE = 4096  # that a graph may ask for, because they are all computed for one image
_EIGHT_BIT = (b"QuantizeLinear", b"DynamicQuantize", b"MatMulInteger", b"ConvInteger", b"QLinear",
              b"QAttention")  # fmt: skip
_SCALES = (0.99, 1.01)  # of test images, which a network hardly notices
_OVERFLOW = 4.0  # times the noise; sound graphs move by up to 2, one that overflows by 8
_MOST_NOISE = 2.0  # times the distance between the two; sound graphs reach one
_MOST_BESIDE = 0.1  # of the distance between the two; less never matters
_UNUSED = ("format", "version")  # keys that are not read here
_KINDS = {"float": "f4", "float16": "f2", "double": "f8", "int32": "i4", "int64": "i8"}

Clean: TypeAlias = Literal["lower", "whitespace", "canonicalize"]  # as open_clip calls them
_Token = Annotated[int, Meta(ge=0, lt=2**31)]
_Vectors = Annotated[
    list[list[Annotated[float, Meta(ge=-2, le=2)]]], Meta(min_length=2, max_length=2)
]
Tokenize = Callable[[Sequence[str], int], np.ndarray[Any, np.dtype[np.int64]]]


class TokenizerUse(Struct):
    """How ``tokenizer.json`` is used: how texts are cleaned before and padded after."""

    clean: Clean
    pad_id: _Token = 0
    pad_token: str = ""
    stripped: _Token | None = None  # replaced by zero


class About(Struct):
    """The content of ``encoder.json``; without ``tokenizer`` the model encodes images only."""

    width: Annotated[int, Meta(ge=1, le=65536)]
    logit_scale: Annotated[float, Meta(gt=0, le=1e6)]
    preprocessing: Preprocessing
    files: dict[str, str]
    context_length: Annotated[int, Meta(ge=1, le=65536)] | None = None
    tokenizer: TokenizerUse | None = None
    reference: dict[Literal["images", "texts"], _Vectors] = {}  # of the built-in test inputs
    output: str | None = None  # of the image graph; None: the first
    batch: Annotated[int, Meta(ge=1, le=65536)] | None = None  # images it takes; None: any number
    model: str = "a model"


class Onnx:
    """An exported model as an Encoder."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        device: str | None = None,
        precision: str | None = None,
    ) -> None:
        if precision not in (None, "fp32"):
            raise InputError("An exported model computes in fp32: leave the precision out.")
        runtime = library("onnxruntime", "onnx")
        place = Path(folder).expanduser()
        providers = _providers(runtime, device)
        about, self.fingerprint = _read_description(place)
        self.name = f"onnx:{folder}"
        self.preprocessing = about.preprocessing
        self.width = about.width
        self.logit_scale = about.logit_scale
        on_gpu = len(providers) > 1
        self._image = Graph(runtime, place / IMAGE, providers, on_gpu, about.output)
        self._text: tuple[Tokenize, Graph] | None = None
        self.context_length = about.context_length or 0
        if about.tokenizer is not None:
            tokenize = read_tokenizer(about.tokenizer, place)
            self._text = tokenize, Graph(runtime, place / TEXT, providers, many=True)
        pixels = self.preprocessing.normalised(reference_pixels(self.preprocessing.size))
        check_sound(self._image, pixels, self.width, about.reference.get("images"))
        if self._text is not None:
            tokens = self._text[0](TEST_SENTENCES, self.context_length)
            check_sound(self._text[1], tokens, self.width, about.reference.get("texts"))

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Unit features (B, D) for pixels (B, S, S, 3)."""
        check_pixels(pixels, self.preprocessing)
        run = lambda rows: self._image(self.preprocessing.normalised(rows))  # noqa: E731
        return encode_in_pieces(pixels, run, self._image.at_once, self.width, "images")

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Unit features (n, D); words beyond the context length are cut off."""
        if self._text is None:
            raise InputError(
                f"{self.name} has no {TEXT}: give the text features of the classes in a file "
                "(--text-features)."
            )
        tokenize, graph = self._text
        tokens = tokenize(check_texts(texts), self.context_length)
        return encode_in_pieces(tokens, graph, graph.at_once, self.width, "texts")


def check_sound(graph: Graph, rows: Any, width: int, stored: list[list[float]] | None) -> None:
    """Compare a graph with itself: two test inputs alone, together, and slightly scaled.

    Scaling shows the noise of the graph, which 8 bits make large. Together, the two are quantised
    more coarsely: where products overflow, fewer of them do, and features move by far more than
    the noise. ``stored`` features may differ by the noise and a little more.
    """
    if (shape := graph(rows[:1]).shape) != (1, width):
        raise InputError(
            f"{graph.file} gives features of shape {shape} for one input but {DESCRIPTION} "
            f"says they are {width} wide: correct the width there, or name another output."
        )
    alone = _units([graph(row[None]) for row in rows])
    beside = 0.0 if graph.batch == 1 else _distance(_units([graph(rows)]), alone)
    scales = _SCALES if rows.dtype.kind == "f" else ()
    scaled = [_units([graph(scale * row[None]) for row in rows]) for scale in scales]
    graph.at_once = 1 if graph.batch and beside else graph.at_once  # it mixes images
    noise = max([0.0, *(_distance(each, alone) for each in scaled)])
    apart = float(np.linalg.norm(alone[0] - alone[1]))
    error = 0.0 if stored is None else _distance(np.array(stored, np.float32), alone)
    if not noise < _MOST_NOISE * apart:
        what, remedy = f"by {noise:.3f} with slightly brighter input", "give another graph"
    elif scaled and graph.eight_bit and beside > max(_MOST_BESIDE * apart, _OVERFLOW * noise):
        what = f"by {beside:.3f} with another beside it and by {noise:.3f} with its brightness"
        remedy = "8-bit products overflow, so use fp32 or unsigned weights (QUInt8)"
    elif not error <= _MOST_ERROR * apart + max(noise, beside):
        what = f"by {error:.3f} from those in {DESCRIPTION}"
        remedy = "use the original graph, or import this one with crg encoders import"
    else:
        return
    raise InputError(
        f"The features of {graph.file} for one test input differ {what}, where two test inputs "
        f"are {apart:.3f} apart: {remedy}."
    )


def _units(features: list[Vectors]) -> Vectors:
    return np.asarray(unit_rows(np.concatenate(features), "test features"))


def _distance(ours: Vectors, theirs: Vectors) -> float:
    return float(np.linalg.norm(ours - theirs, axis=1).max())


def _providers(runtime: Any, device: str | None) -> list[str]:
    cuda = "CUDAExecutionProvider" in runtime.get_available_providers()
    if device not in (None, "cpu", "cuda") or (device == "cuda" and not cuda):
        raise InputError(
            f"ONNX Runtime cannot use the device {device!r} here: use 'cpu'"
            f"{'' if cuda else ' or install onnxruntime-gpu for cuda'}."
        )
    on_gpu = ["CUDAExecutionProvider"] if cuda and device != "cpu" else []
    return [*on_gpu, "CPUExecutionProvider"]


class Graph:
    """One model in the runtime: rows in, features (n, D) out."""

    def __init__(
        self,
        runtime: Any,
        file: Path,
        providers: list[str],
        many: bool = False,
        output: str | None = None,
    ) -> None:
        options = runtime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)  # 0: all
        options.log_severity_level = 4  # fatal errors only: the library never prints
        # without VNNI, signed weights are made unsigned: slower, but their products fit
        options.add_session_config_entry("session.x64quantprecision", "1")
        self.file = file
        try:
            self.session = runtime.InferenceSession(
                str(file), options, providers=providers, enable_fallback=len(providers) > 1
            )  # falling back, it prints
        except Exception as error:  # the runtime has one class per reason
            raise InputError(
                f"{file} cannot be used by ONNX Runtime {runtime.__version__} ({_reason(error)}): "
                "give a complete graph, with the files of its weights beside it."
            ) from None
        self.inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        self.outputs = [each.name for each in outputs]
        if output is not None and output not in self.outputs:
            hint = nearest(output, self.outputs)
            raise InputError(f"{file} has no output {output!r}: {hint}")
        self.output = output or self.outputs[0]
        self.eight_bit = holds(file, *_EIGHT_BIT)
        first = (self.inputs[0].shape or [None])[0] if self.inputs else None
        self.batch = first if isinstance(first, int) else None
        if (self.batch or 1) > _MOST_AT_ONCE:
            raise InputError(f"{file} takes {self.batch} images at once: give another graph.")
        self.at_once = self.batch or (_ROWS_AT_ONCE if many else 1)
        if self.eight_bit:
            self.at_once = 1

    def __call__(self, rows: Any) -> Vectors:
        """Features of at most ``batch`` rows; too few are repeated until they fill it."""
        count = self.batch or len(rows)
        given = {}
        for each in self.inputs:
            kind = _KINDS.get(each.type.removeprefix("tensor(").rstrip(")"), rows.dtype)
            given[each.name] = np.resize(rows, (count, *rows.shape[1:])).astype(kind, copy=False)
        try:
            features: Any = self.session.run([self.output], given)[0]
        except Exception as error:
            declared = ", ".join(f"{each.name} {each.shape}" for each in self.inputs)
            raise InputError(
                f"{self.file} cannot be used with rows of shape {rows.shape[1:]} "
                f"({_reason(error)}): it takes {declared}, so correct {DESCRIPTION}."
            ) from None
        kind = getattr(features, "dtype", None)
        if kind is None or kind.kind != "f":
            raise InputError(
                f"The output {self.output!r} of {self.file} holds {kind} values, not "
                f"features: name another of {', '.join(self.outputs)}."
            )
        return np.asarray(features, np.float32)[: len(rows)]


def holds(file: Path, *words: bytes) -> bool:
    """Whether any of these words occurs in a file, which may be larger than the memory."""
    if not file.stat().st_size:
        return False
    with file.open("rb") as content, mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as all:
        return any(all.find(word) >= 0 for word in words)


def files_beside(graph: Path) -> list[str]:
    """The names beside a graph that it refers to, where it keeps weights in other files."""
    if not (graph.is_file() and holds(graph, b"location")):  # the key of such a reference
        return []
    names = [each.name for each in graph.parent.iterdir() if each.name != graph.name]
    # the byte before a text is its length, so that a name is not taken for the longer one it begins
    size = {each: bytes([n if (n := len(os.fsencode(each))) < 128 else 1]) for each in names}
    return [n for n in names if holds(graph, size[n] + os.fsencode(n), b"./" + os.fsencode(n))]


def _reason(error: Exception) -> str:
    return printable(first_line(error)).replace("`", "'")


def read_tokenizer(use: TokenizerUse, folder: Path) -> Tokenize:
    """The tokenizer of an exported folder, which gives the tokens of open_clip's."""
    tokenizers, fix = library("tokenizers", "onnx"), library("ftfy", "onnx").fix_text
    try:
        inner = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:  # tokenizers raises plain exceptions
        raise _damaged(folder / TOKENIZER, error) from None

    def clean(text: str) -> str:  # as the function does that open_clip calls by this name
        text = html.unescape(html.unescape(fix(text)))
        if use.clean == "canonicalize":
            text = text.replace("_", " ").translate(str.maketrans("", "", string.punctuation))
        text = " ".join(text.split())
        return text if use.clean == "whitespace" else text.lower()

    def tokenize(texts: Sequence[str], context_length: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        inner.enable_truncation(context_length)
        inner.enable_padding(pad_id=use.pad_id, pad_token=use.pad_token, length=context_length)
        rows = [each.ids for each in inner.encode_batch([clean(text) for text in texts])]
        tokens = np.array(rows, np.int64).reshape(len(rows), context_length)
        return np.where(tokens == use.stripped, 0, tokens) if use.stripped else tokens

    return tokenize


def _read_description(folder: Path) -> tuple[About, str]:
    """Read and check ``encoder.json`` and every checksum; with a hash of what decides features."""
    file = folder / DESCRIPTION
    if not file.is_file():
        raise InputError(
            f"{folder} is not a folder with an exported model: make one with crg encoders export "
            "or import."
        )
    try:
        if file.stat().st_size > _MAX_DESCRIPTION:
            raise ValueError(f"more than {_MAX_DESCRIPTION:,} bytes")
        raw = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        kind, version = raw.get("format"), raw.get("version")
        if (kind, version) != (FORMAT, VERSION) or isinstance(version, bool):
            raise InputError(
                f"{file} is of format {kind!r:.40} version {version!r:.40} but this crg reads "
                f"{FORMAT} version {VERSION}: make the folder again with that crg."
            )
        _check_keys(file, raw)
        about = msgspec.convert(raw, About)
        if not (folder / TEXT).exists():
            about.tokenizer = about.context_length = None
        if (about.tokenizer is None) != (about.context_length is None):
            raise ValueError("context_length and tokenizer belong together")
        if {len(row) for rows in about.reference.values() for row in rows} - {about.width}:
            raise ValueError(f"reference features are not {about.width} wide")
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise _damaged(file, error) from None
    _check_files(folder, about)
    facts = [raw.get(key) for key in ("preprocessing", "tokenizer", "context_length")]
    facts += [about.output] if about.output else []
    content = json.dumps([raw["files"], *facts], sort_keys=True)
    return about, hashlib.sha256(content.encode()).hexdigest()


def _check_keys(file: Path, raw: dict[str, Any]) -> None:
    """Refuse a misspelt key, which would be ignored."""
    for where, kind in (("", About), ("preprocessing", Preprocessing), ("tokenizer", TokenizerUse)):
        known = [*kind.__annotations__, *(() if where else _UNUSED)]
        given = raw.get(where) if where else raw
        for key in given if isinstance(given, dict) else ():
            if key not in known:
                shown = printable(f"{where} {key}".strip())
                raise InputError(f"{file} has a key {shown!r:.60}: {nearest(key, known)}")


def _damaged(file: Path, error: Exception) -> InputError:
    return InputError(
        f"{file} is damaged or wrong ({_reason(error)}): correct it, or make the folder again."
    )


def _check_files(folder: Path, about: About) -> None:
    """Refuse files that are missing, changed, or no files of this folder.

    Of files that are not listed, only those that a graph refers to are refused.
    """
    needed = {IMAGE} if about.tokenizer is None else {IMAGE, TEXT, TOKENIZER}
    used = {name for graph in (IMAGE, TEXT) for name in files_beside(folder / graph)} - needed
    for name in sorted({*used, *needed, *about.files}):
        file, shown = folder / name, printable(str(folder / name))
        if Path(name).name != name or "\\" in name or file.is_symlink():
            raise InputError(
                f"{folder / DESCRIPTION} names {printable(name)!r:.80}, which is not a file of "
                "this folder: put the files themselves beside it."
            )
        if name not in about.files and file.exists():
            raise InputError(
                f"{shown} is not listed in {DESCRIPTION}: remove it, or add its SHA-256 there."
            )
        if not file.is_file():
            if about.tokenizer is None and name != IMAGE:
                continue  # it belongs to the text graph, or the image graph is refused below
            raise InputError(f"{shown} is missing: put it back, or make the folder again.")
        if file_sha256(file) != about.files[name]:
            raise InputError(
                f"{shown} is damaged or was changed: put the original back, or make a folder of "
                "the changed graph with crg encoders import."
            )
