"""Methods by name: every module of this package, installed plug-ins, and your own.

A built-in method is a module here that registers a class when it is imported. From
outside, decorate a class with ``@crg.register``, or announce the module that does so as
an entry point of the group ``crg.methods``.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, TypeVar

import crg.methods as package
from crg.methods.base import Method as Method
from crg.methods.options import build_config
from crg.methods.options import option as option
from crg.presets import with_preset
from crg.suggest import nearest
from crg.types import InputError

M = TypeVar("M", bound=type[Method])

BASELINE = "zero_shot"  # what every method is compared with
DEFAULT = "anchored"  # the method of people who name none

_methods: dict[str, type[Method]] = {}


def register(method: M) -> M:
    """Class decorator: make a method known under its ``name``; its docstring gets its options."""
    for attribute in ("name", "paper", "Config"):
        if not hasattr(method, attribute):
            raise InputError(
                f"{method.__name__} cannot be registered because it has no {attribute!r}: "
                "every method states its name, paper and Config."
            )
    if not method.__module__.startswith(package.__name__ + "."):
        _discover()  # built-in names are taken first
    taken = _methods.get(method.name)
    if taken is not None and taken.__qualname__ != method.__qualname__:
        raise InputError(
            f"{method.__module__}.{method.__qualname__} cannot be called {method.name!r}, the name "
            f"of {taken.__module__}.{taken.__qualname__}: choose another name."
        )
    _methods[method.name] = method
    options = [f"{f.name}\n    {f.metadata['help']} (default {f.default})"
               for f in dataclasses.fields(method.Config) if "help" in f.metadata]  # fmt: skip
    if options:
        about = inspect.cleandoc(method.__doc__ or "")
        method.__doc__ = "\n".join([about, "", "Parameters", "----------", *options])
    return method


def get_method(name: str) -> type[Method]:
    """The class registered under ``name``."""
    if not isinstance(name, str):
        raise InputError(f"There is no method {name!r}: give the name of one.")
    own = f"{package.__name__}.{name}"
    if name not in _methods and name.isidentifier() and find_spec(own) is not None:
        importlib.import_module(own)  # the other methods are not needed for it
    if name not in _methods:
        _discover()
    if name not in _methods:
        raise InputError(f"There is no method {name!r}: {nearest(name, _methods)}")
    return _methods[name]


def list_methods() -> list[str]:
    """Names of all known methods, sorted."""
    return sorted(registered())


def registered() -> dict[str, type[Method]]:
    """All known methods by name, as they are now."""
    _discover()
    return dict(_methods)


@cache
def _discover() -> None:
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    for plug_in in entry_points(group="crg.methods"):
        plug_in.load()


def typed_options(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options, checked and in the types that the method declares."""
    config = build_config(method, get_method(method).Config, given)
    return {name: getattr(config, name) for name in with_preset(method, given)}


def whole_config(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every option, defaults included."""
    return dataclasses.asdict(build_config(method, get_method(method).Config, options))
