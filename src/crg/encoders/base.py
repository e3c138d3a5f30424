"""The protocol of an encoder: pixels and sentences in, unit features out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from crg.preprocessing import Pixels, Preprocessing

Vectors: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]


class Encoder(Protocol):
    """A CLIP-like model. D is the width that images and texts share."""

    name: str  # what `--model` was given, so that the same encoder can be had again
    width: int  # D
    preprocessing: Preprocessing
    logit_scale: float  # what cosines are multiplied by; 100 for CLIP
    logit_bias: float  # what is added then: SigLIP's, else 0; the same for all classes
    fingerprint: str  # changes whenever the weights do; stores are keyed by it
    source: str  # where the weights came from, for people

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Features (B, D) of unit length for pixels (B, S, S, 3) that views.py made."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Features (n, D) of unit length, one sentence each."""
        ...
