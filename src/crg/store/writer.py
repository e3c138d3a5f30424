"""Writing a store block by block, so that it can be stopped at any moment.

While a store is in the making its folder holds ``store.json`` (not finished), the numbers so
far in ``image_features.partial`` and a journal of the blocks that are on disk. A process that
is killed loses the block it was at, and the next one goes on from there. Finishing leaves no
trace of that: the files are the same, byte for byte.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from crg import storage
from crg.saving import replacing
from crg.storage import HALF, Header, Numbers, checksum, read_header, spans
from crg.store import journal, locking
from crg.store.folder import (
    PARTIAL,
    TRACES,
    check_folder,
    check_left_out,
    json_bytes,
    npy,
    preamble,
    put,
    put_header,
    sweep,
    sweep_temporary_files,
    telling_of_the_disk,
)
from crg.store.plan import Plan, check_same
from crg.types import InputError


@contextlib.contextmanager
def writing(folder: Path, plan: Plan, accept_skipped: bool) -> Iterator[StoreWriter]:
    """The store in ``folder``, new or as far as it got; nobody else may write to it meanwhile.

    A store that something else made is refused. Blocks with images that were left out count
    only with ``accept_skipped``.
    """
    with telling_of_the_disk(folder):
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        lock = contextlib.ExitStack()
        lock.enter_context(locking.locked(folder))
    with lock:
        yield StoreWriter(folder, plan, accept_skipped)


class StoreWriter:
    """A store that is being filled; use ``writing`` to get one."""

    def __init__(self, folder: Path, plan: Plan, accept_skipped: bool) -> None:
        self.folder, self.plan = folder, plan
        self.finished = False
        self._entries: dict[int, journal.Entry] = {}
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
        """Keep one block; ``skipped`` tells why rows of it are left out, by row of the set."""
        data = np.ascontiguousarray(images, dtype=HALF)
        reasons = {str(row): reason for row, reason in skipped.items()}
        entry = journal.Entry(block, checksum(data), self.plan.contents[block], reasons)
        with telling_of_the_disk(self.folder):
            self._write_at(self._place(self.rows(block).start), data.data.cast("B"))
            journal.append_entry(self.folder, entry)  # only now that the numbers are on disk
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
        if not (self.folder / storage.HEADER).exists():
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
        images = self.folder / storage.IMAGES
        if images.exists() and not self._partial.exists():
            images.replace(self._partial)  # killed while finishing
        entries = journal.read_entries(self.folder) if self._partial.exists() else {}
        self._entries = {
            block: entry
            for block, entry in entries.items()
            if self._is_whole(entry) and (accept_skipped or not entry.skipped)
        }

    def _is_whole(self, entry: journal.Entry) -> bool:
        contents = self.plan.contents
        if entry.block >= len(contents) or entry.content != contents[entry.block]:
            return False  # an image of it was mended or replaced since
        rows = self.rows(entry.block)
        with self._partial.open("rb") as file:
            file.seek(self._place(rows.start))
            return checksum(file.read(len(rows) * self._row_bytes)) == entry.sha256

    def _check_room(self) -> None:
        """A disk that is too small is told of now rather than after hours."""
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
        handle = os.open(self._partial, os.O_RDWR | os.O_CREAT | journal.BINARY, 0o666)
        try:
            os.lseek(handle, place, os.SEEK_SET)
            journal.write_all(handle, data)
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
        target = self.folder / storage.IMAGES
        if len(kept) == len(self.plan.ids):
            self._write_at(0, start)
            self._partial.replace(target)
            sums = [self._entries[block].sha256 for block in range(len(self._spans))]
        else:
            with replacing(target) as compact:
                self._copy(compact, start, kept)
            images = np.lib.format.open_memmap(target, mode="r")
            sums = list(storage.block_checksums(images, self.plan.block))
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
            storage.TEXT: npy(np.asarray(text, dtype="<f4")),
            storage.IDS: json_bytes([ids[row] for row in kept]),
            storage.SKIPPED: json_bytes(left_out),
        }
        if labels is not None:
            files[storage.LABELS] = npy(np.array([labels[row] for row in kept], dtype="<i8"))
        return files
