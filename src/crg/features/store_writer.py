"""Writing a store block by block, so that it can be stopped at any moment.

While a store is in the making its folder holds ``store.json`` (not finished), the numbers so
far in ``image_features.partial`` and a journal of the blocks that are on disk. A process that
is killed loses the block it was at, and the next one continues from there. Finishing leaves no
trace of that: the files are the same, byte for byte.

Each line of the journal is ``CHECKSUM JSON``. A line that was truncated by a crash, or changed
since, does not count; neither does a block whose numbers no longer have the checksum of its line.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import filelock
import msgspec
import numpy as np

from crg.atomic import replacing
from crg.features import store
from crg.features.store import HALF, Header, Numbers, checksum, read_header, spans
from crg.types import InputError

CONTENT = "content of the pictures"  # may change in part while a store is not finished
VARIATIONS = "content of the variations"  # so may these
_DIGESTS = (CONTENT, VARIATIONS, "list of pictures", "weights", "descriptions")
_LABELS = {  # stored keys keep the words that they were hashed with
    CONTENT: "content of the images",
    "list of pictures": "list of images",
    "number of pictures": "number of images",
    "least area": "smallest crop",
}
_SHOWN = 60  # characters of a value in a sentence

_PARTIAL = "image_features.partial"
_JOURNAL = "journal.jsonl"
_LOCK = "lock"
_OWN = (
    *(store.HEADER, store.IMAGES, store.TEXT, store.LABELS, store.IDS, store.SKIPPED),
    *(_PARTIAL, _JOURNAL, _LOCK),
)
_BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would turn each line break into two bytes


@dataclass(frozen=True)
class StorePlan:
    """All that is known of a store before the first image is encoded."""

    key: Mapping[str, Any]  # what makes the features, as JSON values
    class_names: Sequence[str]
    logit_scale: float
    logit_bias: float
    ids: Sequence[str]
    labels: Sequence[int] | None
    views: int  # V
    width: int  # D
    block: int  # images that are written at once and share a checksum
    contents: Sequence[str]  # for each block a hash of all that its features are made of

    def header(self) -> Header:
        """``store.json`` of the store while it is not finished."""
        return Header(
            key=json.loads(json.dumps(dict(self.key))),
            class_names=list(self.class_names),
            logit_scale=float(self.logit_scale),
            logit_bias=float(self.logit_bias),
            shape=[len(self.ids), self.views, self.width],
            block=self.block,
        )


@dataclass(frozen=True)
class JournalEntry:
    """One block that is on disk."""

    block: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str  # of its numbers
    content: str  # hash of all that they were made of
    skipped: Mapping[str, str]  # row -> why it was left out; JSON has no other keys than texts


def read_entries(folder: Path) -> dict[int, JournalEntry]:
    """The last whole entry of each block."""
    try:
        lines = (folder / _JOURNAL).read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    pairs = [line.split(b" ", 1) for line in lines if b" " in line]
    whole = [text for digest, text in pairs if checksum(text).encode() == digest]
    try:
        entries = [msgspec.json.decode(text, type=JournalEntry) for text in whole]
    except msgspec.MsgspecError:
        return {}  # not written here, whatever its checksums say
    return {entry.block: entry for entry in entries}


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``; it ends with the process, even if its file may stay."""
    lock = filelock.FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=0.2)  # its last holder may just be taking the file away
    except filelock.Timeout:
        raise InputError(
            f"Another process is writing to {folder}: wait until it is done or end it."
        ) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows keeps a file that is open
            (folder / _LOCK).unlink()
        lock.release()


@contextlib.contextmanager
def writing(folder: Path, plan: StorePlan, accept_skipped: bool) -> Iterator[StoreWriter]:
    """The store in ``folder``, new or as far as it got; nobody else may write to it meanwhile.

    A store that something else made is refused. Blocks with images that were left out count
    only with ``accept_skipped``.
    """
    with contextlib.ExitStack() as held:
        with _telling_of_the_disk(folder):
            _check_folder(folder)
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(folder))
        yield StoreWriter(folder, plan, accept_skipped)


