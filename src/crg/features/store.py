"""A store: the features of a dataset in a folder, written block by block and read row by row.

A finished store has three files:

=======================  ==================================================================
``store.json``           what made it, classes, ids, labels, images left out, checksums
``image_features.npy``   (N, V, D) float16; mapped into memory, never loaded as a whole
``text_features.npy``    (K, D) float32
=======================  ==================================================================

Until then each block of images is one file in ``blocks/``, written under another name and renamed
once it is on disk. A process that is killed loses the block it was encoding, and the next one
continues from there. Finishing joins the blocks, because no process may map thousands of files,
and removes them: the files are the same, byte for byte, however often the job was stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np

from crg.atomic import content_of, file_sha256, locked, make_folder, replacing
from crg.features.formats import read_raw, write_raw
from crg.types import InputError, parsed_json

FORMAT = "crg-store"
VERSION = 2
HEADER = "store.json"
IMAGES = "image_features.npy"
TEXT = "text_features.npy"
BLOCKS = "blocks"
HALF = np.dtype("<f2")

# Names in the key of a store.
GENERATED = "generated views"
CONTENT = "content of the images"  # may change in part while a store is not finished
VARIATIONS = "content of the variations"  # so may these
_DIGESTS = (CONTENT, VARIATIONS, "list of images", "weights", "descriptions")
_LONGEST_VALUE = 60  # characters in an error message

Numbers = np.ndarray[Any, Any]
Block: TypeAlias = tuple[range, str]  # rows, and a hash of everything their features depend on
_Count = Annotated[int, msgspec.Meta(ge=1)]


class _Key(msgspec.Struct, rename={"generated": GENERATED, "prompts": "template list"}):
    """The values of a key that readers use; the others are only compared."""

    model: str | None = None
    dataset: str | None = None
    generated: int | None = None
    prompts: list[str] | None = None


@dataclass(frozen=True)
class Header:
    """The content of ``store.json``; it has ``checksums`` once the store is finished."""

    key: dict[str, Any]  # what makes the features, as JSON values
    class_names: list[str]
    logit_scale: float
    ids: list[str]
    labels: list[int] | None
    views: _Count  # V
    width: _Count  # D
    skipped: dict[str, str] = field(default_factory=dict)  # id of an image left out -> reason
    checksums: dict[str, str] = field(default_factory=dict)  # SHA-256 of the other files

    @property
    def finished(self) -> bool:
        """Whether all images are in the store."""
        return bool(self.checksums)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(N, V, D): images, views of each, width."""
        return len(self.ids), self.views, self.width


