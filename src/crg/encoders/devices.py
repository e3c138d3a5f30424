"""Where torch computes and how precisely."""

from __future__ import annotations

from typing import Any

from crg.encoders.libraries import first_line, library
from crg.types import InputError

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
