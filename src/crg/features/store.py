"""What a store of features looks like on disk, and how it is read with suspicion.

A finished store is a folder with these files:

=======================  ==================================================================
``store.json``           format version, the key (what made it), shape, and all checksums
``image_features.npy``   (N, V, D) float16; mapped into memory, never loaded as a whole
``text_features.npy``    (K, D) float32
``labels.npy``           (N,) int64; only where the classes of the images are known
``ids.json``             N names
``skipped.json``         the images that were left out, each with the reason
=======================  ==================================================================

What is read here is raw, as from a feature file; ``files`` checks it, ``store_writer`` writes it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from crg.types import InputError, parsed_json

FORMAT = "crg-store"
VERSION = 1
HEADER = "store.json"
IMAGES = "image_features.npy"
TEXT = "text_features.npy"
LABELS = "labels.npy"
IDS = "ids.json"
SKIPPED = "skipped.json"
GENERATED = "generated views"  # in the key of a store whose last views a generator made
HALF = np.dtype("<f2")
_LONGEST_PREAMBLE = 4096  # bytes; NumPy's are 128 long

Numbers = np.ndarray[Any, Any]
T = TypeVar("T")


_Count = Annotated[int, Meta(ge=1)]


class _Key(msgspec.Struct, rename={"generated": GENERATED, "prompts": "template list"}):
    """What of a key is used: the rest of it is only compared."""

    model: str | None = None
    dataset: str | None = None
    generated: int | None = None
    prompts: list[str] | None = None


@dataclass(frozen=True)
class Header:
    """The content of ``store.json``."""

    key: dict[str, Any]  # what made the features
    class_names: list[str]
    logit_scale: float
    logit_bias: float
    shape: Annotated[list[_Count], Meta(min_length=3, max_length=3)]  # N, V, D
    block: _Count  # images that share a checksum
    finished: bool = False
    checksums: dict[str, str] = field(default_factory=dict)  # of the small files
    preamble: str = ""  # checksum of what comes before the numbers in image_features.npy
    blocks: list[str] = field(default_factory=list)  # checksums of the numbers


class Mapped(np.memmap[Any, Any]):
    """Numbers in a file that are read when they are asked for.

    Reading what was cut off meanwhile would end the process, so the length is looked at first.
    """

    def __getitem__(self, index: Any) -> Any:
        """Part of the numbers; refused if the file has become shorter."""
        content = getattr(self, "_mmap", None)
        if content is not None and content.size() < len(content):
            raise InputError(
                f"{self.filename} has become shorter since it was opened: "
                "restore it from a copy, or delete its folder and encode again."
            )
        return super().__getitem__(index)


def checksum(data: Any) -> str:
    """SHA-256 of bytes or of the numbers of an array."""
    return hashlib.sha256(data).hexdigest()


def spans(count: int, block: int) -> list[range]:
    """The rows of each block.

    >>> spans(5, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(first, min(first + block, count)) for first in range(0, count, block)]


def block_checksums(images: Numbers, block: int) -> Iterator[str]:
    """The checksum of the numbers of each block."""
    for rows in spans(len(images), block):
        yield checksum(np.ascontiguousarray(images[rows.start : rows.stop]))


def header_bytes(header: Header) -> bytes:
    """``store.json`` as text that says whether it was changed."""
    top = {"format": FORMAT, "version": VERSION, "sha256": _digest(asdict(header))}
    return json.dumps(top | asdict(header), indent=1).encode()