class Mapped(np.memmap[Any, Any]):
    """Numbers in a file, read when they are indexed.

    Reading beyond the end of a file that was truncated would end the process, so its length is
    checked first.
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


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_header(folder: Path, header: Header) -> None:
    """Write ``store.json``, signed with a digest of its content."""
    facts = asdict(header)
    top = {"format": FORMAT, "version": VERSION, "sha256": digest(facts)}
    with replacing(folder / HEADER) as partial:
        partial.write_text(json.dumps(top | facts, indent=1))


def read_header(folder: Path) -> Header:
    """``store.json``, checked; anything that ``write_header`` did not write is refused."""
    try:
        remedy = "give a feature file or a folder that crg encode made"
        facts = parsed_json(content_of(folder / HEADER, remedy))
    except InputError:
        raise
    except ValueError:
        raise _damaged(folder, f"{HEADER} is not JSON") from None
    if not isinstance(facts, dict) or facts.pop("format", None) != FORMAT:
        raise InputError(f"{folder} is not a store of features: give one that crg encode made.")
    version = facts.pop("version", None)
    if version != VERSION:
        raise InputError(
            f"{folder} is a store of format version {version} but this crg reads version "
            f"{VERSION}: use the crg that made it or encode the images again."
        )
    if facts.pop("sha256", None) != digest(facts):
        raise _damaged(folder, f"the checksum of {HEADER} does not match")
    try:
        header = msgspec.convert(facts, Header)
        msgspec.convert(header.key, _Key)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise _damaged(folder, f"{HEADER} has a value of the wrong kind, {error}") from None
    return header


def read_finished(folder: Path) -> Header:
    """``store.json`` of a store that is finished; any other is refused."""
    header = read_header(folder)
    if not header.finished:
        raise InputError(
            f"{folder} is not finished: "
            "run the same crg encode again, which continues where it stopped."
        )
    return header


def read_store(folder: Path, verify: bool) -> tuple[dict[str, Any], str]:
    """The values of a finished store under the names of a feature file, and its digest.

    ``verify`` computes the checksum of the image features, about a second per gigabyte.
    """
    header = read_finished(folder)
    facts = asdict(header)
    raw = {name: facts[name] for name in ("class_names", "logit_scale", "ids", "labels")}
    raw |= {
        "image_features": _mapped(folder, header, IMAGES, verify),
        "text_features": np.array(_mapped(folder, header, TEXT, True)),
        "generated": header.key.get(GENERATED),
        "prompts": header.key.get("template list"),
        **{name: header.key.get(name) for name in ("model", "dataset")},
    }
    return raw, digest(facts)


def _mapped(folder: Path, header: Header, name: str, verify: bool) -> Numbers:
    """An array of the store, mapped; its length, kind and shape are always checked."""
    path = folder / name
    shape = header.shape if name == IMAGES else (len(header.class_names), header.width)
    try:
        if verify and file_sha256(path) != header.checksums.get(name):
            raise _damaged(folder, f"the checksum of {name} does not match")
        array = np.lib.format.open_memmap(path, mode="r")
        size = path.stat().st_size
    except FileNotFoundError:
        raise _damaged(folder, f"{name} is missing") from None
    except OSError as error:
        raise _damaged(folder, f"{name} cannot be read, {error.strerror}") from None
    except InputError:
        raise
    except Exception:  # a damaged start makes NumPy raise anything
        raise _damaged(folder, f"{name} is truncated or has no numbers") from None
    is_whole = size == array.offset + array.nbytes
    if array.shape != shape or array.dtype.kind != "f" or not is_whole:
        raise _damaged(folder, f"{name} is not as large as {HEADER} says")
    return array.view(Mapped)


def _damaged(folder: Path, what: str) -> InputError:
    return InputError(
        f"{folder} is damaged ({what}): restore it from a copy, or delete it and encode again."
    )


@contextlib.contextmanager
def writing(folder: Path, plan: Header, blocks: Sequence[Block]) -> Iterator[StoreWriter]:
    """Lock the store in ``folder``, new or as far as it got, and write to it.

    ``plan`` is the header with all images of the dataset. A store made from something else is
    refused.
    """
    _check_folder(folder)
    make_folder(folder, "--out")
    with locked(folder / HEADER):
        yield StoreWriter(folder, plan, blocks)


class StoreWriter:
    """A store that is being filled; ``writing`` makes one."""

    def __init__(self, folder: Path, plan: Header, blocks: Sequence[Block]) -> None:
        self.folder, self.plan, self.blocks = folder, plan, blocks
        self._skipped: dict[int, dict[int, str]] = {}  # of each block on disk: row -> reason
        for name in (HEADER, IMAGES, TEXT):  # left by a process that was killed
            for path in folder.glob(f".{name}.*"):
                if path.suffix != ".lock":
                    path.unlink()
        if not (folder / HEADER).exists():
            write_header(folder, plan)
        header = read_header(folder)
        _check_same(folder, header, plan)
        self.finished = header.finished
        if self.finished:
            shutil.rmtree(folder / BLOCKS, ignore_errors=True)  # the last process was killed
        else:
            make_folder(folder / BLOCKS, "--out")
            for number in range(len(blocks)):
                with contextlib.suppress(InputError):  # missing, damaged or of other images
                    _, self._skipped[number] = self._read(number)
            self._check_room()

    @property
    def missing(self) -> list[int]:
        """The numbers of the blocks that are not on disk yet."""
        if self.finished:
            return []
        return [number for number in range(len(self.blocks)) if number not in self._skipped]

    @property
    def kept_images(self) -> int:
        """How many images the blocks on disk hold."""
        return len(self.plan.ids) - sum(len(self.blocks[number][0]) for number in self.missing)

    def write(self, number: int, images: Numbers, skipped: Mapping[int, str]) -> None:
        """Write one block; ``skipped`` has the rows of the dataset left out, with the reason."""
        values = {
            "images": np.asarray(images, dtype=HALF),
            "content": self.blocks[number][1],
            "skipped": json.dumps(skipped),
        }
        write_raw(self._path(number), values)
        self._skipped[number] = dict(skipped)

    def finish(self, text: Numbers) -> None:
        """Turn the blocks into a finished store, at once or not at all."""
        skipped = {row: why for block in self._skipped.values() for row, why in block.items()}
        kept = [row for row in range(len(self.plan.ids)) if row not in skipped]
        if not kept:
            shutil.rmtree(self.folder / BLOCKS)  # so that the next job tries again
            raise InputError(
                f"None of the {len(self.plan.ids)} images could be read ({skipped[0].rstrip('.')}):"
                " check the dataset."
            )
        ids, labels = self.plan.ids, self.plan.labels
        header = replace(
            self.plan,
            ids=[ids[row] for row in kept],
            labels=None if labels is None else [labels[row] for row in kept],
            skipped={ids[row]: skipped[row] for row in sorted(skipped)},
        )
        facts = {"descr": HALF.str, "fortran_order": False, "shape": header.shape}
        with replacing(self.folder / IMAGES) as partial, partial.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, facts)
            for number, (rows, _) in enumerate(self.blocks):
                images, _ = self._read(number)  # not mapped: a full disk would end the process
                file.write(images[[row not in skipped for row in rows]].tobytes())
        with replacing(self.folder / TEXT) as partial, partial.open("wb") as file:
            np.save(file, np.asarray(text, dtype="<f4"))
        sums = {name: file_sha256(self.folder / name) for name in (IMAGES, TEXT)}
        write_header(self.folder, replace(header, checksums=sums))
        shutil.rmtree(self.folder / BLOCKS, ignore_errors=True)
        self.finished = True

    def _path(self, number: int) -> Path:
        return self.folder / BLOCKS / f"{number:06d}.npz"

    def _read(self, number: int) -> tuple[Numbers, dict[int, str]]:
        """The numbers of a block and the rows left out; refused unless made from the same."""
        raw = read_raw(self._path(number), ("images", "content", "skipped"))
        rows, content = self.blocks[number]
        shape = (len(rows), *self.plan.shape[1:])
        if (np.shape(raw.get("images", ())), str(raw.get("content"))) != (shape, content):
            raise InputError(f"{self._path(number)} was made from other images: encode them again.")
        reasons = json.loads(str(raw["skipped"]))
        return raw["images"], {int(row): why for row, why in reasons.items()}

    def _check_room(self) -> None:
        """Refuse a disk that is too small now rather than after hours."""
        n_images = 2 * len(self.plan.ids) - self.kept_images  # in blocks, and joined
        needed = n_images * self.plan.views * self.plan.width * HALF.itemsize
        disk = shutil.disk_usage(self.folder)
        if disk.total and needed > disk.free:
            raise InputError(
                f"{self.folder} needs {needed / 1e6:,.2f} MB more but its disk has "
                f"{disk.free / 1e6:,.2f} MB left: make room or choose another folder with --out."
            )


def _check_folder(folder: Path) -> None:
    """Refuse a file, or a folder of something else."""
    if folder.is_file():
        raise InputError(f"{folder} is a file: give the name of a folder, which may be new.")
    if not folder.is_dir() or (folder / HEADER).exists():
        return
    for path in sorted(folder.iterdir()):
        if path.name != BLOCKS and not path.name.startswith(f".{HEADER}."):
            raise InputError(
                f"{folder} holds something else than a store ({path.name}): "
                "give an empty folder or a new one."
            )


def _check_same(folder: Path, header: Header, plan: Header) -> None:
    """Refuse a store that was made from something else, and name what differs.

    Images may have been repaired since an unfinished store was begun: each block knows what it
    was made from. Digests and the size of blocks are named only where nothing else differs.
    """
    stored, asked = header.key, json.loads(json.dumps(plan.key))
    free = () if header.finished else (CONTENT, VARIATIONS)
    names = [each for each in stored | asked if stored.get(each) != asked.get(each)]
    names = [name for name in names if name not in free]
    if plain := [name for name in names if name not in (*_DIGESTS, "block")] or names:
        differences = ", ".join(
            f"{name} is {_shown(name, stored)} in the store but {_shown(name, asked)} was asked for"
            for name in plain
        )
        raise InputError(
            f"{folder} was made of something else ({differences}): "
            "ask for the same or give another folder with --out."
        )


def _shown(name: str, key: Mapping[str, Any]) -> str:
    value = key.get(name)
    if name in _DIGESTS and isinstance(value, str):
        value = value[:12]
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
