"""The protocol of an encoder: pixels and sentences in, unit features out, in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from crg.images.preprocessing import Pixels, Preprocessing
from crg.types import InputError, unit_rows

Vectors: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]


class Encoder(Protocol):
    """A CLIP-like model. D is the width that images and texts share."""

    name: str  # as in `--model`; loads the same encoder again
    width: int  # D
    preprocessing: Preprocessing
    logit_scale: float  # factor of the cosines; 100 for CLIP
    logit_bias: float  # added to every logit: SigLIP's, else 0
    fingerprint: str  # changes whenever the weights do; stores are keyed by it
    source: str  # where the weights came from, for people

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