def read_header(folder: Path) -> Header:
    """``store.json``, checked; anything else than what ``header_bytes`` gave is refused."""
    try:
        facts = parsed_json((folder / HEADER).read_bytes())
    except OSError as error:
        raise InputError(
            f"{folder / HEADER} cannot be read ({error.strerror}): "
            "give a folder that crg encode made."
        ) from None
    except ValueError:
        raise _damaged(folder, f"{HEADER} is no JSON") from None
    if not isinstance(facts, dict) or facts.pop("format", None) != FORMAT:
        raise InputError(f"{folder} is no store of features: give one that crg encode made.")
    version = facts.pop("version", None)
    if version != VERSION:
        raise InputError(
            f"{folder} is a store of format version {version} but this crg reads version "
            f"{VERSION}: use the crg that made it or encode the images again."
        )
    if facts.pop("sha256", None) != _digest(facts):
        raise _damaged(folder, f"the checksum of {HEADER} does not fit")
    try:
        header = msgspec.convert(facts, Header)
        msgspec.convert(header.key, _Key)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise _damaged(folder, f"{HEADER} has a value of the wrong kind, {error}") from None
    n_blocks = len(header.blocks) if header.finished else None
    if n_blocks not in (None, -(-header.shape[0] // header.block)):
        raise _damaged(folder, f"{HEADER} has {n_blocks} checksums of images")
    return header


def read_store(folder: Path, verify: bool = True) -> tuple[dict[str, Any], str]:
    """The values of a finished store under the names of a feature file, and its digest.

    With ``verify`` every checksum is computed; without it, that of the large file is not.
    """
    if not (folder / HEADER).exists():
        raise InputError(
            f"{folder} is a folder but no store (it holds no {HEADER}): "
            "give a feature file or a folder that crg encode made."
        )
    header = read_header(folder)
    if not header.finished:
        raise InputError(
            f"{folder} is not finished: "
            "run the same crg encode again, which continues where it stopped."
        )
    small = {name: _small_file(folder, header, name) for name in (TEXT, IDS, SKIPPED)}
    raw = {
        "image_features": _images(folder, header, verify),
        "text_features": _array(folder, TEXT, small[TEXT]),
        "class_names": header.class_names,
        "logit_scale": header.logit_scale,
        "ids": _listed(folder, IDS, small[IDS], str),
        "model": header.key.get("model"),
        "generated": header.key.get(GENERATED),
        "prompts": header.key.get("template list"),
        "dataset": header.key.get("dataset"),
    }
    if LABELS in header.checksums:
        raw["labels"] = _array(folder, LABELS, _small_file(folder, header, LABELS))
    return raw, _digest(asdict(header))


def skipped_images(folder: Path) -> list[dict[str, str]]:
    """Id and reason of each image that was left out of a finished store."""
    content = _small_file(folder, read_header(folder), SKIPPED)
    return _listed(folder, SKIPPED, content, dict[str, str])


def _images(folder: Path, header: Header, verify: bool) -> Numbers:
    """The large file, mapped; its length and its start are checked first.

    What comes before the numbers is compared, not parsed: the header tells all that it tells.
    """
    path = folder / IMAGES
    try:
        offset = path.stat().st_size - HALF.itemsize * math.prod(header.shape)
        with path.open("rb") as file:
            start = file.read(offset) if 0 < offset <= _LONGEST_PREAMBLE else b""
    except OSError as error:
        raise _unreadable(folder, IMAGES, error) from None
    if not start:
        raise _damaged(folder, f"{IMAGES} is not as long as {HEADER} tells")
    if checksum(start) != header.preamble:
        raise _damaged(folder, f"the checksum of the start of {IMAGES} does not fit")
    images = Mapped(path, HALF, "r", offset, tuple(header.shape))
    found = block_checksums(images, header.block) if verify else header.blocks
    for rows, told, is_now in zip(
        spans(len(images), header.block), header.blocks, found, strict=True
    ):
        if told != is_now:
            raise _damaged(
                folder, f"the checksum of images {rows.start} to {rows.stop - 1} does not fit"
            )
    return images


def _array(folder: Path, name: str, content: bytes) -> Numbers:
    try:
        loaded: Numbers = np.lib.format.read_array(io.BytesIO(content))
    except Exception:  # pickles, what is too large; a damaged start makes NumPy raise anything
        raise _damaged(folder, f"{name} holds no numbers") from None
    return loaded


def _listed(folder: Path, name: str, content: bytes, kind: type[T]) -> list[T]:
    try:
        return msgspec.json.decode(content, type=list[kind])  # type: ignore[valid-type]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(folder, f"{name} is not a list as it should be, {error}") from None


def _small_file(folder: Path, header: Header, name: str) -> bytes:
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise _unreadable(folder, name, error) from None
    if checksum(content) != header.checksums.get(name):
        raise _damaged(folder, f"the checksum of {name} does not fit")
    return content


def _digest(facts: Any) -> str:
    """Of the facts rather than of the file; as they hold all checksums, of the whole store."""
    return checksum(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode())


def _unreadable(folder: Path, name: str, error: OSError) -> InputError:
    if isinstance(error, FileNotFoundError):
        return _damaged(folder, f"{name} is missing")
    return _damaged(folder, f"{name} cannot be read, {error.strerror}")


def _damaged(folder: Path, what: str) -> InputError:
    return InputError(
        f"{folder} is damaged ({what}): restore it from a copy, or delete it and encode again."
    )
