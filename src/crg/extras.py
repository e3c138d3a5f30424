"""Optional libraries: import one, or raise the sentence that names the extra to install."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from crg.types import InputError

_USE_TORCHVISION = ("open_clip", "transformers")


def library(name: str, extra: str) -> Any:
    """Import the module ``name``; where it is missing, say which extra has it.

    >>> library("json", "no").__name__
    'json'
    """
    if name.partition(".")[0] in _USE_TORCHVISION:
        _declare_operators()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name or name} is not installed: {install(extra)}.") from None
    except Exception as error:  # compiled parts that do not match raise anything
        raise InputError(
            f"{name} is installed but cannot be loaded ({first_line(error)}): {install(extra)} "
            "--force-reinstall."
        ) from None


@functools.cache
def _declare_operators() -> Any:
    """Declare what a torchvision for CUDA cannot load beside a torch without; nothing calls it.

    Else torchvision cannot be imported. The result keeps the declarations alive.
    """
    try:
        return importlib.import_module("torchvision")
    except Exception as error:  # if it is another one, the library that is imported next meets it
        if "operator torchvision::" not in str(error):
            return None
    names = importlib.import_module("torch.library").Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        names.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return names


def install(extra: str) -> str:
    """Say how to install an extra from a clone; crg is not on PyPI."""
    return f"in the clone of crg, run python -m pip install -c constraints.txt -e '.[{extra}]'"


def first_line(error: BaseException) -> str:
    """The reason for an error, short enough to stand in brackets in a sentence."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    text = lines[0].split(". ")[0].strip().rstrip(".:") if lines else type(error).__name__
    return text if len(text) <= 160 else f"{text[:157]}..."
