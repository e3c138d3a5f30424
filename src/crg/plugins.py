"""Plug-ins: a user's own method, in a file or an installed module, that registers itself.

Which files a method uses is named by people too, never by what may be a stranger's.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from traceback import walk_tb

from crg.methods.registry import registered
from crg.types import InputError

_methods_of: dict[str, list[str]] = {}  # by the name of a module that was loaded


def load_plugin(source: str) -> list[str]:
    """Import a file or module; the methods in it that are decorated with ``crg.register``."""
    before = registered()
    try:
        module = _imported(source)
    except InputError:
        raise
    except Exception as error:
        line = last_line(error, resolved(source))
        place = f"line {line}, " if line else ""
        raise InputError(
            f"Plug-in {source} failed to load ({place}{type(error).__name__}: {error}): "
            "correct it or leave it out."
        ) from error
    new = [name for name, kind in registered().items() if before.get(name) is not kind]
    own = [name for name, kind in before.items() if f"{kind.__module__}.".startswith(f"{module}.")]
    names = _methods_of.setdefault(module, new or own)
    if not names:
        del _methods_of[module]
        raise InputError(f"Plug-in {source} registers no method: decorate one with @crg.register.")
    return names


def last_line(error: BaseException, file: str) -> int:
    """The line of ``file`` that an error came from, or through, last; 0 if it did not."""
    lines = [n for frame, n in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return lines[-1] if lines else 0


def resolved(source: str) -> str:
    """The plug-in under a name that holds in any folder: worker processes use it."""
    return str(Path(source).resolve()) if _is_file(source) else source


def _is_file(source: str) -> bool:
    return source.endswith(".py") or os.sep in source


def _imported(source: str) -> str:
    """The name of the module, which is imported."""
    if os.path.isfile(source) and not source.endswith(".py"):
        raise InputError(f"{source} is no Python file: name one that ends with .py, or a module.")
    if not _is_file(source):
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # last, so that nothing installed is hidden
        return importlib.import_module(source).__name__
    path = Path(source).resolve()
    if not path.is_file():
        raise InputError(f"Plug-in {path} does not exist: give a Python file or a module name.")
    # The digest keeps two files of one name apart.
    name = f"crg_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return name
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # the name ends with .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it is imported
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return name
