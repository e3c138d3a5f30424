"""Writing a store block by block, so that it can be stopped at any moment.

Each line of the journal is ``CHECKSUM JSON``. A line that was truncated by a crash, or changed
since, does not count; neither does a block whose numbers no longer have the checksum of its line.

While a store is in the making its folder holds ``store.json`` (not finished), the numbers so
far in ``image_features.partial`` and a journal of the blocks that are on disk. A process that
is killed loses the block it was at, and the next one continues from there. Finishing leaves no
trace of that: the files are the same, byte for byte.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crg.atomic import replacing
from crg.features import lock, store
from crg.features.store import (
    HALF,
    Header,
    Numbers,
    StorePlan,
    check_same,
    checksum,
    read_header,
    spans,
)
from crg.types import InputError

NAME = "journal.jsonl"
BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would turn each line break into two bytes


@dataclass(frozen=True)
class JournalEntry:
    """One block that is on disk."""

    block: int
    sha256: str  # of its numbers
    content: str  # hash of all that they were made of
    skipped: Mapping[str, str]  # row -> why it was left out; JSON has no other keys than texts


def read_entries(folder: Path) -> dict[int, JournalEntry]:
    """The last whole entry of each block."""
    try:
        lines = (folder / NAME).read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    entries = [_parsed(line) for line in lines]
    return {entry.block: entry for entry in entries if entry is not None}


def append_entry(folder: Path, entry: JournalEntry) -> None:
    """Add one line; when this returns it is on disk."""
    text = json.dumps(asdict(entry), sort_keys=True).encode()
    handle = os.open(folder / NAME, os.O_RDWR | os.O_APPEND | os.O_CREAT | BINARY, 0o666)
    try:
        # The line break comes first as well, lest a truncated line spoils this one.
        write_all(handle, b"\n" + checksum(text).encode() + b" " + text + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)


def write_all(handle: int, data: bytes | memoryview) -> None:
    """``os.write`` until nothing is left; a full disk raises instead of writing a part."""
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _parsed(line: bytes) -> JournalEntry | None:
    digest, _, text = line.partition(b" ")
    if checksum(text).encode() != digest:
        return None
    return JournalEntry(**json.loads(text))


PARTIAL = "image_features.partial"
TRACES = (PARTIAL, NAME)  # of a store that is not finished
_FINISHED = (
    *(store.HEADER, store.IMAGES, store.TEXT),
    *(store.LABELS, store.IDS, store.SKIPPED),
)
_OWN = (*_FINISHED, *TRACES, lock.NAME)


@contextlib.contextmanager
def telling_of_the_disk(folder: Path) -> Iterator[None]:
    """Whatever the disk refuses becomes one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written ({error.strerror or error}): make room there or choose "
            "another folder, and the same command continues with what is kept."
        ) from None


def check_folder(folder: Path) -> None:
    """A folder of something else is left alone."""
    if folder.is_file():
        raise InputError(f"{folder} is a file: give the name of a folder, which may be new.")
    found = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    strange = [name for name in found if name not in _OWN and not _is_temporary(name)]
    if strange and store.HEADER not in found:
        raise InputError(
            f"{folder} holds something else than a store ({sorted(strange)[0]}): "
            "give an empty folder or a new one."
        )


def check_left_out(folder: Path, accept_skipped: bool) -> None:
    """Images are never missing silently from a finished store."""
    left_out = store.skipped_images(folder)
    if left_out and not accept_skipped:
        raise InputError(
            f"{folder} lacks images that could not be read ({len(left_out)}): accept that with "
            "--skip-unreadable, or mend them and encode into another folder."
        )


def _is_temporary(name: str) -> bool:
    return any(name.startswith(f".{own}.") for own in _OWN)


def sweep_temporary_files(folder: Path) -> None:
    """Remove what a killed process was about to put into place."""
    sweep(folder, [path.name for path in folder.iterdir() if _is_temporary(path.name)])


def sweep(folder: Path, names: Iterable[str]) -> None:
    """Remove these files if they are there."""
    for name in names:
        (folder / name).unlink(missing_ok=True)


def put_header(folder: Path, header: Header) -> None:
    """Write ``store.json``."""
    put(folder / store.HEADER, store.header_bytes(header))


def put(path: Path, content: bytes) -> None:
    """Write a file, at once or not at all."""
    with replacing(path) as partial:
        partial.write_bytes(content)


def preamble(shape: tuple[int, int, int]) -> bytes:
    """What an ``.npy`` file of half-precision numbers has before them."""
    buffer = io.BytesIO()
    facts = {"descr": HALF.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, facts)
    return buffer.getvalue()


