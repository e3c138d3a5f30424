"""A learnt context as a file of its own: the vectors, and what they belong to."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from crg.saving import replacing
from crg.types import InputError

FORMAT = "crg-context"
VERSION = 1

Numbers: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Context:
    """Context vectors of width E, shared by all classes or per class."""

    vectors: Numbers  # (M, E), or (K, M, E) if there are class names
    model: str  # whose text encoder they are for
    class_names: tuple[str, ...] = ()  # of the first axis; none if shared
    words: str = ""  # what training began with; nothing if at random

    def __post_init__(self) -> None:
        if self.vectors.ndim != (3 if self.class_names else 2):
            raise ValueError(f"vectors of shape {self.vectors.shape}")
        if self.class_names and len(self.class_names) != len(self.vectors):
            raise ValueError(f"{len(self.class_names)} names for {len(self.vectors)} classes")
        if 0 in self.vectors.shape or self.vectors.dtype.kind != "f":
            raise ValueError(f"vectors of {self.vectors.dtype} and shape {self.vectors.shape}")
        if not np.isfinite(self.vectors).all():
            raise ValueError("vectors that are not finite")

    def for_classes(self, names: Sequence[str]) -> Numbers:
        """(M, E) if shared, else (K, M, E): a class without its own gets the mean of all."""
        if not self.class_names:
            return self.vectors
        places = {name: place for place, name in enumerate(self.class_names)}
        mean = self.vectors.mean(axis=0)
        return np.stack([self.vectors[places[n]] if n in places else mean for n in names])


def write_context(path: str | os.PathLike[str], context: Context) -> None:
    """Write one file, at once or not at all."""
    vectors = np.ascontiguousarray(context.vectors)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "model": context.model,
        "class_names": list(context.class_names),
        "words": context.words,
    }
    header["sha256"] = _digest(header, vectors)
    with replacing(path) as partial:
        partial.write_bytes(to_bytes({"context": vectors}, {"crg": json.dumps(header)}))


def read_context(path: str | os.PathLike[str]) -> Context:
    """Read what ``write_context`` wrote; anything else is refused in one sentence."""
    header, vectors = _contents(Path(path))
    if header.get("version") != VERSION:
        raise InputError(
            f"{path} is a context of format version {header.get('version')} but this crg reads "
            f"version {VERSION}: use the crg that wrote it or learn the context again."
        )
    if header.pop("sha256", None) != _digest(header, vectors):
        raise _damaged(path, "its checksum does not fit")
    try:
        names = tuple(str(name) for name in header["class_names"])
        return Context(vectors, str(header["model"]), names, str(header["words"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"{error} is missing or wrong") from None


def _contents(path: Path) -> tuple[dict[str, Any], Numbers]:
    if path.is_dir():
        raise InputError(f"{path} is a folder: give a file that coop wrote.")
    try:
        with safe_open(path, framework="np") as file:
            header = json.loads((file.metadata() or {}).get("crg", "{}"))
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise InputError(f"{path} is not a learnt context: give a file that coop wrote.")
            return header, file.get_tensor("context")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}): check the path.") from None
    except (SafetensorError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, " ".join(str(error).split())) from None


def _digest(header: Mapping[str, Any], vectors: Numbers) -> str:
    """Over all that the file says, so that no part of it can change alone."""
    facts = json.dumps([sorted(header.items()), vectors.shape, str(vectors.dtype)])
    digest = hashlib.sha256(facts.encode())
    digest.update(np.ascontiguousarray(vectors).data)
    return digest.hexdigest()


def _damaged(path: str | os.PathLike[str], why: str) -> InputError:
    return InputError(
        f"{path} is damaged ({why}): restore it from a copy or learn the context again."
    )
