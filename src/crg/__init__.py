"""Test-time adaptation for CLIP-like models: better predictions, one image at a time."""

from crg import checks, evaluate
from crg.adapter import Adapter, create, load
from crg.classifier import Answer, Classifier
from crg.features.files import Features, read_features, write_features
from crg.methods.base import Method
from crg.methods.options import option
from crg.methods.registry import get_method, list_methods, register
from crg.types import Diagnostics, InputError, Prediction, Sample, Task

__version__ = "0.1.0"

__all__ = [
    "Adapter",
    "Answer",
    "Classifier",
    "Diagnostics",
    "Features",
    "InputError",
    "Method",
    "Prediction",
    "Sample",
    "Task",
    "checks",
    "create",
    "evaluate",
    "get_method",
    "list_methods",
    "load",
    "option",
    "read_features",
    "register",
    "write_features",
]
