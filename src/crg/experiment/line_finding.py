"""Finding the line of a results file that somebody means: by its number, or by a run's key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crg import results
from crg.soundness import lacking
from crg.types import InputError

_NUMBER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Line:
    """A run with the place where it stands."""

    file: str
    number: int
    record: results.Record


def find_line(text: str, files: Sequence[str | Path]) -> Line:
    """The run that ``NUMBER``, ``FILE:NUMBER`` or the start of a key stands for."""
    file, colon, number = text.rpartition(":")
    if colon and _NUMBER.fullmatch(number):
        return _numbered(file, int(number))
    if text.isdecimal() and len(text) < 10:  # a key has 32 digits and letters
        if len(files) != 1:
            raise InputError(f"Line {text} of which file: write FILE:{text}.")
        return _numbered(str(files[0]), int(text))
    named = next((each for each in (text, file) if each and Path(each).is_file()), None)
    if named is not None:
        raise InputError(f"Which line of {named}: write {named}:NUMBER, counted from 1.")
    return _by_key(text, files)


def _numbered(file: str, number: int) -> Line:
    if not Path(file).is_file():
        raise InputError(f"There is no file {file}: name the results file with --results.")
    ledger = results.read_ledger(file)
    if not 1 <= number <= ledger.n_lines:
        lines = "1 line" if ledger.n_lines == 1 else f"{ledger.n_lines} lines"
        raise InputError(f"{file} has no line {number}: it has {lines}, which count from 1.")
    record = _readable(ledger).get(number)
    if record is None:
        why = {line.number: line.why for line in ledger.left_out}.get(number, "is empty")
        raise InputError(f"Line {number} of {file} {why}: name the line of a run.")
    kind = record.get("kind")
    if kind is not None:
        raise InputError(
            f"Line {number} of {file} is of the kind {kind!r}: name the line of a run."
        )
    fault = lacking(record)
    if fault is not None:
        raise InputError(f"Line {number} of {file} {fault}.")
    return Line(file, number, record)


def _readable(ledger: results.Ledger) -> dict[int, results.Record]:
    """Lines by number, also those that are not believed: to repeat them tells what is true."""
    doubtful = {each.number: dict(each.record) for each in ledger.left_out if each.record}
    return doubtful | dict(zip(ledger.numbers, ledger.records, strict=True))


def _by_key(start: str, files: Sequence[str | Path]) -> Line:
    found: dict[str, Line] = {}
    for file in files:
        for number, record in sorted(_readable(results.read_ledger(file)).items()):
            is_run = record.get("kind") is None and lacking(record) is None
            if is_run and record["key"].startswith(start):
                found[record["key"]] = Line(str(file), number, record)  # the latest counts
    if len(found) == 1:
        return next(iter(found.values()))
    where = ", ".join(str(file) for file in files) or "no results file"
    if not found:
        raise InputError(f"No run has a key that begins with {start!r} in {where}: see --results.")
    raise InputError(f"{len(found)} runs have keys that begin with {start!r}: give more of it.")