class StoreWriter:
    """A store that is being filled; use ``writing`` to get one."""

    def __init__(self, folder: Path, plan: StorePlan, accept_skipped: bool) -> None:
        self.folder, self.plan = folder, plan
        self.finished = False
        self._entries: dict[int, JournalEntry] = {}
        self._spans = spans(len(plan.ids), plan.block)
        self._partial = folder / _PARTIAL
        self._preamble = _preamble((len(plan.ids), plan.views, plan.width))
        self._row_bytes = plan.views * plan.width * HALF.itemsize
        with _telling_of_the_disk(folder):
            self._open(accept_skipped)

    @property
    def missing(self) -> list[int]:
        """The blocks that are not on disk yet."""
        if self.finished:
            return []
        return [block for block in range(len(self._spans)) if block not in self._entries]

    @property
    def kept_images(self) -> int:
        """How many images the blocks on disk hold."""
        return len(self.plan.ids) - sum(len(self._spans[block]) for block in self.missing)

    def rows(self, block: int) -> range:
        """The images of a block."""
        return self._spans[block]

    def write(self, block: int, images: Numbers, skipped: Mapping[int, str]) -> None:
        """Keep one block; ``skipped`` says why rows of it are left out, by row of the set."""
        data = np.ascontiguousarray(images, dtype=HALF)
        reasons = {str(row): reason for row, reason in skipped.items()}
        entry = JournalEntry(block, checksum(data), self.plan.contents[block], reasons)
        text = json.dumps(asdict(entry), sort_keys=True).encode()
        # A line break comes first as well, lest a truncated line spoils this one.
        line = b"\n" + checksum(text).encode() + b" " + text + b"\n"
        with _telling_of_the_disk(self.folder):
            _write_synced(self._partial, data.data.cast("B"), self._place(self.rows(block).start))
            _write_synced(self.folder / _JOURNAL, line)  # only now that the numbers are on disk
        self._entries[block] = entry

    def finish(self, text: Numbers) -> None:
        """Turn what is on disk into a finished store, at once or not at all."""
        entries = [self._entries[block] for block in sorted(self._entries)]
        skipped = {int(row): why for entry in entries for row, why in entry.skipped.items()}
        kept = [row for row in range(len(self.plan.ids)) if row not in skipped]
        if not kept:
            raise InputError(
                f"None of the {len(self.plan.ids)} images could be read: check the dataset."
            )
        with _telling_of_the_disk(self.folder):
            header = self._with_images(kept)
            files = self._small_files(text, kept, skipped)
            for name, content in files.items():
                _put(self.folder / name, content)
            sums = {name: checksum(content) for name, content in files.items()}
            self._put_header(replace(header, finished=True, checksums=sums))
            self._sweep()
        self.finished = True

    def _open(self, accept_skipped: bool) -> None:
        for name in _temporary(self.folder):  # what a killed process was about to put into place
            (self.folder / name).unlink(missing_ok=True)
        if not (self.folder / store.HEADER).exists():
            self._put_header(self.plan.header())
        header = read_header(self.folder)
        _check_same(self.folder, header, self.plan)
        self.finished = header.finished
        if self.finished:
            _check_left_out(self.folder, accept_skipped)
            self._sweep()  # killed after the last word was written
        else:
            self._recover(accept_skipped)
            self._check_room()

    def _recover(self, accept_skipped: bool) -> None:
        images = self.folder / store.IMAGES
        if images.exists() and not self._partial.exists():
            images.replace(self._partial)  # killed while finishing
        entries = read_entries(self.folder) if self._partial.exists() else {}
        self._entries = {
            block: entry
            for block, entry in entries.items()
            if self._is_whole(entry) and (accept_skipped or not entry.skipped)
        }

    def _is_whole(self, entry: JournalEntry) -> bool:
        contents = self.plan.contents
        if entry.block >= len(contents) or entry.content != contents[entry.block]:
            return False  # an image of it was repaired or replaced since
        rows = self.rows(entry.block)
        with self._partial.open("rb") as file:
            file.seek(self._place(rows.start))
            return checksum(file.read(len(rows) * self._row_bytes)) == entry.sha256

    def _check_room(self) -> None:
        """A disk that is too small is reported now rather than after hours."""
        needed = (len(self.plan.ids) - self.kept_images) * self._row_bytes
        disk = shutil.disk_usage(self.folder)
        if disk.total and needed > disk.free:
            raise InputError(
                f"{self.folder} needs {needed / 1e6:,.2f} MB more but its disk has "
                f"{disk.free / 1e6:,.2f} MB left: make room or choose another folder with --out."
            )

    def _place(self, row: int) -> int:
        return len(self._preamble) + row * self._row_bytes

    def _put_header(self, header: Header) -> None:
        _put(self.folder / store.HEADER, store.header_bytes(header))

    def _sweep(self) -> None:
        """Remove the traces of a store that was not finished."""
        for path in (self._partial, self.folder / _JOURNAL):
            path.unlink(missing_ok=True)

    def _with_images(self, kept: list[int]) -> Header:
        """Put ``image_features.npy`` into its place; rows that were left out close up."""
        shape = (len(kept), self.plan.views, self.plan.width)
        start = _preamble(shape)
        target = self.folder / store.IMAGES
        if len(kept) == len(self.plan.ids):
            _write_synced(self._partial, start, 0)
            self._partial.replace(target)
            sums = [self._entries[block].sha256 for block in range(len(self._spans))]
        else:
            with replacing(target) as compact:
                self._copy(compact, start, kept)
            images = np.lib.format.open_memmap(target, mode="r")
            sums = list(store.block_checksums(images, self.plan.block))
        facts: dict[str, Any] = {"shape": list(shape), "blocks": sums, "preamble": checksum(start)}
        return replace(self.plan.header(), **facts)

    def _copy(self, target: Path, start: bytes, kept: list[int]) -> None:
        with self._partial.open("rb") as source, target.open("wb") as file:
            file.write(start)
            for row in kept:
                source.seek(self._place(row))
                file.write(source.read(self._row_bytes))

    def _small_files(
        self, text: Numbers, kept: list[int], skipped: Mapping[int, str]
    ) -> dict[str, bytes]:
        ids, labels = self.plan.ids, self.plan.labels
        left_out = [{"id": ids[row], "reason": why} for row, why in skipped.items()]
        files = {
            store.TEXT: _npy(np.asarray(text, dtype="<f4")),
            store.IDS: json.dumps([ids[row] for row in kept], indent=0).encode() + b"\n",
            store.SKIPPED: json.dumps(left_out, indent=0).encode() + b"\n",
        }
        if labels is not None:
            files[store.LABELS] = _npy(np.array([labels[row] for row in kept], dtype="<i8"))
        return files


