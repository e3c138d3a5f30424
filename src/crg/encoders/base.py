"""The protocol of an encoder: pixels and sentences in, unit features out, in batches.

``GivenText`` needs no text encoder, because features of the classes are given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from crg.images.preprocessing import Pixels, Preprocessing
from crg.types import InputError, Task, listed, unit_rows

Vectors: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]


class Encoder(Protocol):
    """A CLIP-like model. D is the width that images and texts share."""

    name: str  # as in `--model`; loads the same encoder again
    width: int  # D
    preprocessing: Preprocessing
    logit_scale: float  # factor of the cosines; 100 for CLIP
    fingerprint: str  # changes whenever the weights do; stores are keyed by it

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Features (B, D) of unit length for pixels (B, S, S, 3) that views.py made."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Features (n, D) of unit length, one sentence each."""
        ...


def encode_in_pieces(
    rows: Any, encode: Callable[[Any], Vectors], size: int, width: int, what: str
) -> Vectors:
    """Unit features of ``rows``, encoded at most ``size`` rows at a time."""
    pieces = [encode(rows[start : start + size]) for start in range(0, len(rows), size)]
    if not pieces:
        return np.zeros((0, width), np.float32)
    features = np.concatenate(pieces).astype(np.float32, copy=False)
    return np.asarray(unit_rows(features, what))


def check_pixels(pixels: Pixels, preprocessing: Preprocessing) -> None:
    """Refuse pixels that were not made for this model."""
    side = preprocessing.size
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1:] != (side, side, 3):
        raise InputError(
            f"The pixels have shape {pixels.shape} and type {pixels.dtype}, but this model "
            f"needs (B, {side}, {side}, 3) of type uint8: "
            "make them with crg.images.views for this model."
        )


def check_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list; refuse anything that is not valid text."""
    if isinstance(texts, str):
        raise InputError(f"The texts are one text, {texts!r}: give a list of texts.")
    for text in texts:
        try:
            text.encode()
        except (AttributeError, UnicodeEncodeError):
            raise InputError(f"{text!r} is not valid text: write it in Unicode.") from None
    return list(texts)


def name_key(name: str) -> str:
    """The same text for all spellings of a class name.

    >>> name_key("Sea_Lion") == name_key("sea lion")
    True
    """
    return "".join(name.replace("_", " ").split()).casefold()


class GivenText:
    """An Encoder that knows the classes of ``classes`` by name, and no other text.

    Names match whatever their case, underscores and spaces; the very same name comes first.
    """

    def __init__(self, encoder: Encoder, classes: Task, file: str) -> None:
        if classes.width != encoder.width:
            raise InputError(
                f"The text features of {file} are {classes.width} wide but images of "
                f"{encoder.name} {encoder.width}: give those of the same model."
            )
        self.images, self._classes, self._file = encoder, classes, file
        self.name, self.width, self.logit_scale = encoder.name, encoder.width, encoder.logit_scale
        self.preprocessing = encoder.preprocessing
        self.device = getattr(encoder, "device", "cpu")
        self.precision = getattr(encoder, "precision", None)
        digest = hashlib.sha256(f"{encoder.fingerprint}\0".encode())
        digest.update("\0".join(classes.class_names).encode("utf-8", "surrogateescape"))
        digest.update(np.ascontiguousarray(classes.text_features).tobytes())
        self.fingerprint = digest.hexdigest()

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Unit features (B, D), by the encoder itself."""
        return self.images.encode_images(pixels)

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Refuse: only features of the given classes are known."""
        raise InputError(
            f"The classes come from {self._file}, which holds no text encoder: leave the text "
            "features out, or the prompts."
        )

    def class_features(self, class_names: Sequence[str]) -> Vectors:
        """Unit features (K, D) of the classes of these names."""
        rows = [self._row_of(name) for name in class_names]
        return np.asarray(self._classes.text_features, np.float32)[rows, :]

    def _row_of(self, name: str) -> int:
        known = self._classes.class_names
        same = [each for each in known if name_key(each) == name_key(name)]
        same = [name] if name in known else same
        if len(same) == 1:
            return known.index(same[0])
        if same:
            raise InputError(f"{self._file} has {listed(same)}: write {name!r} as one of them.")
        raise InputError(
            f"{self._file} has no class {name!r}: use its names, from {known[0]!r} to "
            f"{known[-1]!r}, or add its features."
        )
