"""Running an experiment: only what is missing, each run written as soon as it is done."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from crg.bench.plan import Job, Plan
from crg.engine import Failure, OnProgress, Outcome, RunSpec, run_all, run_all_on_ray
from crg.results import ledger
from crg.results.outline import NO_OUTLINE, from_record
from crg.types import InputError


class Keeper:
    """Adds lines to a results file that others may be writing, too.

    Two calls of ``crg bench`` at once have the same runs to do. Before a line is written, what
    the file has got since the last one is read, so whoever comes second writes nothing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._end = Path(path), 0
        self._keys: set[str] = set()

    def add(self, record: ledger.Record) -> bool:
        """Write the line of a run or of its failure; False if the run is there already."""
        self._catch_up()
        if record["key"] in self._keys:
            return False
        ledger.append(self._path, record)
        return True

    def _catch_up(self) -> None:
        if not self._path.exists() or self._path.stat().st_size < self._end:  # another file
            self._end, self._keys = 0, set()
        keys, self._end = ledger.run_keys_from(self._path, self._end)
        self._keys |= keys


Engine: TypeAlias = Literal["processes", "ray"]


@dataclass(frozen=True)
class Machinery:
    """Who does the runs."""

    engine: Engine = "processes"
    workers: int | None = None  # None: as many as fit
    address: str | None = None  # of a Ray cluster

    def __post_init__(self) -> None:
        if self.address is not None and self.engine != "ray":
            raise InputError(
                f"Only Ray has an address, {self.address}: add --engine ray or leave it out."
            )


@dataclass(frozen=True)
class Done:
    """A run that is over; ``failure`` is the reason if it failed."""

    job: Job
    failure: str | None = None


def missing_jobs(plan: Plan, path: str | os.PathLike[str]) -> list[Job]:
    """The runs that the results file does not hold yet; failed ones are tried again."""
    keys = [job.key for job in plan.jobs]
    done = ledger.find(ledger.read_ledger(path).records, keys)
    return [job for job in plan.jobs if job.key not in done]


def done_keys(path: str | os.PathLike[str]) -> set[str]:
    """The keys of all runs that the results file holds."""
    return ledger.run_keys_from(path, 0)[0]


def begin(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the outline into the results file, unless it is the latest one there already."""
    ledger.make_folder(path)
    ledger.check_writable(path)
    append_new(path, {"schema": ledger.SCHEMA, **plan.outline.as_record()})


def no_longer_shown(plan: Plan, path: str | os.PathLike[str]) -> list[str]:
    """What the results file shows until now and will not once the plan is its outline."""
    outline, key = plan.outline, plan.outline.as_record()["key"]
    earlier = [each for each in ledger.read_ledger(path).records if each["key"] == key]
    if not earlier:
        return []
    try:
        before = from_record(earlier[-1])
    except NO_OUTLINE:  # the report reports it
        return []
    told = []
    if len(before.seeds) > len(outline.seeds):
        told.append(
            f"{path} holds {len(before.seeds)} orders, of which its report shows "
            f"{len(outline.seeds)} from now on: ask for all of them to see the others again."
        )
    rows = {row.label for row in outline.rows}
    lost = [row.label for row in before.rows if row.label not in rows]
    if lost:
        told.append(
            f"the report of {path} leaves out the methods {', '.join(map(repr, lost))} from now "
            "on: name them with --methods to see them."
        )
    now = {source.name for source in outline.sources if source.missing is None}
    gone = [each.name for each in before.sources if each.missing is None and each.name not in now]
    if gone:
        told.append(
            f"the report of {path} leaves out {', '.join(map(repr, gone))} from now on: "
            "name the data again and leave out --only to see it."
        )
    return told


def append_new(path: str | os.PathLike[str], line: ledger.Record) -> None:
    """Add a line unless the latest one of its key says the same."""
    earlier = [each for each in ledger.read_ledger(path).records if each["key"] == line["key"]]
    if not earlier or earlier[-1] != json.loads(json.dumps(line)):
        ledger.append(path, line)


def run_jobs(
    jobs: Sequence[Job],
    plugins: Sequence[str],
    path: str | os.PathLike[str],
    machinery: Machinery,
    on_progress: OnProgress | None = None,
) -> Generator[Done, None, None]:
    """Run the jobs and yield each when it is over and on disk; close it to stop early.

    What somebody else has written to the file meanwhile is not written again.
    """
    kept = Keeper(path)
    by_key = {job.key: job for job in jobs}
    runs = _runs([job.spec for job in jobs], plugins, machinery, on_progress)
    with contextlib.closing(runs):
        for spec, outcome in runs:
            job = by_key[spec.key]
            if isinstance(outcome, Failure):
                kept.add(ledger.make_failure(job.key, outcome.reason))
                yield Done(job, outcome.reason)
            else:
                kept.add(ledger.make_record(outcome, job.origin, spec.options))
                yield Done(job)


def _runs(
    specs: Sequence[RunSpec],
    plugins: Sequence[str],
    machinery: Machinery,
    on_progress: OnProgress | None,
) -> Generator[tuple[RunSpec, Outcome], None, None]:
    workers = machinery.workers
    if machinery.engine == "ray":
        return run_all_on_ray(specs, workers, machinery.address, plugins, on_progress)
    # in processes even with one worker: a method may take its process down with it
    return run_all(specs, workers or 1, plugins, on_progress, isolated=True)
