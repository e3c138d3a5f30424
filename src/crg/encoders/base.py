"""The protocol of an encoder: pixels and sentences in, unit features out, in batches.

Here too are what encoders share: optional libraries, and the device and precision of torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from crg.images.preprocessing import Pixels, Preprocessing
from crg.types import InputError, unit_rows

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


def encode_in_pieces(
    rows: Any, encode: Callable[[Any], Vectors], size: int, width: int, what: str
) -> Vectors:
    """Unit features of ``rows``, at most ``size`` rows at a time."""
    pieces = [encode(rows[start : start + size]) for start in range(0, len(rows), size)]
    if not pieces:
        return np.zeros((0, width), np.float32)
    features = np.concatenate(pieces).astype(np.float32, copy=False)
    return np.asarray(unit_rows(features, what))


def check_pixels(pixels: Pixels, preprocessing: Preprocessing) -> None:
    """Refuse what was not made for this model."""
    side = preprocessing.size
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1:] != (side, side, 3):
        raise InputError(
            f"The pixels have shape {pixels.shape} and type {pixels.dtype}, but this model "
            f"needs (B, {side}, {side}, 3) of type uint8: "
            "make them with crg.images.views for this model."
        )


def check_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list; one that is no text is refused."""
    if isinstance(texts, str):
        raise InputError(f"The texts are one text, {texts!r}: give a list of texts.")
    for text in texts:
        try:
            text.encode()
        except (AttributeError, UnicodeEncodeError):
            raise InputError(f"{text!r} is not valid text: write it in Unicode.") from None
    return list(texts)


def library(name: str, extra: str) -> Any:
    """The module ``name``; without it, one sentence that names the extra to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name or name} is not installed: in the clone of crg, run {install(extra)}."
        ) from None
    except Exception as error:  # compiled parts that do not fit raise whatever they like
        raise InputError(
            f"{name} is installed but cannot be loaded ({first_line(error)}): "
            "install builds of torch and torchvision that belong together."
            if "torchvision" in str(error)
            else f"{name} is installed but cannot be loaded ({first_line(error)}): "
            f"in the clone of crg, run {install(extra)} --force-reinstall."
        ) from None


def install(extra: str) -> str:
    """The command that installs an extra, in a clone: no package index has the distribution."""
    return f"python -m pip install -c constraints.txt '.[{extra}]'"


def first_line(error: BaseException) -> str:
    """What went wrong, short enough to stand in brackets in a sentence."""
    lines = str(error).strip().splitlines()
    text = lines[0].split(". ")[0].strip().rstrip(".:") if lines else type(error).__name__
    return text if len(text) <= 160 else f"{text[:157]}..."


PRECISIONS = ("fp32", "fp16", "bf16")


def choose_device(wanted: str | None) -> str:
    """``wanted`` if torch can use it; without a wish the fastest there is."""
    torch = library("torch", "openclip")
    if wanted is None:
        return _fastest(torch)
    try:
        torch.zeros(1, device=torch.device(wanted))
    except Exception as error:  # each backend has its own kind
        raise InputError(
            f"The device {wanted!r} cannot be used ({first_line(error)}): "
            f"use {_fastest(torch)!r} or leave it out."
        ) from None
    return wanted


def choose_precision(wanted: str | None, device: str) -> str:
    """``wanted`` if it makes sense there; else fp16 on CUDA and fp32 elsewhere."""
    if wanted is None:
        return "fp16" if device.startswith("cuda") else "fp32"
    if wanted not in PRECISIONS:
        raise InputError(
            f"There is no precision {wanted!r}: choose one of {', '.join(PRECISIONS)}."
        )
    if wanted == "fp16" and device.startswith("cpu"):
        raise InputError("fp16 is slow on a processor: use bf16 or fp32, or a GPU.")
    return wanted


def _fastest(torch: Any) -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
