"""Optional libraries, looked up where they are used, and the device and precision of torch."""

from __future__ import annotations

import importlib
from typing import Any

from crg.types import InputError


def library(name: str, extra: str) -> Any:
    """The module ``name``; without it, one sentence that names the extra to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name or name} is not installed: run pip install -c constraints.txt '.[{extra}]' in the clone."
        ) from None
    except Exception as error:  # compiled parts that do not fit raise whatever they like
        raise InputError(
            f"{name} is installed but cannot be loaded ({first_line(error)}): "
            "install builds of torch and torchvision that belong together."
            if "torchvision" in str(error)
            else f"{name} is installed but cannot be loaded ({first_line(error)}): "
            f"install crg-tta[{extra}] anew."
        ) from None


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
