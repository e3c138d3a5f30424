"""Repeating a run from its line in a results file, and comparing all that was measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crg import results
from crg.engine import RunSpec, read_once, results_only, run_all
from crg.experiment.discovery import discover
from crg.experiment.shortening import DIGEST, digest_of, measured_values
from crg.grid import origin_of
from crg.joining import joined_sha256
from crg.plugins import load_plugins
from crg.scenario import Scenario
from crg.types import InputError, Result


@dataclass(frozen=True)
class Line:
    """A run with the place where it stands."""

    file: str
    number: int
    record: results.Record


@dataclass(frozen=True)
class Repetition:
    """A run beside its repetition: names of what is the same and of what is not."""

    same: tuple[str, ...]
    other: tuple[str, ...]
    differences: Mapping[str, tuple[Any, Any]]  # numbers that differ: before, now

    @property
    def is_same(self) -> bool:
        """Whether everything is the same to the last bit."""
        return not self.other


def find_line(text: str, files: Sequence[str | Path]) -> Line:
    """The run that ``NUMBER``, ``FILE:NUMBER`` or the start of a key stands for."""
    file, colon, number = text.rpartition(":")
    if colon and number.isdecimal():
        return _numbered(file, int(number))
    if text.isdecimal() and len(text) < 10:  # a key has 32 digits and letters
        if len(files) != 1:
            raise InputError(f"Line {text} of which file: write FILE:{text}.")
        return _numbered(str(files[0]), int(text))
    return _by_key(text, files)


def spec_of(record: Mapping[str, Any]) -> RunSpec:
    """The run that a record tells of, ready to be run again."""
    few = record.get("few")
    return RunSpec(
        path=record["data"]["path"],
        method=record["method"],
        options=dict(record["given"]),
        seed=record["seed"],
        few=None if few is None else few["path"],
        then=tuple(record.get("then") or ()),
        scenario=Scenario(**(record.get("scenario") or {})),
    )


def check_data(record: Mapping[str, Any]) -> None:
    """Refuse data that is gone or not what it was."""
    spec = spec_of(record)
    digests = [_digest(path) for path in (spec.path, *spec.then)]
    now = joined_sha256(digests) if spec.then else digests[0]
    if now != record["data"]["sha256"]:
        files = " or ".join((spec.path, *spec.then))
        raise InputError(f"{files} has changed since the run: restore what it was.")
    few = record.get("few")
    if few is not None and _digest(few["path"]) != few["sha256"]:
        raise InputError(f"{few['path']} has changed since the run: restore what it was.")


def changed_since(record: Mapping[str, Any]) -> list[str]:
    """Sentences on what is not as it was: versions, the machine, the code of the method."""
    load_plugins(record.get("plugins") or ())
    notes = []
    now = results.surroundings()
    for kind in ("versions", "machine"):
        then = record.get(kind) or {}
        for name, value in now[kind].items():
            if then.get(name) != value:
                notes.append(f"{name} was {then.get(name)} and is {value}.")
    origin = origin_of(record["data"]["path"], None, record["method"], ())
    if origin.code != record.get("code"):
        notes.append(f"the code of {record['method']} was another one.")
    return notes


def compare(record: Mapping[str, Any], result: Result) -> Repetition:
    """Everything that was measured, before and now; times and memory are left out."""
    now = json.loads(json.dumps(asdict(result)))
    if DIGEST in record:
        before: dict[str, Any] = {DIGEST: record[DIGEST], **record["metrics"]}
        after: dict[str, Any] = {DIGEST: digest_of(now), **now["metrics"]}
        after = {name: after.get(name) for name in before}
    else:
        before, after = measured_values(record), measured_values(now)
    same: list[str] = []
    differences: dict[str, tuple[Any, Any]] = {}
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) == after.get(name) and name in before and name in after:
            same.append(name)
        else:
            differences[name] = (before.get(name), after.get(name))
    return Repetition(tuple(same), tuple(differences), differences)


def repeat(record: Mapping[str, Any]) -> Repetition:
    """Run it again and compare.

    The last bits depend on how BLAS was told to use one thread: by its environment, as in the
    worker processes of ``crg bench``, or while it runs, as in ``crg run``. A line does not say
    which of the two made it, so the second is tried where the first gives other bits.
    """
    spec, plugins = spec_of(record), tuple(record.get("plugins") or ())
    tried = []
    for isolated in (True, False):
        [(_, result)] = results_only(run_all([spec], 1, plugins, isolated=isolated))
        tried.append(compare(record, result))
        if tried[-1].is_same:
            return tried[-1]
    return tried[0]


def with_data_at(record: Mapping[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """The record with paths that are gone replaced by files of the same name below ``paths``.

    Whether they hold the same data ``check_data`` tells.
    """
    there = {each.path.name: str(each.path) for each in discover(paths)}

    def place(path: str) -> str:
        return path if Path(path).exists() else there.get(Path(path).name, path)

    few = record.get("few")
    return {
        **record,
        "data": {**record["data"], "path": place(record["data"]["path"])},
        "then": [place(path) for path in record.get("then") or ()],
        "few": None if few is None else {**few, "path": place(few["path"])},
    }


def _digest(path: str) -> str | None:
    if not Path(path).exists():
        raise InputError(
            f"{path} is not there: name the folder it is in with --data, or make it again with "
            "the crg bench or crg encode that made it."
        )
    return read_once(path).sha256


def _numbered(file: str, number: int) -> Line:
    if not Path(file).is_file():
        raise InputError(f"There is no file {file}: name the results file with --results.")
    ledger = results.read_ledger(file)
    if number in ledger.torn:
        raise InputError(f"Line {number} of {file} is torn or not ours: name the line of a run.")
    record = dict(zip(ledger.numbers, ledger.records, strict=True)).get(number)
    if record is None:
        raise InputError(f"{file} has no line {number}: its lines count from 1.")
    if "metrics" not in record:
        kind = record.get("kind", "unknown")
        raise InputError(
            f"Line {number} of {file} is of the kind {kind!r}: name the line of a run."
        )
    return Line(file, number, record)


def _by_key(start: str, files: Sequence[str | Path]) -> Line:
    found: dict[str, Line] = {}
    for file in files:
        ledger = results.read_ledger(file)
        for number, record in zip(ledger.numbers, ledger.records, strict=True):
            if record["key"].startswith(start) and "metrics" in record:
                found[record["key"]] = Line(str(file), number, record)  # the latest counts
    if len(found) == 1:
        return next(iter(found.values()))
    where = ", ".join(str(file) for file in files) or "no results file"
    if not found:
        raise InputError(f"No run has a key that begins with {start!r} in {where}: see --results.")
    raise InputError(f"{len(found)} runs have keys that begin with {start!r}: give more of it.")
