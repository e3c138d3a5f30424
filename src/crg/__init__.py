"""Test-time adaptation for CLIP-like models: better predictions, one picture at a time."""

from crg.adapter import Adapter, create, load
from crg.methods.base import Method
from crg.methods.options import option
from crg.methods.registry import get_method, list_methods, register
from crg.types import Diagnostics, InputError, Prediction, Sample, Task

__version__ = "0.1.0"

__all__ = [
    "Adapter",
    "Diagnostics",
    "InputError",
    "Method",
    "Prediction",
    "Sample",
    "Task",
    "create",
    "get_method",
    "list_methods",
    "load",
    "option",
    "register",
]
