"""Optional libraries: import one, or raise the sentence that names the extra to install."""

from __future__ import annotations

import importlib
from typing import Any

from crg.types import InputError


def library(name: str, extra: str) -> Any:
    """Import the module ``name``; where it is missing, say which extra has it.

    >>> library("json", "no").__name__
    'json'
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name or name} is not installed: {install(extra)}.") from None
    except Exception as error:  # compiled parts that do not match raise anything
        remedy = (
            "install builds of torch and torchvision that belong together"
            if "torchvision" in str(error)
            else f"{install(extra)} --force-reinstall"
        )
        raise InputError(
            f"{name} is installed but cannot be loaded ({first_line(error)}): {remedy}."
        ) from None


def install(extra: str) -> str:
    """Say how to install an extra from a clone; crg is not on PyPI."""
    return f"in the clone of crg, run python -m pip install -c constraints.txt -e '.[{extra}]'"


def first_line(error: BaseException) -> str:
    """The reason for an error, short enough to stand in brackets in a sentence."""
    lines = str(error).strip().splitlines()
    text = lines[0].split(". ")[0].strip().rstrip(".:") if lines else type(error).__name__
    return text if len(text) <= 160 else f"{text[:157]}..."
