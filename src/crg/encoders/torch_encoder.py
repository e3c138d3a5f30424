"""What encoders on torch share: device and precision, bytes in, unit features out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import numpy as np

from crg.encoders.base import Vectors, check_pixels, check_texts, encode_in_pieces
from crg.extras import first_line, library
from crg.images.preprocessing import Pixels, Preprocessing
from crg.types import InputError

PRECISIONS = ("fp32", "fp16", "bf16")
_ON_GPU = 256  # images at once; a processor takes one, so that features never depend on a batch
_TEXTS_AT_ONCE = 256


class TorchEncoder:
    """An Encoder on torch; a subclass loads the model and gives features as tensors."""

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

    def use(self, model: Any, configuration: dict[str, Any]) -> None:
        """Freeze ``model`` on the device; take its scale, and hash all that decides it."""
        self.logit_scale = float(model.logit_scale.detach().exp())
        digest = hashlib.sha256(json.dumps(configuration, sort_keys=True, default=str).encode())
        for name, tensor in sorted(model.state_dict().items()):
            digest.update(f"\0{name}\0{tuple(tensor.shape)}\0".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
        self.fingerprint = digest.hexdigest()
        self.model = model.eval().requires_grad_(False).to(self.device)

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Unit features (B, D) for pixels (B, S, S, 3)."""
        check_pixels(pixels, self.preprocessing)
        size = 1 if self.device.startswith("cpu") else _ON_GPU
        run = lambda rows: self._run(lambda: self.image_rows(self._normalised(rows)))  # noqa: E731
        return encode_in_pieces(pixels, run, size, self.width, "images")

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Unit features (n, D); words beyond the context length are cut off."""
        run = lambda rows: self._run(lambda: self.text_rows(rows))  # noqa: E731
        return encode_in_pieces(check_texts(texts), run, _TEXTS_AT_ONCE, self.width, "texts")

    def _normalised(self, pixels: Pixels) -> Any:
        torch = library("torch", "openclip")
        std = torch.tensor(self.preprocessing.std, device=self.device).reshape(3, 1, 1)
        mean = torch.tensor(self.preprocessing.mean, device=self.device).reshape(3, 1, 1)
        # copied to the device as bytes, a quarter of the size of floats
        copied = torch.from_numpy(np.array(pixels)).to(self.device).permute(0, 3, 1, 2)
        return copied / (255 * std) - mean / std

    def _run(self, compute: Callable[[], Any]) -> Vectors:
        """Compute without gradients, with products in the lower precision if one was chosen."""
        torch = library("torch", "openclip")
        lower = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(self.precision)
        place = torch.device(self.device).type
        with torch.inference_mode(), torch.autocast(place, lower, enabled=lower is not None):
            features: Vectors = compute().float().cpu().numpy()
        return features


def choose_device(wanted: str | None) -> str:
    """``wanted`` if torch can use it; None stands for the fastest device."""
    torch = library("torch", "openclip")
    fastest = "mps" if torch.backends.mps.is_available() else "cpu"
    fastest = "cuda" if torch.cuda.is_available() else fastest
    try:
        torch.zeros(1, device=torch.device(wanted or fastest))
    except Exception as error:  # each backend has its own kind
        raise InputError(
            f"The device {wanted!r} cannot be used ({first_line(error)}): "
            f"use {fastest!r} or leave it out."
        ) from None
    return wanted or fastest


def choose_precision(wanted: str | None, device: str) -> str:
    """``wanted`` if it makes sense there; None stands for fp16 on CUDA and fp32 elsewhere."""
    if wanted is None:
        return "fp16" if device.startswith("cuda") else "fp32"
    if wanted not in PRECISIONS:
        raise InputError(
            f"There is no precision {wanted!r}: choose one of {', '.join(PRECISIONS)}."
        )
    if wanted == "fp16" and device.startswith("cpu"):
        raise InputError("fp16 is slow on a processor: use bf16 or fp32, or a GPU.")
    return wanted


def check_reachable(address: str) -> None:
    """Fail within seconds where there is no network; Hugging Face's hub retries for a minute."""
    try:
        urlopen(Request(address, method="HEAD"), timeout=10).close()
    except HTTPError:
        return  # the host answers
    except OSError as error:
        reason = getattr(error, "reason", error)
        host = urlsplit(address).hostname
        raise ConnectionError(f"{host}: {getattr(reason, 'strerror', None) or reason}") from None
