"""A folder with an image and a text model for ONNX Runtime, as ``crg export`` writes it.

``encoder.json`` describes the rest: preprocessing, logit scale and bias, width, context length,
tokenizer, and the checksums of ``image.onnx`` and ``text.onnx``. torch is not needed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crg.atomic import file_sha256
from crg.encoders.base import (
    Vectors,
    check_pixels,
    check_texts,
    encode_in_pieces,
    first_line,
    library,
)
from crg.encoders.tokenizer import Tokenize, read_tokenizer
from crg.images.preprocessing import Pixels, Preprocessing
from crg.types import InputError

FORMAT = "crg-onnx"
VERSION = 1
DESCRIPTION = "encoder.json"
GRAPHS = ("image.onnx", "text.onnx")
_ROWS_AT_ONCE = 64


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
        about = _description(place)
        self.name = f"onnx:{folder}"
        self.source = f"{place}, exported from {about.get('model', 'a model')}"
        self.fingerprint = _verified_fingerprint(place, about)
        try:
            self._describe(about)
            self._tokenize: Tokenize = read_tokenizer(about["tokenizer"], place)
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise InputError(_damaged(place / DESCRIPTION, error)) from None
        self._image = _session(runtime, place / "image.onnx", providers)
        self._text = _session(runtime, place / "text.onnx", providers)

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Unit features (B, D) for pixels (B, S, S, 3)."""
        check_pixels(pixels, self.preprocessing)
        run = lambda rows: _run(self._image, self.preprocessing.normalised(rows))  # noqa: E731
        return encode_in_pieces(pixels, run, _ROWS_AT_ONCE, self.width, "images")

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Unit features (n, D); words beyond the context length are cut off."""
        tokens = self._tokenize(check_texts(texts), self.context_length)
        run = lambda rows: _run(self._text, rows)  # noqa: E731
        return encode_in_pieces(tokens, run, _ROWS_AT_ONCE, self.width, "texts")

    def _describe(self, about: Mapping[str, Any]) -> None:
        images = dict(about["preprocessing"])
        for key in ("mean", "std"):
            red, green, blue = (float(value) for value in images[key])
            images[key] = red, green, blue
        self.preprocessing = Preprocessing(**images)
        self.width = int(about["width"])
        self.context_length = int(about["context_length"])
        self.logit_scale = float(about["logit_scale"])
        self.logit_bias = float(about["logit_bias"])


def _description(folder: Path) -> dict[str, Any]:
    file = folder / DESCRIPTION
    if not file.is_file():
        raise InputError(
            f"{folder} is not a folder with an exported model: make one with crg export."
        )
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        kind, version = about["format"], about["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(_damaged(file, error)) from None
    if (kind, version) != (FORMAT, VERSION):
        raise InputError(
            f"{file} is of format {kind} version {version} but this crg reads {FORMAT} version "
            f"{VERSION}: export the model again."
        )
    return dict(about)


def _verified_fingerprint(folder: Path, about: Mapping[str, Any]) -> str:
    """A hash of all that decides the features; a file with another checksum is refused."""
    try:
        expected = dict(about["files"])
        facts = [about[key] for key in ("preprocessing", "tokenizer", "context_length")]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(_damaged(folder / DESCRIPTION, error)) from None
    for name in sorted({*GRAPHS, *expected}):
        file = folder / name
        if not file.is_file():
            raise InputError(f"{file} is missing: export the model again.")
        if file_sha256(file) != expected.get(name):
            raise InputError(f"{file} is damaged: export the model again.")
    return hashlib.sha256(json.dumps([expected, *facts], sort_keys=True).encode()).hexdigest()


def _providers(runtime: Any, device: str | None) -> list[str]:
    cuda = "CUDAExecutionProvider" in runtime.get_available_providers()
    if device not in (None, "cpu", "cuda") or (device == "cuda" and not cuda):
        raise InputError(
            f"ONNX Runtime cannot use the device {device!r} here: use 'cpu'"
            f"{'' if cuda else ' or install onnxruntime-gpu for cuda'}."
        )
    on_gpu = ["CUDAExecutionProvider"] if cuda and device != "cpu" else []
    return [*on_gpu, "CPUExecutionProvider"]


def _session(runtime: Any, file: Path, providers: list[str]) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)  # 0: all there are
    options.log_severity_level = 3  # errors only: the library never prints
    try:
        return runtime.InferenceSession(str(file), options, providers=providers)
    except Exception as error:  # the runtime has a kind of its own for each reason
        raise InputError(
            f"{file} cannot be loaded ({first_line(error)}): export the model again."
        ) from None


def _run(session: Any, rows: Any) -> Vectors:
    features: Vectors = session.run(None, {session.get_inputs()[0].name: rows})[0]
    return features


def _damaged(file: Path, error: Exception) -> str:
    missing = f"{error} is missing" if isinstance(error, KeyError) else first_line(error)
    return f"{file} is damaged ({missing}): export the model again."
