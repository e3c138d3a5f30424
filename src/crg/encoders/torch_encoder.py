"""What encoders on torch share: device and precision, bytes in, unit features back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from crg.encoders.base import (
    Vectors,
    check_pixels,
    check_texts,
    choose_device,
    choose_precision,
    encode_in_pieces,
    library,
)
from crg.images.preprocessing import Pixels, Preprocessing

_TEXTS_AT_ONCE = 256


class TorchEncoder:
    """An Encoder whose two halves are functions of tensors."""

    preprocessing: Preprocessing
    width: int

    def __init__(self, device: str | None, precision: str | None) -> None:
        self.device = choose_device(device)
        self.precision = choose_precision(precision, self.device)

    def image_rows(self, images: Any) -> Any:
        """Features (B, D) of normalised images (B, 3, S, S)."""
        raise NotImplementedError

    def text_rows(self, texts: list[str]) -> Any:
        """Features (n, D) of texts."""
        raise NotImplementedError

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Unit features (B, D) for pixels (B, S, S, 3)."""
        check_pixels(pixels, self.preprocessing)
        size = 64 if self.device.startswith("cpu") else 256
        return encode_in_pieces(pixels, self._image_features, size, self.width, "images")

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Unit features (n, D); words beyond the context length are cut off."""
        rows = check_texts(texts)
        return encode_in_pieces(rows, self._text_features, _TEXTS_AT_ONCE, self.width, "texts")

    def _image_features(self, pixels: Pixels) -> Vectors:
        torch = library("torch", "openclip")
        std = torch.tensor(self.preprocessing.std, device=self.device).reshape(3, 1, 1)
        mean = torch.tensor(self.preprocessing.mean, device=self.device).reshape(3, 1, 1)
        # as bytes to the device, where they become floats: a quarter of the way to carry
        bytes_there = torch.from_numpy(np.array(pixels)).to(self.device).permute(0, 3, 1, 2)
        with self._computing():
            return _on_host(self.image_rows(bytes_there / (255 * std) - mean / std))

    def _text_features(self, texts: list[str]) -> Vectors:
        with self._computing():
            return _on_host(self.text_rows(texts))

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
