"""A folder with an image and a text graph for ONNX Runtime, as ``crg encoders export`` writes it.

``encoder.json`` describes the model and names every file with its checksum; ``tokenizer.json``
is the tokenizer. torch is not needed. Without ``text.onnx`` and tokenizer the model encodes
images only. A folder may come from a stranger, so everything is checked before it is used. A
graph may keep weights in files beside it, so ``encoder.json`` must list every file; the runtime
refuses weights from other places.
"""

from __future__ import annotations

import hashlib
import html
import json
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
from crg.images.preprocessing import Pixels, Preprocessing
from crg.types import InputError, printable

FORMAT = "crg-onnx"
VERSION = 1
DESCRIPTION = "encoder.json"
IMAGE, TEXT, TOKENIZER = "image.onnx", "text.onnx", "tokenizer.json"
TEST_SENTENCES = ("a photo of 2 red cats.", "a satellite image of an airport")
_MAX_DESCRIPTION = 10_000_000  # bytes
_MOST_ERROR = 0.25  # of test features, as a fraction of the distance between the two
_ROWS_AT_ONCE = {"cpu": 2, "cuda": 64}  # fixed, because the batch decides how products are rounded
_TEXTS_AT_ONCE = 64

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
    logit_bias: Annotated[float, Meta(ge=-1e6, le=1e6)] = 0.0
    context_length: Annotated[int, Meta(ge=1, le=65536)] | None = None
    tokenizer: TokenizerUse | None = None
    reference: dict[Literal["images", "texts"], _Vectors] = {}  # of the built-in test inputs
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
        self.source = f"{place}, exported from {about.model}"
        self.preprocessing = about.preprocessing
        self.width = about.width
        self.logit_scale, self.logit_bias = about.logit_scale, about.logit_bias
        self._rows_at_once = _ROWS_AT_ONCE["cpu" if len(providers) == 1 else "cuda"]
        self._image = _Graph(runtime, place / IMAGE, providers, self.width)
        self._text: tuple[Tokenize, _Graph] | None = None
        self.context_length = about.context_length or 0
        if about.tokenizer is not None:
            tokenize = read_tokenizer(about.tokenizer, place)
            self._text = tokenize, _Graph(runtime, place / TEXT, providers, self.width)
        images = self.encode_images(reference_pixels(self.preprocessing.size))
        _check_similar(place / IMAGE, images, about.reference.get("images"))
        if about.tokenizer is not None:
            texts = self.encode_texts(TEST_SENTENCES)
            _check_similar(place / TEXT, texts, about.reference.get("texts"))

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Unit features (B, D) for pixels (B, S, S, 3)."""
        check_pixels(pixels, self.preprocessing)
        run = lambda rows: self._image(self.preprocessing.normalised(rows))  # noqa: E731
        return encode_in_pieces(pixels, run, self._rows_at_once, self.width, "images")

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Unit features (n, D); words beyond the context length are cut off."""
        if self._text is None:
            raise InputError(
                f"{self.name} has no {TEXT}: give the text features of the classes in a file "
                "(--text-features), or export the model again."
            )
        tokenize, graph = self._text
        tokens = tokenize(check_texts(texts), self.context_length)
        return encode_in_pieces(tokens, graph, _TEXTS_AT_ONCE, self.width, "texts")


