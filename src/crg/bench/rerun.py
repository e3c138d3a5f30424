"""Repeating a run from its line in a results file, and comparing all that was measured.

Archived lines are small enough to keep for good. They have all that is needed to repeat a run,
and of what was measured the main figures and a digest of everything. On rendered shapes they have
the answers, too: another processor may encode shapes with other last bits, so that a run is
repeated on features that are close to its own, and what counts is how many answers are equal.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any, TypeAlias, TypeVar

import numpy as np
from msgspec.structs import replace

from crg.atomic import replacing
from crg.bench.rendered import shapes_in
from crg.bench.sources import discover, origin_of
from crg.engine import RunSpec, read_once, results_only, run_all
from crg.features.joining import joined_sha256
from crg.results import ledger, provenance
from crg.results.measurements import predicted_rows
from crg.results.schema import (
    ArchivedRun,
    Data,
    Entry,
    LineError,
    Other,
    Run,
    decode,
    encode,
)
from crg.streams import Scenario
from crg.types import InputError, Result

DIGEST = "digest"
SHORT = "short"  # kind of a line that was no run, and only keeps its place
ANSWERS = "answers"  # of an archived run: a letter per row, which compresses best over orders
_FIRST_LETTER = 256  # of class 0; that before it is for a row that did not come
_KEPT = ("accuracy", "ece", "nll")
# What zero-shot's NLL on the same stream may differ by where the features have other last bits.
# Noise of 1e-6 on each number changes it by 1e-7, one of 1e-3 by 1e-3, one of 0.1 by 0.1.
_CLOSE = 1e-3
# What no two runs have in common, even on the same machine.
NOT_COMPARED = ("ms_per_step", "ms_per_step_median", "peak_bytes")
_NUMBER = re.compile(r"[+-]?\d+")
AnyRun: TypeAlias = Run | ArchivedRun


def measured_values(run: Run | Result) -> dict[str, Any]:
    """Everything that must be the same when a run is repeated, each under a name of its own."""
    named: dict[str, Any] = {}
    for part in ("options", "n_samples", "metrics", "zero_shot"):
        value = getattr(run, part)
        if not isinstance(value, Mapping):
            named[part] = value
            continue
        prefix = "" if part == "metrics" else f"{part}: "
        named |= {f"{prefix}{k}": each for k, each in value.items() if k not in NOT_COMPARED}
    return named


def digest_of(run: Run | Result) -> str:
    """A digest of everything that must be the same when the run is repeated."""
    text = json.dumps(measured_values(run), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def archived(entry: Entry) -> Entry:
    """The archived form of any line of a results file; of paths only the last part is kept."""
    if isinstance(entry, ArchivedRun):
        return entry
    if not isinstance(entry, Run):
        return Other(key=entry.key, kind=SHORT)
    shared = {
        name: getattr(entry, name) for name in ArchivedRun.__struct_fields__ if name != DIGEST
    }
    short = ArchivedRun(**shared, digest=digest_of(entry))
    kept, baseline = _only(_KEPT, entry.metrics), {}
    if _is_rendered(entry.data.path) and "predicted" in entry.metrics:
        rows = predicted_rows(entry.metrics) + _FIRST_LETTER
        kept[ANSWERS] = "".join(map(chr, rows.tolist()))
        baseline = _only(("nll",), entry.zero_shot)
    moved = _moved(short, lambda path: PurePath(path).name)
    return replace(moved, metrics=kept, zero_shot=baseline)


def _only(names: Iterable[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def _is_rendered(path: str) -> bool:
    """Whether the name is that of a store of shapes, which says all that decides its content."""
    return shapes_in(PurePath(path).name) is not None


def archive_file(source: Path, target: Path) -> None:
    """A compressed file with an archived line for each line of ``source``, under its number."""
    lines = []
    for line in source.read_bytes().splitlines():
        try:
            lines.append(encode(archived(decode(line))))
        except LineError:
            lines.append(b"")  # truncated: the numbers of the others stay
    with replacing(target) as partial:
        # Without a time in it, equal results make equal files.
        partial.write_bytes(gzip.compress(b"\n".join([*lines, b""]), mtime=0))


@dataclass(frozen=True)
class Line:
    """A run with the place where it stands."""

    file: str
    number: int
    run: AnyRun


def is_number(text: str) -> bool:
    """Whether a text is the number of a line, and not the start of a key without letters."""
    return text.isdecimal() and len(text) < 10


def find_line(text: str, files: Sequence[str | Path]) -> Line:
    """The run that ``NUMBER``, ``FILE:NUMBER`` or the start of a key stands for."""
    file, colon, number = text.rpartition(":")
    if colon and _NUMBER.fullmatch(number):
        return _numbered(file, int(number))
    if is_number(text):
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
    known = ledger.read(file)
    if not 1 <= number <= known.n_lines:
        lines = "1 line" if known.n_lines == 1 else f"{known.n_lines} lines"
        raise InputError(f"{file} has no line {number}: it has {lines}, which count from 1.")
    entry = _readable(known).get(number)
    if entry is None:
        why = {line.number: line.why for line in known.left_out}.get(number, "is empty")
        raise InputError(f"Line {number} of {file} {why}: name the line of a run.")
    if not isinstance(entry, AnyRun):
        raise InputError(
            f"Line {number} of {file} is of the kind {entry.kind!r}: name the line of a run, "
            f"such as {_some_run(known)}."
        )
    return Line(file, number, entry)


def _some_run(known: ledger.Ledger) -> str:
    """The number of the first line that is a run."""
    runs = (number for number, entry in _readable(known).items() if isinstance(entry, AnyRun))
    return str(next(runs, "one that crg run adds"))


def _readable(known: ledger.Ledger) -> dict[int, Entry]:
    """Lines by number, also those that are not believed: to repeat them says what is true."""
    doubtful = {line.number: line.entry for line in known.left_out if line.entry is not None}
    return {**doubtful, **known.entries}


def _by_key(start: str, files: Sequence[str | Path]) -> Line:
    found: dict[str, Line] = {}
    for file in files:
        for number, entry in sorted(_readable(ledger.read(file)).items()):
            if isinstance(entry, AnyRun) and entry.key.startswith(start):
                found[entry.key] = Line(str(file), number, entry)  # the latest counts
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
    differences: Mapping[str, tuple[Any, Any]]  # what differs: before, now
    answers: tuple[int, int] | None = None  # how many are equal, of how many

    @property
    def is_same(self) -> bool:
        """Whether everything is the same to the last bit."""
        return not self.other


def spec_of(run: AnyRun) -> RunSpec:
    """The run of a line, ready to be run again."""
    return RunSpec(
        path=run.data.path,
        method=run.method,
        options=run.given,
        seed=run.seed,
        few=None if run.few is None else run.few.path,
        then=run.then,
        scenario=Scenario(**run.scenario),
    )


def check_data(run: AnyRun) -> bool:
    """Refuse data that is gone or not what it was; False for shapes with other bits.

    How far those are from what the run saw, ``repeat`` finds out.
    """
    paths = (run.data.path, *run.then)
    digests = [_digest(path) for path in paths]
    other: list[str] = []
    if run.data.sha256 != (joined_sha256(digests) if run.then else digests[0]):
        other += paths
    if run.few is not None and _digest(run.few.path) != run.few.sha256:
        other.append(run.few.path)
    if not all(map(_is_rendered, other)):
        raise InputError(f"{' or '.join(other)} has changed since the run: restore what it was.")
    return not other


def check_close(run: AnyRun, result: Result) -> None:
    """Refuse features on which zero-shot is another than on those that the run saw."""
    before, now = run.zero_shot.get("nll"), result.zero_shot.get("nll")
    if before is None or now is None or abs(before - now) > _CLOSE:
        files = " or ".join((run.data.path, *run.then))
        raise InputError(
            f"{files} is not what the run saw, for zero-shot has another NLL on it: install the "
            "version of crg that the line names, or measure the experiment here with crg bench."
        )


def changed_since(run: AnyRun) -> list[str]:
    """Sentences on what is not as it was: versions, the machine, the code of the method."""
    notes = []
    now = provenance.surroundings()
    for kind, then in (("versions", run.versions), ("machine", run.machine)):
        for name, value in now[kind].items():
            if name in then and then[name] != value:  # older lines have fewer of them
                is_now = "is not installed" if value is None else f"is {value}"
                notes.append(f"{name} was {then[name]} and {is_now}.")
    if origin_of(run.data.path, None, run.method, ()).code != run.code:
        notes.append(f"the code of {run.method} was another one.")
    return notes


def compare(run: AnyRun, result: Result) -> Repetition:
    """Everything that was measured, before and now; times and memory are left out."""
    now = Result(**json.loads(json.dumps(asdict(result))))
    if isinstance(run, ArchivedRun):
        known = {name: value for name, value in run.metrics.items() if name != ANSWERS}
        before: dict[str, Any] = {DIGEST: run.digest, **known}
        after: dict[str, Any] = {DIGEST: digest_of(now), **now.metrics}
        after = {name: after.get(name) for name in before}
    else:
        before, after = measured_values(run), measured_values(now)
    same: list[str] = []
    differences: dict[str, tuple[Any, Any]] = {}
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) == after.get(name) and name in before and name in after:
            same.append(name)
        else:
            differences[name] = (before.get(name), after.get(name))
    answers = _equal_answers(run.metrics, now.metrics)
    return Repetition(tuple(same), tuple(differences), differences, answers)


def _equal_answers(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[int, int] | None:
    """How many answers are equal and how many there are; None where the line has none."""
    if "predicted" not in now or not before.keys() & {ANSWERS, "predicted"}:
        return None
    new = predicted_rows(now)
    if ANSWERS in before:
        old = np.array([ord(letter) - _FIRST_LETTER for letter in before[ANSWERS]])
    else:
        old = predicted_rows(before)
    came = old >= 0
    return (int((old == new)[came].sum()), int(came.sum())) if len(old) == len(new) else None


def check_trusted(run: AnyRun, given: Sequence[str]) -> None:
    """A line may come from a stranger: plug-ins are named by people."""
    named = {Path(each).stem for each in given}
    missing = [each for each in run.plugins if Path(each).stem not in named]
    if missing:
        raise InputError(
            f"The run used the plug-in {missing[0]}, which runs code and is not loaded because a "
            "results file names it: name it with --plugin if you trust it."
        )


def repeat(run: AnyRun, plugins: Sequence[str] = (), same_data: bool = True) -> Repetition:
    """Run it again, with the plug-ins that a person named, and compare.

    Without ``same_data``, see ``check_data``, the features must be close to those of the run.

    The last bits depend on how BLAS was made to use one thread: by its environment, as in the
    worker processes of ``crg bench``, or while it runs, as in ``crg run``. A line does not say
    which of the two made it, so the second is tried where the first gives other bits.
    """
    tried = []
    for isolated in (True, False):
        outcomes = run_all([spec_of(run)], 1, plugins, isolated=isolated)
        [(_, result)] = results_only(outcomes)
        if not same_data:
            check_close(run, result)
            return compare(run, result)
        tried.append(compare(run, result))
        if tried[-1].is_same:
            return tried[-1]
    return tried[0]


def with_data_at(run: AnyRun, paths: Iterable[Path], render: Render = lambda name: None) -> AnyRun:
    """The run with paths that are gone replaced by files of the same name below ``paths``.

    What is not there either ``render`` may make again, which is given the name and returns the
    place, or None where it cannot. Whether it is the same data ``check_data`` says.
    """
    there = {each.path.name: str(each.path) for each in discover(paths)}

    def place(path: str) -> str:
        name = Path(path).name
        if Path(path).exists() or name in there:
            return path if Path(path).exists() else there[name]
        return str(render(name) or path)

    return _moved(run, place)


R = TypeVar("R", Run, ArchivedRun, AnyRun)


def _moved(run: R, place: Callable[[str], str]) -> R:
    """The run with each path put elsewhere."""
    few = None if run.few is None else Data(place(run.few.path), run.few.sha256)
    data, then = Data(place(run.data.path), run.data.sha256), tuple(map(place, run.then))
    return replace(run, data=data, then=then, few=few)


def _digest(path: str) -> str | None:
    if not Path(path).exists():
        raise InputError(
            f"{path} is not there: name the folder it is in with --data, or make it again with "
            "the crg bench or crg encode that made it."
        )
    return read_once(path).sha256
