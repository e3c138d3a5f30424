"""Test-time adaptation for CLIP-like models: better predictions, one image at a time."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crg import checks, evaluate
    from crg.adapter import Adapter, create, load
    from crg.answer import Answer
    from crg.classifier import Classifier
    from crg.features.files import Features, read_features, write_features
    from crg.methods.base import Method
    from crg.methods.options import option
    from crg.methods.registry import get_method, list_methods, register
    from crg.predict.pipeline import pipeline
    from crg.types import Diagnostics, InputError, Prediction, Sample, Task

__version__ = "0.1.0"

__all__ = ["Adapter", "Answer", "Classifier", "Diagnostics", "Features", "InputError", "Method"]
__all__ += ["Prediction", "Sample", "Task", "checks", "create", "evaluate", "get_method"]
__all__ += ["list_methods", "load", "option", "pipeline", "read_features", "register",
            "write_features"]  # fmt: skip

# Where each name is defined; it is imported when it is first asked for.
_HOMES = {
    "adapter": ("Adapter", "create", "load"),
    "answer": ("Answer",),
    "classifier": ("Classifier",),
    "features.files": ("Features", "read_features", "write_features"),
    "methods.base": ("Method",),
    "methods.options": ("option",),
    "methods.registry": ("get_method", "list_methods", "register"),
    "predict.pipeline": ("pipeline",),
    "types": ("Diagnostics", "InputError", "Prediction", "Sample", "Task"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("checks", "evaluate")


if not TYPE_CHECKING:  # which would take every name for one of ours

    def __getattr__(name: str) -> Any:
        """Import what is asked for the first time; afterwards it is an ordinary attribute."""
        if name in _MODULES:
            return importlib.import_module(f"crg.{name}")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'crg' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"crg.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Every public name, imported or not."""
    return [*__all__, "__version__"]
