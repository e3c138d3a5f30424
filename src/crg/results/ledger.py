"""The ledger: a results file that only grows, one line per run, each parsed once per command.

Results files are text, which people copy, cut and edit. A line that is damaged, or whose accuracy
contradicts its own answers, is left out with a sentence and stops nothing.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crg.atomic import locked_folder
from crg.results.schema import Entry, LineError, Result, decode, encode
from crg.types import InputError, limit

DEFAULT_PATH = "crg-results.jsonl"
MAX_BYTES = limit("CRG_MAX_RESULTS", 1_000_000_000)  # of a results file, decompressed
_SLACK = 1e-9  # of an accuracy that somebody rounded by hand

PathLike = str | os.PathLike[str]


class Ledger:
    """The content of a results file by line number, counted from 1; made by ``read``.

    ``left_out`` says why lines are not used. Other processes may write to the same file:
    ``refresh`` parses the lines that were added since, and ``add`` does so before it writes.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        self._forget()

    def _forget(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.left_out: dict[int, str] = {}  # each reason continues from "it"
        self._n_complete, self._end = 0, 0  # lines that end, and the byte after them

    @property
    def runs(self) -> dict[str, Result]:
        """The latest full result of each run, by key."""
        entries = self.entries.values()
        return {e.key: e for e in entries if isinstance(e, Result) and e.digest is None}

    @property
    def latest(self) -> dict[str, Entry]:
        """The latest entry of each key."""
        return {each.key: each for each in self.entries.values()}

    def refresh(self) -> Ledger:
        """Parse what was added to the file; a last line that does not end is parsed again."""
        if (self.path.stat().st_size if self.path.exists() else 0) < self._end:  # another file
            self._forget()
        content = read_bytes(self.path, self._end)
        *lines, rest = content.split(b"\n")
        for line in lines:
            self._n_complete += 1
            self._parse(self._n_complete, line)
        self._parse(self._n_complete + 1, rest)
        self._end += len(content) - len(rest)
        return self

    def _parse(self, number: int, line: bytes) -> None:
        self.entries.pop(number, None)
        self.left_out.pop(number, None)
        if not line.strip():
            return
        try:
            entry = decode(line)
            if isinstance(entry, Result) and entry.digest is None:
                check_consistent(entry)
            self.entries[number] = entry
        except LineError as error:
            self.left_out[number] = str(error)

    def add(self, entry: Entry) -> bool:
        """Write a result or a failure; False if another process has already written the run."""
        with locked_folder(self.path, wait=True):  # between the look and the line
            if entry.key in self.refresh().runs:
                return False
            append(self.path, entry)
            return True

    def check_writable(self) -> None:
        """Refuse a file that cannot be appended to, before any time is spent on runs.

        One that holds something else, such as a feature file named by mistake, is left alone, and
        nothing is added to a compressed file.
        """
        is_ours = any("not ours" not in why for why in self.left_out.values())
        if self.path.suffix == ".gz" or (self.left_out and not self.entries and not is_ours):
            raise InputError(
                f"{self.path} is no results file: choose another with --results, which may be new."
            )
        _append_bytes(self.path, b"")

    def notes(self) -> list[str]:
        """A sentence per reason for which lines were left out."""
        numbers: dict[str, list[int]] = {}
        for number, why in self.left_out.items():
            numbers.setdefault(why, []).append(number)
        return [
            f"Line {found[0]} of {self.path} was left out: it {why}."
            if len(found) == 1
            else f"Lines {', '.join(map(str, found))} of {self.path} were left out: each {why}."
            for why, found in numbers.items()
        ]


def read(path: PathLike) -> Ledger:
    """Everything in a results file; a file that does not exist holds nothing."""
    return Ledger(path).refresh()


def check_consistent(result: Result) -> None:
    """Refuse a result whose accuracy or count of images contradicts its answers."""
    for metrics in (result.metrics, result.zero_shot):
        try:
            why = _contradiction(metrics, metrics.get("n_scored") or result.n_samples)
        except ValueError:  # not hexadecimal
            why = "has answers that are not bits"
        if why is not None:
            raise LineError(f"{why}, so run it again with crg bench")


def _contradiction(metrics: Mapping[str, Any], n_scored: int) -> str | None:
    streamed, in_order = metrics.get("streamed"), metrics.get("right_in_order")
    if streamed is not None and _count(streamed) != n_scored:
        return f"counts {n_scored} scored images and names others"
    if in_order is not None and 4 * len(in_order) < n_scored:
        return f"has answers to fewer than its {n_scored} images"
    if (accuracy := metrics.get("accuracy")) is None:
        return None
    for right in [_count(bits) for bits in (metrics.get("correct"), in_order) if bits is not None]:
        if abs(accuracy * n_scored - right) > _SLACK * n_scored:
            given = f"gives an accuracy of {100 * accuracy:.2f}%"
            return f"{given} where {right} of {n_scored} answers were right"
    return None


def _count(bits: str) -> int:
    return int.from_bytes(bytes.fromhex(bits), "big").bit_count()


def append(path: PathLike, entry: Entry) -> None:
    """Add one line in a single write, so that concurrent writers never mix their lines."""
    _append_bytes(Path(path), encode(entry) + b"\n")


def read_bytes(path: Path, start: int = 0) -> bytes:
    """The bytes of a file from ``start`` on, decompressed; nothing if it does not exist."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            file.seek(start)
            content = file.read(MAX_BYTES + 1 - start)
    except FileNotFoundError:
        return b""
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{path} is damaged: restore it from a copy.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    if start + len(content) > MAX_BYTES:
        raise InputError(
            f"{path} holds more than {MAX_BYTES:,} bytes of results: split it or set "
            "CRG_MAX_RESULTS."
        )
    return content


def _append_bytes(path: Path, data: bytes) -> None:
    try:
        with path.open("ab+", buffering=0) as file:
            if data and file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                data = data if file.read(1) == b"\n" else b"\n" + data
            written = file.write(data)
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(
            f"Results cannot be written to {path} ({error.strerror}): "
            "choose another file with --results."
        ) from None
    if written != len(data):
        raise InputError(f"Results were written to {path} in part only: make room on the disk.")
