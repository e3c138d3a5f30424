"""A folder with an image and a text model for ONNX Runtime, as ``crg export`` writes it.

``encoder.json`` describes the rest: preprocessing, logit scale and bias, width, context length,
tokenizer, and the checksums of ``image.onnx`` and ``text.onnx``. torch is not needed. Without
``text.onnx`` and tokenizer it is a model of images only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crg.encoders.base import (
    Vectors,
    check_pixels,
    check_texts,
    encode_in_pieces,
    first_line,
    library,
)
from crg.encoders.onnx_folder import DESCRIPTION, IMAGE, TEXT, About, damaged, read_description
from crg.encoders.tokenizer import Tokenize, Words, read_tokenizer
from crg.images.preprocessing import Pixels
from crg.types import InputError, printable

TEST_SENTENCES = ("a photo of 2 red cats.", "a satellite image of an airport")
_MOST_ERROR = 0.25  # of test features, as a fraction of the distance between the two
_ROWS_AT_ONCE = {"cpu": 2, "cuda": 64}  # fixed, because the batch decides how products are rounded
_TEXTS_AT_ONCE = 64


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
        about, self.fingerprint = read_description(place)
        self.name = f"onnx:{folder}"
        self.source = f"{place}, exported from {about.model}"
        self.preprocessing = about.prepared()
        self.width = about.width
        self.logit_scale, self.logit_bias = about.logit_scale, about.logit_bias
        self._rows_at_once = _ROWS_AT_ONCE["cpu" if len(providers) == 1 else "cuda"]
        self._image = _Graph(runtime, place / IMAGE, providers, self.width)
        self._text: _Graph | None = None
        self._tokenize: Tokenize | None = None
        self.context_length = about.context_length or 0
        if about.tokenizer is not None:
            self._text = _Graph(runtime, place / TEXT, providers, self.width)
            self._tokenize = _tokenizer(about.tokenizer, place)
        self._check_reference(about, place)

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Unit features (B, D) for pixels (B, S, S, 3)."""
        check_pixels(pixels, self.preprocessing)
        run = lambda rows: self._image(self.preprocessing.normalised(rows))  # noqa: E731
        return encode_in_pieces(pixels, run, self._rows_at_once, self.width, "images")

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Unit features (n, D); words beyond the context length are cut off."""
        if self._text is None or self._tokenize is None:
            raise InputError(
                f"{self.name} has no {TEXT}: give the text features of the classes in a file "
                "(--text-features), or export the model again."
            )
        tokens = self._tokenize(check_texts(texts), self.context_length)
        return encode_in_pieces(tokens, self._text, _TEXTS_AT_ONCE, self.width, "texts")

    def _check_reference(self, about: About, place: Path) -> None:
        """Run both models once, and refuse features unlike those of the model exported."""
        expected = about.reference
        images = self.encode_images(reference_pixels(self.preprocessing.size))
        _check_similar(place / IMAGE, images, None if expected is None else expected.images)
        if self._text is not None:
            texts = self.encode_texts(TEST_SENTENCES)
            _check_similar(place / TEXT, texts, None if expected is None else expected.texts)


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
    """Refuse features that err by much of what lies between the two test inputs."""
    if stored is None:
        return
    widths = {len(row) for row in stored}
    if widths != {features.shape[1]}:
        raise InputError(
            f"The reference features of {graph} are {max(widths)} wide, not {features.shape[1]}: "
            "export the model again."
        )
    expected = np.array(stored, np.float32)
    error = float(np.linalg.norm(features - expected, axis=1).max())
    apart = float(np.linalg.norm(expected[0] - expected[1]))
    if not error <= _MOST_ERROR * apart:
        raise InputError(
            f"The features of {graph} differ from those of the model that was exported (by "
            f"{error:.3f}, where two test inputs are {apart:.3f} apart): 8-bit weights overflow on "
            "some processors, so use fp32, or quantise to unsigned weights (QUInt8)."
        )


def _tokenizer(words: Words, place: Path) -> Tokenize:
    try:
        return read_tokenizer(words, place)
    except InputError:
        raise
    except Exception as error:  # tokenizers raises plain exceptions
        raise damaged(place / DESCRIPTION, error) from None


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
        except Exception as error:  # the runtime has a kind of its own for each reason
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
