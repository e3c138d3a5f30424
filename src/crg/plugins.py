"""Plug-ins: a user's own method, in a file or an installed module, that registers itself."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from crg.types import InputError

VARIABLE = "CRG_PLUGINS"


def load_plugins(sources: Iterable[str]) -> None:
    """Import each file or module; a class in it that is decorated with ``crg.register`` counts."""
    for source in sources:
        try:
            _load(source)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"Plug-in {source} failed to load ({type(error).__name__}: {error}): "
                "mend it or leave it out."
            ) from error


def plugins_from_environment() -> tuple[str, ...]:
    """The plug-ins that the variable CRG_PLUGINS names, separated as in PATH."""
    return tuple(part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part)


def resolved(source: str) -> str:
    """The plug-in under a name that holds in any folder: worker processes use it."""
    return str(Path(source).resolve()) if _is_file(source) else source


def _is_file(source: str) -> bool:
    return source.endswith(".py") or os.sep in source


def _load(source: str) -> None:
    if _is_file(source):
        _load_file(Path(source).resolve())
        return
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that nothing installed is hidden
    importlib.import_module(source)


def _load_file(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"Plug-in {path} does not exist: give a Python file or a module name.")
    # The digest keeps two files of one name apart.
    name = f"crg_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"Plug-in {path} is not a Python file: give one that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it is imported
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
