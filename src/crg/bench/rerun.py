"""Repeating a run from its line in a results file, and comparing all that was measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from crg.bench.keys import origin_of
from crg.bench.rendered import shapes_in
from crg.bench.shortening import DIGEST, digest_of, measured_values
from crg.bench.sources import discover
from crg.engine import RunSpec, read_once, results_only, run_all
from crg.features.joining import joined_sha256
from crg.plugins import load_plugins
from crg.results import ledger
from crg.results import ledger as results
from crg.results.schema import encode
from crg.results.soundness import lacking
from crg.streams.scenario import Scenario
from crg.types import InputError, Result

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


def _readable(ledger: results.RecordLedger) -> dict[int, results.Record]:
    """Lines by number, also those that are not believed: to repeat them says what is true."""
    doubtful = {
        each.number: json.loads(encode(each.entry)) for each in ledger.left_out if each.entry
    }
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


Render: TypeAlias = Callable[[str], Path | None]  # makes the store of a name again


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


def spec_of(record: Mapping[str, Any]) -> RunSpec:
    """The run that a record reports, ready to be run again."""
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
        raise InputError(_other_data((spec.path, *spec.then)))
    few = record.get("few")
    if few is not None and _digest(few["path"]) != few["sha256"]:
        raise InputError(_other_data((few["path"],)))


def _other_data(paths: Sequence[str]) -> str:
    files = " or ".join(paths)
    if any(shapes_in(Path(path).name) for path in paths):
        return (
            f"{files} is not what the run saw, as another processor or version may encode shapes "
            "with other last bits: repeat the run on a machine like its own, or measure the "
            "experiment here with crg bench."
        )
    return f"{files} has changed since the run: restore what it was."


def changed_since(record: Mapping[str, Any]) -> list[str]:
    """Sentences on what is not as it was: versions, the machine, the code of the method."""
    load_plugins(record.get("plugins") or ())
    notes = []
    now = ledger.surroundings()
    for kind in ("versions", "machine"):
        then = record.get(kind) or {}
        for name, value in now[kind].items():
            if name in then and then[name] != value:  # older lines have fewer of them
                is_now = "is not installed" if value is None else f"is {value}"
                notes.append(f"{name} was {then[name]} and {is_now}.")
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


def with_data_at(
    record: Mapping[str, Any], paths: Iterable[Path], render: Render = lambda name: None
) -> dict[str, Any]:
    """The record with paths that are gone replaced by files of the same name below ``paths``.

    What is not there either ``render`` may make again, which is given the name and returns the
    place, or None where it cannot. Whether it is the same data ``check_data`` tells.
    """
    there = {each.path.name: str(each.path) for each in discover(paths)}

    def place(path: str) -> str:
        name = Path(path).name
        if Path(path).exists() or name in there:
            return path if Path(path).exists() else there[name]
        return str(render(name) or path)

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
