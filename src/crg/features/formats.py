"""The two file formats that hold named arrays: ``.npz`` and ``.safetensors``.

The values are raw: arrays, strings and numbers by name, not yet checked against each other.
Nothing is ever unpickled, so a file from a stranger cannot run code.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from crg.atomic import replacing
from crg.extras import first_line
from crg.types import InputError, limit, parsed_json

Raw = dict[str, Any]
MAX_BYTES = limit("CRG_MAX_FEATURES", 8_000_000_000)  # of compressed members, decompressed


def read_raw(path: Path, wanted: Iterable[str]) -> Raw:
    """The values stored under the ``wanted`` names, and ``None`` for every other name."""
    reader: Callable[..., Raw] = _by_suffix(path, _READERS)
    try:
        if not path.stat().st_size:
            raise InputError(f"{path} is empty: write it again or restore it from a copy.")
        return reader(path, frozenset(wanted))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: check the path.") from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}): give a feature file that may be read."
        ) from None
    except MemoryError:
        raise InputError(
            f"{path} holds an array that does not fit into memory: "
            "split the file or store float16 values."
        ) from None


def write_raw(path: Path, values: Mapping[str, Any]) -> None:
    """Write arrays, tuples of strings and numbers to one file, at once or not at all."""
    writer = _by_suffix(path, _WRITERS)
    with replacing(path) as partial:
        writer(partial, values)


def _by_suffix(path: Path, table: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    try:
        return table[path.suffix.lower()]
    except KeyError:
        raise InputError(
            f"{path} is not a feature file by its name: give one that ends in .npz or .safetensors."
        ) from None


def _read_npz(path: Path, wanted: frozenset[str]) -> Raw:
    with path.open("rb") as file:  # NumPy would leave a damaged file open
        if file.read(2) != b"PK":
            raise InputError(f"{path} is not an .npz archive: write it with numpy.savez.")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                members = archive.zip.infolist()
                packed = [each for each in members if each.compress_type != zipfile.ZIP_STORED]
                if sum(each.file_size for each in packed) > MAX_BYTES:
                    raise InputError(
                        f"{path} holds more than {MAX_BYTES:,} bytes of compressed numbers: "
                        "store them without compression or set CRG_MAX_FEATURES."
                    )
                return {
                    key: _npz_member(path, archive, key) if key in wanted else None
                    for key in archive.files
                }
        except (InputError, MemoryError):
            raise
        except Exception as error:  # NumPy reads the start of an array as Python text
            raise _damaged(path, error) from None


def _npz_member(path: Path, archive: Any, key: str) -> Any:
    try:
        return archive[key]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
    are_names = key in ("class_names", "ids", "text_kind", "model")
    remedy = "strings (numpy.array(names, dtype=str))" if are_names else "numbers"
    raise InputError(
        f"{path} holds {key!r} as pickled Python objects, which are never loaded: "
        f"store them as {remedy}."
    )


def _read_safetensors(path: Path, wanted: frozenset[str]) -> Raw:
    try:
        with safe_open(path, framework="np") as file:
            texts, keys = file.metadata() or {}, file.keys()
            values = {key: _metadata(path, key, texts[key]) for key in wanted if key in texts}
            values |= {key: file.get_tensor(key) for key in wanted if key in keys}
            return dict.fromkeys([*texts, *keys]) | values
    except (SafetensorError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from None
    except (TypeError, AttributeError) as error:  # NumPy has no bfloat16
        raise InputError(
            f"{path} holds a kind of number that NumPy lacks ({first_line(error)}): "
            "store float16 or float32 values."
        ) from None


def _metadata(path: Path, key: str, text: str) -> Any:
    try:
        return parsed_json(text)
    except ValueError:
        raise InputError(
            f"{path} holds {key!r} in its metadata, but not as JSON: store json.dumps of the value."
        ) from None


def _write_npz(path: Path, values: Mapping[str, Any]) -> None:
    with path.open("wb") as file:  # a path would get another suffix
        arrays: dict[str, Any] = {key: np.asarray(value) for key, value in values.items()}
        np.savez(file, **arrays)


def _write_safetensors(path: Path, values: Mapping[str, Any]) -> None:
    tensors = {
        key: np.ascontiguousarray(value)
        for key, value in values.items()
        if isinstance(value, np.ndarray)
    }
    texts = {key: json.dumps(value) for key, value in values.items() if key not in tensors}
    path.write_bytes(to_safetensors(tensors, texts))


def _damaged(path: Path, error: BaseException) -> InputError:
    return InputError(
        f"{path} is truncated or damaged ({first_line(error)}): "
        "write it again or restore it from a copy."
    )


_READERS = {".npz": _read_npz, ".safetensors": _read_safetensors}
_WRITERS = {".npz": _write_npz, ".safetensors": _write_safetensors}
