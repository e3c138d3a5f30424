"""Models of open_clip: published weights or a checkpoint file, on any device of torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from crg.encoders.base import Vectors
from crg.encoders.batches import check_pixels, check_texts, encode_in_pieces
from crg.encoders.building import build
from crg.encoders.devices import choose_device, choose_precision
from crg.encoders.libraries import library
from crg.encoders.openclip_prompts import OpenClipPrompts
from crg.preprocessing import Pixels

_TEXTS_AT_ONCE = 256


class OpenClip:
    """A model of open_clip as an Encoder."""

    def __init__(
        self, name: str, *, device: str | None = None, precision: str | None = None
    ) -> None:
        library("open_clip", "openclip")
        self.name = name
        self.device = choose_device(device)
        self.precision = choose_precision(precision, self.device)
        built = build(name)
        self.configuration = built.configuration
        self.tokenizer = built.tokenizer
        self.preprocessing = built.preprocessing
        self.source = built.source
        self.fingerprint = built.fingerprint()
        self.width = int(built.configuration["embed_dim"])
        self.logit_scale = float(built.model.logit_scale.detach().exp())
        self.logit_bias = _number(getattr(built.model, "logit_bias", None))
        self.model = built.model.eval().requires_grad_(False).to(self.device)

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Unit features (B, D) for pixels (B, S, S, 3)."""
        check_pixels(pixels, self.preprocessing)
        size = 64 if self.device.startswith("cpu") else 256
        return encode_in_pieces(pixels, self._image_features, size, self.width, "images")

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Unit features (n, D); words beyond the context length are cut off."""
        rows = check_texts(texts)
        return encode_in_pieces(rows, self._text_features, _TEXTS_AT_ONCE, self.width, "texts")

    def promptable(self) -> OpenClipPrompts:
        """The text half in fp32, into which context vectors can be put in place of words."""
        return OpenClipPrompts(self.name, self.model, self.tokenizer)

    def _image_features(self, pixels: Pixels) -> Vectors:
        torch = library("torch", "openclip")
        std = torch.tensor(self.preprocessing.std, device=self.device).reshape(3, 1, 1)
        mean = torch.tensor(self.preprocessing.mean, device=self.device).reshape(3, 1, 1)
        # as bytes to the device, where they become floats: a quarter of the way to carry
        bytes_there = torch.from_numpy(np.array(pixels)).to(self.device).permute(0, 3, 1, 2)
        with self._computing():
            return _on_host(self.model.encode_image(bytes_there / (255 * std) - mean / std))

    def _text_features(self, texts: list[str]) -> Vectors:
        with self._computing():
            return _on_host(self.model.encode_text(self.tokenizer(texts).to(self.device)))

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        """No gradients, and products in the lower precision where one was chosen."""
        torch = library("torch", "openclip")
        lower = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(self.precision)
        place = torch.device(self.device).type
        lowered = torch.autocast(place, dtype=lower, enabled=lower is not None)
        with torch.inference_mode(), lowered:
            yield


def _on_host(features: Any) -> Vectors:
    vectors: Vectors = features.float().cpu().numpy()
    return vectors


def _number(given: Any) -> float:
    return 0.0 if given is None else float(given.detach())
