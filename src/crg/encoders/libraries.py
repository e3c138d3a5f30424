"""Optional libraries, looked up where they are used."""

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
            f"{error.name or name} is not installed: install crg-tta[{extra}]."
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