def npy(array: Numbers) -> bytes:
    """An array as an ``.npy`` file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def json_bytes(value: Any) -> bytes:
    """A value as a JSON file."""
    return json.dumps(value, indent=0).encode() + b"\n"


@contextlib.contextmanager
def writing(folder: Path, plan: StorePlan, accept_skipped: bool) -> Iterator[StoreWriter]:
    """The store in ``folder``, new or as far as it got; nobody else may write to it meanwhile.

    A store that something else made is refused. Blocks with images that were left out count
    only with ``accept_skipped``.
    """
    with telling_of_the_disk(folder):
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        held = contextlib.ExitStack()
        held.enter_context(lock.locked(folder))
    with held:
        yield StoreWriter(folder, plan, accept_skipped)


class StoreWriter:
    """A store that is being filled; use ``writing`` to get one."""

    def __init__(self, folder: Path, plan: StorePlan, accept_skipped: bool) -> None:
        self.folder, self.plan = folder, plan
        self.finished = False
        self._entries: dict[int, JournalEntry] = {}
        self._spans = spans(len(plan.ids), plan.block)
        self._partial = folder / PARTIAL
        self._preamble = preamble((len(plan.ids), plan.views, plan.width))
        with telling_of_the_disk(folder):
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
        with telling_of_the_disk(self.folder):
            self._write_at(self._place(self.rows(block).start), data.data.cast("B"))
            append_entry(self.folder, entry)  # only now that the numbers are on disk
        self._entries[block] = entry

    def finish(self, text: Numbers) -> None:
        """Turn what is on disk into a finished store, at once or not at all."""
        skipped = self._skipped()
        kept = [row for row in range(len(self.plan.ids)) if row not in skipped]
        if not kept:
            raise InputError(
                f"None of the {len(self.plan.ids)} images could be read: check the dataset."
            )
        with telling_of_the_disk(self.folder):
            header = self._with_images(kept)
            files = self._small_files(text, kept, skipped)
            for name, content in files.items():
                put(self.folder / name, content)
            sums = {name: checksum(content) for name, content in files.items()}
            put_header(self.folder, replace(header, finished=True, checksums=sums))
            sweep(self.folder, TRACES)
        self.finished = True

    def _open(self, accept_skipped: bool) -> None:
        sweep_temporary_files(self.folder)
        if not (self.folder / store.HEADER).exists():
            put_header(self.folder, self.plan.header())
        header = read_header(self.folder)
        check_same(self.folder, header, self.plan)
        self.finished = header.finished
        if self.finished:
            check_left_out(self.folder, accept_skipped)
            sweep(self.folder, TRACES)  # killed after the last word was written
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
        needed = sum(len(self._spans[block]) for block in self.missing) * self._row_bytes
        disk = shutil.disk_usage(self.folder)
        if disk.total and needed > disk.free:
            raise InputError(
                f"{self.folder} needs {needed / 1e6:,.2f} MB more but its disk has "
                f"{disk.free / 1e6:,.2f} MB left: make room or choose another folder with --out."
            )

    @property
    def _row_bytes(self) -> int:
        return self.plan.views * self.plan.width * HALF.itemsize

    def _place(self, row: int) -> int:
        return len(self._preamble) + row * self._row_bytes

    def _write_at(self, place: int, data: bytes | memoryview) -> None:
        handle = os.open(self._partial, os.O_RDWR | os.O_CREAT | BINARY, 0o666)
        try:
            os.lseek(handle, place, os.SEEK_SET)
            write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)

    def _skipped(self) -> dict[int, str]:
        entries = [self._entries[block] for block in sorted(self._entries)]
        return {int(row): why for entry in entries for row, why in entry.skipped.items()}

    def _with_images(self, kept: list[int]) -> Header:
        """Put ``image_features.npy`` into its place; rows that were left out close up."""
        shape = (len(kept), self.plan.views, self.plan.width)
        start = preamble(shape)
        target = self.folder / store.IMAGES
        if len(kept) == len(self.plan.ids):
            self._write_at(0, start)
            self._partial.replace(target)
            sums = [self._entries[block].sha256 for block in range(len(self._spans))]
        else:
            with replacing(target) as compact:
                self._copy(compact, start, kept)
            images = np.lib.format.open_memmap(target, mode="r")
            sums = list(store.block_checksums(images, self.plan.block))
        header = replace(self.plan.header(), shape=list(shape), blocks=sums)
        return replace(header, preamble=checksum(start))

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
            store.TEXT: npy(np.asarray(text, dtype="<f4")),
            store.IDS: json_bytes([ids[row] for row in kept]),
            store.SKIPPED: json_bytes(left_out),
        }
        if labels is not None:
            files[store.LABELS] = npy(np.array([labels[row] for row in kept], dtype="<i8"))
        return files
