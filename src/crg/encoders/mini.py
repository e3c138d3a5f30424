"""The bundled model: small, trained on rendered shapes, and run by NumPy alone.

It knows objects of many shapes, colours and textures by name and nothing else of the world;
``tools/train_mini.py`` trained it and ``docs/mini.md`` says how well it does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from crg.encoders.base import Vectors
from crg.encoders.mini_net import Lexicon, Mask, Numbers, image_features, text_features
from crg.encoders.mini_prompts import MiniPrompts
from crg.images.preprocessing import Pixels, Preprocessing
from crg.threads import one_blas_thread
from crg.types import InputError

WEIGHTS = Path(__file__).with_name("mini.safetensors")
FORMAT = 1
_SENTENCES = 256  # at a time


class Mini:
    """The Encoder protocol on the bundled weights, or on others of the same make."""

    name = "mini"
    logit_bias = 0.0

    def __init__(self, path: Path | None = None) -> None:
        """Read the weights; a missing or damaged file is reported in one sentence."""
        source = WEIGHTS if path is None else Path(path)
        raw = _read(source)
        self.fingerprint: str = hashlib.sha256(raw).hexdigest()
        self.source: str = "bundled with crg" if path is None else str(source)
        self.facts, weights = _parsed(source, raw)
        self._weights = {name: array.astype(np.float32) for name, array in weights.items()}
        self._lexicon = _lexicon(self.facts, self._weights)
        self.width = int(self.facts["width"])
        self.logit_scale = float(self.facts["logit_scale"])
        self.preprocessing = Preprocessing(
            size=int(self.facts["size"]),
            mean=tuple(self.facts["mean"]),
            std=tuple(self.facts["std"]),
        )

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Features (B, D) of unit length for pixels (B, S, S, 3)."""
        if len(pixels) == 0:
            return np.zeros((0, self.width), np.float32)
        side = self.preprocessing.size
        if pixels.ndim != 4 or pixels.shape[1:] != (side, side, 3):
            raise InputError(
                f"The pixels have shape {pixels.shape}: give (B, {side}, {side}, 3) to mini."
            )
        with one_blas_thread():
            return image_features(
                pixels, self.preprocessing, self._weights, int(self.facts["stages"])
            )

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Features (n, D) of unit length, one sentence each."""
        with one_blas_thread():
            parts = [
                self.encode_tokens(*self.embed_texts(texts[start : start + _SENTENCES]))
                for start in range(0, len(texts), _SENTENCES)
            ]
        return np.concatenate([np.zeros((0, self.width), np.float32), *parts])

    def embed_texts(self, texts: Sequence[str]) -> tuple[Numbers, Mask]:
        """Token embeddings (n, T, W) and a mask (n, T): the first half of ``encode_texts``."""
        return self._lexicon.embed(texts)

    def encode_tokens(self, tokens: Numbers, mask: Mask) -> Vectors:
        """Features of token embeddings: the second half, for learnt tokens in their midst."""
        layers, heads = int(self.facts["layers"]), int(self.facts["heads"])
        return text_features(tokens, mask, self._weights, layers, heads)

    def promptable(self) -> MiniPrompts:
        """The text half in torch, into which context vectors can be put in place of words."""
        layers, heads = int(self.facts["layers"]), int(self.facts["heads"])
        return MiniPrompts(self.name, self._lexicon, self._weights, layers, heads)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"The weights of mini cannot be read from {path} ({error.strerror}): "
            "install crg-tta again or run tools/train_mini.py."
        ) from None


def _parsed(path: Path, raw: bytes) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    try:
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + length])
        facts = json.loads(header["__metadata__"]["mini"])
        weights = load(raw)
        _check(facts, weights)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path} does not hold the weights of mini ({reason}): "
            "install crg-tta again or run tools/train_mini.py."
        ) from None
    return facts, weights


def _check(facts: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
    if facts["format"] != FORMAT:
        raise ValueError(f"format {facts['format']} in place of {FORMAT}")
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + np.ascontiguousarray(weights[name]).tobytes())
    if digest.hexdigest() != facts["sha256"]:
        raise ValueError("its checksum does not fit")


def _lexicon(facts: Mapping[str, Any], weights: dict[str, Numbers]) -> Lexicon:
    known = {word: row for row, word in enumerate(facts["words"])}
    return Lexicon(known, weights.pop("words"), weights.pop("buckets"))