def _check_folder(folder: Path) -> None:
    """A folder of something else is left alone."""
    if folder.is_file():
        raise InputError(f"{folder} is a file: give the name of a folder, which may be new.")
    if not folder.is_dir() or (folder / store.HEADER).exists():
        return
    known = {*_OWN, *_temporary(folder)}
    if strange := sorted(path.name for path in folder.iterdir() if path.name not in known):
        raise InputError(
            f"{folder} holds something else than a store ({strange[0]}): "
            "give an empty folder or a new one."
        )


def _temporary(folder: Path) -> list[str]:
    prefixes = tuple(f".{own}." for own in _OWN)
    return [path.name for path in folder.iterdir() if path.name.startswith(prefixes)]


def _check_left_out(folder: Path, accept_skipped: bool) -> None:
    """Images are never missing silently from a finished store."""
    left_out = store.skipped_images(folder)
    if left_out and not accept_skipped:
        raise InputError(
            f"{folder} lacks images that could not be read ({len(left_out)}): accept that with "
            "--skip-unreadable, or mend them and encode into another folder."
        )


def _check_same(folder: Path, header: Header, plan: StorePlan) -> None:
    """Refuse a store that was made of something else, and name what differs.

    Images may have been repaired since an unfinished store was begun: its journal knows which
    blocks they are in. Digests and the size of blocks are named only where nothing else is.
    """
    stored, asked = header.key, plan.header().key
    free = () if header.finished else (CONTENT, VARIATIONS)
    names = [
        name
        for name in {**stored, **asked}
        if name not in free and stored.get(name) != asked.get(name)
    ]
    plain = [name for name in names if name not in (*_DIGESTS, "block")] or names
    told = [
        f"{_LABELS.get(name, name)} is {_shown(name, stored)} in the store "
        f"but {_shown(name, asked)} was asked for"
        for name in plain
    ]
    if told:
        raise InputError(
            f"{folder} was made of something else ({', '.join(told)}): "
            "ask for the same or give another folder with --out."
        )


def _shown(name: str, key: Mapping[str, Any]) -> str:
    value = key.get(name)
    if name in _DIGESTS and isinstance(value, str):
        value = value[:12]
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@contextlib.contextmanager
def _telling_of_the_disk(folder: Path) -> Iterator[None]:
    """Whatever the disk refuses becomes one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written ({error.strerror or error}): make room there or choose "
            "another folder, and the same command continues with what is kept."
        ) from None


def _write_synced(path: Path, data: bytes | memoryview, place: int | None = None) -> None:
    """Write at ``place``, or at the end; when this returns it is on disk."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | _BINARY, 0o666)
    try:
        os.lseek(handle, place or 0, os.SEEK_END if place is None else os.SEEK_SET)
        left = memoryview(data)
        while left:  # a full disk raises instead of writing a part
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _put(path: Path, content: bytes) -> None:
    with replacing(path) as partial:
        partial.write_bytes(content)


def _preamble(shape: tuple[int, int, int]) -> bytes:
    """What an ``.npy`` file of half-precision numbers has before them."""
    buffer = io.BytesIO()
    facts = {"descr": HALF.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, facts)
    return buffer.getvalue()


def _npy(array: Numbers) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
