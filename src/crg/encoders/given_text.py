"""An image encoder with given features of the classes, so that no text encoder is needed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from crg.encoders.base import Encoder, Vectors
from crg.images.preprocessing import Pixels
from crg.types import InputError, Task


class GivenText:
    """An Encoder that knows the classes of ``classes`` by name, and no other text."""

    def __init__(self, encoder: Encoder, classes: Task, file: str) -> None:
        if classes.width != encoder.width:
            raise InputError(
                f"The text features of {file} are {classes.width} wide but images of "
                f"{encoder.name} {encoder.width}: give those of the same model."
            )
        self._encoder, self._classes, self._file = encoder, classes, file
        self.name, self.width, self.source = encoder.name, encoder.width, encoder.source
        self.preprocessing = encoder.preprocessing
        self.logit_scale, self.logit_bias = encoder.logit_scale, encoder.logit_bias
        self.device = getattr(encoder, "device", "cpu")
        self.precision = getattr(encoder, "precision", None)
        digest = hashlib.sha256(f"{encoder.fingerprint}\0".encode())
        digest.update("\0".join(classes.class_names).encode("utf-8", "surrogateescape"))
        digest.update(np.ascontiguousarray(classes.text_features).tobytes())
        self.fingerprint = digest.hexdigest()

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Unit features (B, D), by the encoder itself."""
        return self._encoder.encode_images(pixels)

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Refuse: only features of the given classes are known."""
        raise InputError(
            f"The classes come from {self._file}, which holds no text encoder: leave the text "
            "features out, or the prompts."
        )

    def class_features(self, class_names: Sequence[str]) -> Vectors:
        """Unit features (K, D) of the classes of these names."""
        known = self._classes.class_names
        for name in class_names:
            if name not in known:
                raise InputError(
                    f"{self._file} has no class {name!r}: use its names, from {known[0]!r} to "
                    f"{known[-1]!r}, or add its features."
                )
        rows = [known.index(name) for name in class_names]
        return np.asarray(self._classes.text_features, np.float32)[rows, :]
