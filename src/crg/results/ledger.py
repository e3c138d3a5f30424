"""The ledger: a results file that only grows, one line per run, read once per command.

Results files are text, which people copy, cut and edit. A line that is damaged, or whose accuracy
is not that of its own answers, is left out with a sentence and stops nothing.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crg.atomic import locked_folder
from crg.results.schema import Entry, LineError, Metrics, Run, decode, encode
from crg.types import InputError, limit

DEFAULT_PATH = "crg-results.jsonl"
MAX_BYTES = limit("CRG_MAX_RESULTS", 1_000_000_000)  # of a results file, decompressed
_SLACK = 1e-9  # of an accuracy that somebody rounded in writing

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class LeftOut:
    """A line that is not used; ``why`` continues from "it" or "each"."""

    number: int
    why: str
    entry: Entry | None = None  # None where it cannot be read at all


@dataclass(frozen=True)
class Ledger:
    """What a results file holds: entries by line number, counted from 1, and lines left out."""

    entries: Mapping[int, Entry] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()

    @property
    def runs(self) -> dict[str, Run]:
        """The latest full record of each run, by key."""
        return {each.key: each for each in self.entries.values() if isinstance(each, Run)}

    @property
    def n_lines(self) -> int:
        """How many lines there are, without empty ones at the end."""
        return max((*self.entries, *(line.number for line in self.left_out)), default=0)


def read(path: PathLike) -> Ledger:
    """Everything in a results file; a file that is not there holds nothing."""
    entries: dict[int, Entry] = {}
    left_out: list[LeftOut] = []
    for number, line in enumerate(_lines(Path(path)), start=1):
        if not line.strip():
            continue
        try:
            entry = decode(line)
        except LineError as error:
            left_out.append(LeftOut(number, str(error)))
            continue
        why = contradiction(entry) if isinstance(entry, Run) else None
        if why is None:
            entries[number] = entry
        else:
            left_out.append(LeftOut(number, why, entry))
    return Ledger(entries, tuple(left_out))


def left_out_notes(path: PathLike, lines: Iterable[LeftOut]) -> list[str]:
    """A sentence per reason for which lines were left out.

    >>> left_out_notes("a.jsonl", [LeftOut(2, "is truncated"), LeftOut(5, "is truncated")])
    ['Lines 2, 5 of a.jsonl were left out: each is truncated.']
    """
    numbers: dict[str, list[int]] = {}
    for line in lines:
        numbers.setdefault(line.why, []).append(line.number)
    return [
        f"Line {found[0]} of {path} was left out: it {why}."
        if len(found) == 1
        else f"Lines {', '.join(map(str, found))} of {path} were left out: each {why}."
        for why, found in numbers.items()
    ]


def contradiction(run: Run) -> str | None:
    """Where an accuracy or a count of images is not that of the answers; None where all agree."""
    for measured in (run.measured, run.baseline):
        n_scored = run.n_samples if measured.n_scored is None else measured.n_scored
        try:
            why = _contradiction(measured, n_scored)
        except ValueError:  # not hexadecimal
            why = "has answers that are not bits"
        if why is not None:
            return f"{why}, so run it again with crg bench"
    return None


def _contradiction(measured: Metrics, n_scored: int) -> str | None:
    if measured.streamed is not None and _count(measured.streamed) != n_scored:
        return f"counts {n_scored} scored images and names others"
    if measured.right_in_order is not None and 4 * len(measured.right_in_order) < n_scored:
        return f"has answers to fewer than its {n_scored} images"
    for bits in (measured.correct, measured.right_in_order):
        if bits is None or measured.accuracy is None:
            continue
        right = _count(bits)
        if abs(measured.accuracy * n_scored - right) > _SLACK * n_scored:
            given = f"gives an accuracy of {100 * measured.accuracy:.2f}%"
            return f"{given} where {right} of {n_scored} answers were right"
    return None


def _count(bits: str) -> int:
    return int.from_bytes(bytes.fromhex(bits), "big").bit_count()


def append(path: PathLike, entry: Entry) -> None:
    """Add one line in a single write, so that writers side by side never mix their lines."""
    line = encode(entry) + b"\n"
    _append_bytes(Path(path), b"\n" * (not _ends_cleanly(Path(path))) + line)


class Writer:
    """Adds runs to a results file that others may be writing to as well.

    Two calls of ``crg bench`` at once have the same runs to do. Before a line is written, what
    was added since the last one is read, so whoever comes second writes nothing.
    """

    def __init__(self, path: PathLike) -> None:
        self._path, self._end = Path(path), 0
        self._keys: set[str] = set()

    def add(self, entry: Entry) -> bool:
        """Write the line of a run or of its failure; False if the run is there already."""
        with locked_folder(self._path, wait=True):  # nobody writes between the look and the line
            self._catch_up()
            if entry.key in self._keys:
                return False
            append(self._path, entry)
            return True

    def _catch_up(self) -> None:
        if not self._path.exists() or self._path.stat().st_size < self._end:  # another file
            self._end, self._keys = 0, set()
        keys, self._end = run_keys_from(self._path, self._end)
        self._keys |= keys


def run_keys_from(path: PathLike, start: int) -> tuple[set[str], int]:
    """Keys of the runs in the complete lines after a byte of a file, and where these lines end."""
    try:
        with Path(path).open("rb") as file:
            file.seek(start)
            content = file.read()
    except OSError:  # no file yet; what else is wrong the write will say
        return set(), start
    whole = content[: content.rfind(b"\n") + 1]
    keys = set()
    for line in whole.splitlines():
        with contextlib.suppress(LineError):
            entry = decode(line)
            if isinstance(entry, Run) and contradiction(entry) is None:
                keys.add(entry.key)
    return keys, start + len(whole)


def check_writable(path: PathLike, or_none: bool = False) -> None:
    """Refuse a results file that cannot be appended to, before any time is spent on runs.

    A file that holds something else, such as a feature file named by mistake, is left alone.
    ``or_none``: the command also runs without one, which the refusal names.
    """
    if not _is_ours(Path(path)):
        raise InputError(
            f"{path} is no results file: choose another with --results, which may be new."
        )
    _append_bytes(Path(path), b"", " or none with --no-results" if or_none else "")


def _is_ours(path: Path) -> bool:
    """Whether a file is new, empty, or has a line of results at its start or anywhere at all."""
    try:
        if not path.is_file() or not path.stat().st_size:
            return path.suffix != ".gz"  # nothing is added to a compressed file
        with path.open("rb") as file:
            return file.read(1) == b"{" and file.seek(0) == 0 and any(map(_is_line, file))
    except OSError:
        return True  # what is wrong the write will say


def _is_line(line: bytes) -> bool:
    try:
        return bool(decode(line).key)
    except LineError as error:
        return "not ours" not in str(error)


def make_folder(path: PathLike) -> None:
    """Make the folder that a results file is in."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from None


def _lines(path: Path) -> list[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return []
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{path} is damaged: restore it from a copy.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    if len(content) > MAX_BYTES:
        raise InputError(
            f"{path} holds more than {MAX_BYTES:,} bytes of results: split it or set "
            "CRG_MAX_RESULTS."
        )
    return content.split(b"\n")


def _append_bytes(path: Path, data: bytes, otherwise: str = "") -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            written = os.write(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise _unwritable(path, error, otherwise) from None
    if written != len(data):
        raise InputError(f"Results were written to {path} in part only: make room on the disk.")


def _unwritable(path: PathLike, error: OSError, otherwise: str = "") -> InputError:
    return InputError(
        f"Results cannot be written to {path} ({error.strerror}): "
        f"choose another file with --results{otherwise}."
    )


def _ends_cleanly(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return True
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:
        return True  # no file yet; what else is wrong the write will say