def reference_pixels(side: int) -> Pixels:
    """The two built-in test images (2, S, S, 3): slopes of colour under strong edges."""
    y, x = np.mgrid[0:side, 0:side]
    slopes = np.stack([255 * x // side, 255 * y // side, 255 * (x + y) // (2 * side)], axis=-1)
    checks = ((x * 13 // side) + (y * 13 // side)) % 3 == 0
    first = np.where(checks[:, :, None], 255 - slopes, slopes)
    rings = (x - side // 2) ** 2 + (y - side // 2) ** 2 < side**2 // 9
    second = np.where(rings[:, :, None], slopes[:, :, ::-1], 255 - slopes // 4)
    return np.stack([first, second]).astype(np.uint8)


def _check_similar(graph: Path, features: Vectors, stored: list[list[float]] | None) -> None:
    """Refuse features whose error is not small beside the distance of the two test inputs."""
    if stored is None:
        return
    expected = np.array(stored, np.float32)
    error = float(np.linalg.norm(features - expected, axis=1).max())
    apart = float(np.linalg.norm(expected[0] - expected[1]))
    if not error <= _MOST_ERROR * apart:
        raise InputError(
            f"The features of {graph} differ from those of the model that was exported (by "
            f"{error:.3f}, where two test inputs are {apart:.3f} apart): 8-bit weights overflow on "
            "some processors, so use fp32, or quantise to unsigned weights (QUInt8)."
        )


def _providers(runtime: Any, device: str | None) -> list[str]:
    cuda = "CUDAExecutionProvider" in runtime.get_available_providers()
    if device not in (None, "cpu", "cuda") or (device == "cuda" and not cuda):
        raise InputError(
            f"ONNX Runtime cannot use the device {device!r} here: use 'cpu'"
            f"{'' if cuda else ' or install onnxruntime-gpu for cuda'}."
        )
    on_gpu = ["CUDAExecutionProvider"] if cuda and device != "cpu" else []
    return [*on_gpu, "CPUExecutionProvider"]


class _Graph:
    """One model in the runtime: rows in, features (n, D) out."""

    def __init__(self, runtime: Any, file: Path, providers: list[str], width: int) -> None:
        options = runtime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)  # 0: all
        options.log_severity_level = 4  # fatal errors only: the library never prints
        self.file, self.width = file, width
        try:
            self.session = runtime.InferenceSession(str(file), options, providers=providers)
            self.inputs = [each.name for each in self.session.get_inputs()]
        except Exception as error:  # the runtime has one class per reason
            raise self._refused(error) from None

    def __call__(self, rows: Any) -> Vectors:
        try:
            features: Any = self.session.run(None, dict.fromkeys(self.inputs, rows))[0]
        except Exception as error:
            raise self._refused(error) from None
        wanted = len(rows), self.width
        if getattr(features, "shape", None) != wanted or features.dtype.kind != "f":
            raise InputError(
                f"{self.file} does not give features of shape {wanted}, which {DESCRIPTION} "
                "promises: export the model again."
            )
        return np.asarray(features, np.float32)

    def _refused(self, error: Exception) -> InputError:
        return InputError(
            f"{self.file} cannot be used ({printable(first_line(error))}): export the model again."
        )


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
            f"{folder} is not a folder with an exported model: make one with crg encoders export."
        )
    try:
        if file.stat().st_size > _MAX_DESCRIPTION:
            raise ValueError(f"more than {_MAX_DESCRIPTION:,} bytes")
        raw = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        kind, version = raw.get("format"), raw.get("version")
        if (kind, version) != (FORMAT, VERSION) or isinstance(version, bool):
            raise InputError(
                f"{file} is of format {kind!r:.40} version {version!r:.40} but this crg reads "
                f"{FORMAT} version {VERSION}: export the model again."
            )
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
    content = json.dumps([raw["files"], *facts], sort_keys=True)
    return about, hashlib.sha256(content.encode()).hexdigest()


def _damaged(file: Path, error: Exception) -> InputError:
    reason = printable(first_line(error)).replace("`", "'")
    return InputError(f"{file} is damaged ({reason}): export the model again.")


def _check_files(folder: Path, about: About) -> None:
    """Refuse files that are missing, changed, not listed, or no files of this folder."""
    needed = {IMAGE} if about.tokenizer is None else {IMAGE, TEXT, TOKENIZER}
    found = {each.name for each in folder.iterdir()} - {DESCRIPTION}
    for name in sorted({*found, *needed, *about.files}):
        file, shown = folder / name, printable(str(folder / name))
        if Path(name).name != name or "\\" in name or file.is_symlink():
            raise InputError(
                f"{folder / DESCRIPTION} names {printable(name)!r:.80}, which is not a file of "
                "this folder: put the files themselves beside it."
            )
        if name in found and name not in about.files:
            raise InputError(
                f"{shown} is not listed in {DESCRIPTION}: remove it, or add its SHA-256 there."
            )
        if not file.is_file():
            if about.tokenizer is None and name != IMAGE:
                continue  # it belongs to the text graph, or the image graph is refused below
            raise InputError(f"{shown} is missing: export the model again.")
        if file_sha256(file) != about.files[name]:
            raise InputError(
                f"{shown} is damaged or was changed: export the model again, or "
                f"write its new SHA-256 into {DESCRIPTION} if you changed it yourself."
            )
