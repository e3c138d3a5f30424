"""Repeating a run from its line in a results file, and comparing everything that was measured.

Archived lines, which ``tools/keep_results.py`` writes, have all that is needed to repeat a run, and
in place of most metrics a digest of everything that was measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from crg.bench.plan import code_digest
from crg.bench.sources import OnEncoding, discover, render_store, shapes_in
from crg.engine.processes import run_all
from crg.engine.worker import read_once
from crg.features.joining import joined_sha256
from crg.results import ledger, provenance
from crg.results.schema import Data, Failure, LineError, Result, decode
from crg.threads import processors
from crg.types import InputError, counted

KEPT = ("accuracy", "ece", "nll")
# Two runs never have these in common, even on the same machine.
NOT_COMPARED = ("ms_per_step", "ms_per_step_median", "peak_bytes")


def measured_values(run: Result) -> dict[str, Any]:
    """Everything that must be the same when a run is repeated, by name."""
    named: dict[str, Any] = {"n_samples": run.n_samples}
    for part, prefix in (("options", "options: "), ("metrics", ""), ("zero_shot", "zero_shot: ")):
        values: Mapping[str, Any] = getattr(run, part)
        named |= {f"{prefix}{k}": each for k, each in values.items() if k not in NOT_COMPARED}
    return named


def digest_of(run: Result) -> str:
    """A digest of everything that must be the same when the run is repeated."""
    text = json.dumps(measured_values(run), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def find_run(line: str) -> Result:
    """The run in a line of a results file, given as FILE:NUMBER.

    Its numbers may contradict each other: repeating it shows the truth.
    """
    file, _, digits = line.rpartition(":")
    if not digits.isdecimal() or not Path(file).is_file():
        raise InputError(f"{line} names no run: write FILE:NUMBER, its line counted from 1.")
    number, lines = int(digits), ledger.read_bytes(Path(file)).rstrip().split(b"\n")
    if not 1 <= number <= len(lines):
        there = counted(len(lines), "line")
        raise InputError(f"{file} has no line {number}: it has {there}, which count from 1.")
    try:
        entry = decode(lines[number - 1])
    except LineError as error:
        raise InputError(f"Line {number} of {file} {error}: name the line of a run.") from None
    if not isinstance(entry, Result):
        raise InputError(f"Line {number} of {file} is not a run: name the line of one.")
    return entry


def check_trusted(run: Result, given: Sequence[str]) -> None:
    """Refuse plug-ins that the user did not name: a line may come from a stranger."""
    named = {Path(each).stem for each in given}
    missing = [each for each in run.plugins if Path(each).stem not in named]
    if missing:
        raise InputError(
            f"The run used the plug-in {missing[0]}, which runs code and is not loaded because a "
            "results file names it: name it with --plugin if you trust it."
        )


def moved(run: Result, place: Callable[[str], str]) -> Result:
    """The run with each path replaced."""
    few = None if run.few is None else Data(place(run.few.path), run.few.sha256)
    data, then = Data(place(run.data.path), run.data.sha256), tuple(map(place, run.then))
    return replace(run, data=data, then=then, few=few)


def check_data(run: Result) -> None:
    """Refuse data that is gone or has changed since the run."""
    paths = (run.data.path, *run.then)
    digests = [_digest(path) for path in paths]
    changed: list[str] = []
    if run.data.sha256 != (joined_sha256(digests) if run.then else digests[0]):
        changed += paths
    if run.few is not None and _digest(run.few.path) != run.few.sha256:
        changed.append(run.few.path)
    if any(shapes_in(Path(path).name) for path in changed):
        raise InputError(
            f"{' or '.join(changed)} differs from what the run saw, as another processor may "
            "encode shapes with other last bits: measure the experiment here with crg bench."
        )
    if changed:
        raise InputError(f"{' or '.join(changed)} has changed since the run: restore what it was.")


def _digest(path: str) -> str | None:
    if not Path(path).exists():
        raise InputError(
            f"{path} is not there: name the folder it is in with --data, or make it again with "
            "the crg bench or crg encode that made it."
        )
    return read_once(path).sha256


def changed_since(run: Result) -> list[str]:
    """Sentences on what has changed: versions, the machine, the code of the method."""
    notes = []
    now = provenance.surroundings()
    for kind, then in (("versions", run.versions), ("machine", run.machine)):
        for name, value in now[kind].items():
            if name in then and then[name] != value:
                is_now = "is not installed" if value is None else f"is {value}"
                notes.append(f"{name} was {then[name]} and {is_now}.")
    if code_digest(run.method) != run.code:
        notes.append(f"the code of {run.method} has changed.")
    return notes


def rerun(
    line: str,
    data: Sequence[Path],
    folder: Path,
    plugins: Sequence[str],
    on_note: Callable[[str], None],
    on_encoding: OnEncoding,
) -> tuple[Result, list[str], dict[str, tuple[Any, Any]]]:
    """Repeat the run of a line: the run, equal values, and pairs of the others.

    Lost files are looked for below ``data``, and lost shapes are rendered again into ``folder``.
    """
    run = find_run(line)
    check_trusted(run, plugins)
    there = {Path(each.path).name: each.path for each in discover(data)}

    def find(path: str) -> str:
        name = Path(path).name
        if Path(path).exists() or name in there:
            return path if Path(path).exists() else there[name]
        if shapes_in(name) and not (folder / name).exists():
            on_note(f"{name} is not there and is rendered again into {folder}.")
        return str(render_store(name, folder, processors(), on_encoding) or path)

    run = moved(run, find)
    check_data(run)
    for sentence in changed_since(run):
        on_note(sentence)
    return run, *_repeat(run, plugins)


def _repeat(run: Result, plugins: Sequence[str]) -> tuple[list[str], dict[str, tuple[Any, Any]]]:
    """The names of values that are equal to the last bit, and the others before and now."""
    spec = replace(run, plugins=tuple(plugins), memory=False)
    [(_, result)] = run_all([spec])
    if isinstance(result, Failure):
        raise InputError(f"The run failed ({result.reason.rstrip('.')}): run crg bench for more.")
    if run.digest is None:
        before, after = measured_values(run), measured_values(result)
    else:
        before = {"digest": run.digest, **{k: run.metrics[k] for k in KEPT if k in run.metrics}}
        after = {"digest": digest_of(result), **result.metrics}
        after = {name: after.get(name) for name in before}
    after = json.loads(json.dumps(after))  # tuples become lists, as in the line
    pairs = {name: (before.get(name), after.get(name)) for name in {**before, **after}}
    other = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return [name for name in pairs if name not in other], other
