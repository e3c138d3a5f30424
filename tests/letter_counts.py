"""An encoder of texts so simple that its features can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crg.encoders.base import Vectors
from crg.images.preprocessing import Pixels, Preprocessing


class LetterCounts:
    """A stand-in for an encoder: counts of the letters, not scaled, so that scaling shows."""

    name = "letters"
    width = 26
    preprocessing = Preprocessing(8, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    logit_scale = 50.0
    logit_bias = 0.0
    source = "made up"

    def __init__(self, fingerprint: str = "one") -> None:
        self.fingerprint = fingerprint
        self.calls: list[list[str]] = []

    def encode_images(self, pixels: Pixels) -> Vectors:
        raise NotImplementedError

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(list(texts))
        letters = "abcdefghijklmnopqrstuvwxyz"
        counts = [[text.lower().count(letter) for letter in letters] for text in texts]
        return np.asarray(counts, np.float32)
