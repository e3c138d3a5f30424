"""The tensors of a TorchScript archive, as OpenAI published its models; its code is never run.

Such an archive is a zip file: ``data.pkl`` is a pickle of modules that refers to the files in
``data/``, one for each storage. ``torch.jit.load`` would compile the code beside it. Here modules
become plain attributes, and the pickle may name nothing but modules and tensors.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crg.encoders.base import library

_MODULE = "__torch__."  # where the classes of compiled modules are
_MAX_NAMES = 100_000  # of modules and tensors; a pickle may refer to one module many times over
_STORAGES = {
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "BoolStorage": "bool",
}


def is_torchscript(file: Path) -> bool:
    """Whether the file is a TorchScript archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def read_torchscript(file: Path) -> dict[str, Any]:
    """The tensors by name, parameters and buffers alike; whatever else it holds is an error."""
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        root = next(name for name in names if name.endswith("/constants.pkl")).partition("/")[0]
        content = _Archive(archive, root, file.stat().st_size)
        model = _Tensors(content).load()
    return dict(_named(model))


class _Archive:
    """The files below one folder of a zip file, none of them larger than the zip file is."""

    def __init__(self, archive: zipfile.ZipFile, root: str, limit: int) -> None:
        self._archive, self._root, self._limit = archive, root, limit

    def read(self, name: str) -> bytearray:
        about = self._archive.getinfo(f"{self._root}/{name}")
        if about.file_size > self._limit:
            raise ValueError(f"{about.filename} is larger than the archive")
        return bytearray(self._archive.read(about))


class _Module:
    """A module of the archive: its attributes, and nothing that could be called."""

    __slots__ = ("attributes",)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.attributes = dict(state)


class _Tensors(pickle.Unpickler):
    """Reads modules and tensors; any other name in the pickle is refused before it is looked up."""

    def __init__(self, archive: _Archive) -> None:
        super().__init__(io.BytesIO(archive.read("data.pkl")))
        self._archive = archive
        self._storages: dict[str, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith(_MODULE):
            return _Module
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuilt
        if module == "torch.jit._pickle" and name.startswith("build_"):
            return list  # of plain values
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is no tensor")

    def persistent_load(self, pid: Any) -> Any:
        _, kind, key, *_ = pid
        if key not in self._storages:
            torch = library("torch", "openclip")
            values = self._archive.read(f"data/{key}")
            kind = getattr(torch, kind)
            self._storages[key] = torch.frombuffer(values, dtype=kind) if values else []
        return self._storages[key]


def _rebuilt(storage: Any, offset: int, size: Any, stride: Any, *_: Any) -> Any:
    """A part of a storage; torch refuses one that reaches beyond its end."""
    return storage.as_strided(tuple(size), tuple(stride), offset)


def _named(model: Any) -> Iterator[tuple[str, Any]]:
    """Every tensor of the modules below ``model`` with its dotted name."""
    torch = library("torch", "openclip")
    waiting: list[tuple[str, Any]] = [("", model)]
    for _ in range(_MAX_NAMES):
        if not waiting:
            return
        prefix, module = waiting.pop()
        for name, value in module.attributes.items():
            if isinstance(value, _Module):
                waiting.append((f"{prefix}{name}.", value))
            elif isinstance(value, torch.Tensor):
                yield prefix + name, value
    raise ValueError("its modules have too many names")
