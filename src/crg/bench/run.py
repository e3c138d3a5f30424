"""Running an experiment: only what is missing, each run written as soon as it is done.

``summarise`` puts the runs into a few figures per method. Accuracy, calibration error and purity
are fractions. The mean and the spread (sample standard deviation) are over stream orders. The gain
over zero-shot comes with the interval of ``crg.metrics.paired_interval``.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from crg import metrics
from crg.bench.plan import Job, Plan
from crg.engine import Failure, OnProgress, Outcome, RunSpec, run_all
from crg.results import ledger
from crg.results.ledger import Ledger
from crg.results.measurements import correct_rows
from crg.results.provenance import failed_run, make_run
from crg.results.schema import Entry, OutlineLine, Row, Run, Source
from crg.types import InputError

Engine: TypeAlias = Literal["processes", "ray"]


@dataclass(frozen=True)
class EngineOptions:
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


def missing_jobs(plan: Plan, known: Ledger) -> list[Job]:
    """The runs that the results file does not hold yet; failed ones are tried again."""
    done = known.runs
    return [job for job in plan.jobs if job.key not in done]


def begin(plan: Plan, path: str | os.PathLike[str], known: Ledger) -> None:
    """Write the outline into the results file, unless it is the latest one there already."""
    ledger.make_folder(path)
    ledger.check_writable(path)
    append_new(path, plan.outline.as_line(), known)


def append_new(path: str | os.PathLike[str], entry: Entry, known: Ledger) -> None:
    """Add a line unless the latest one of its key says the same."""
    if _latest(known, entry.key) != entry:
        ledger.append(path, entry)


def no_longer_shown(plan: Plan, path: str | os.PathLike[str], known: Ledger) -> list[str]:
    """What the results file shows until now and will not once the plan is its outline."""
    now = plan.outline
    line = _latest(known, now.as_line().key)
    if not isinstance(line, OutlineLine):
        return []
    before, notes = line.experiment, []
    if len(before.seeds) > len(now.seeds):
        notes.append(
            f"{path} holds {len(before.seeds)} orders, of which its report shows "
            f"{len(now.seeds)} from now on: ask for all of them to see the others again."
        )
    if gone := _lost([r.label for r in before.rows], [r.label for r in now.rows]):
        notes.append(
            f"the report of {path} leaves out the rows {gone} from now on: "
            "name them with --methods to see them."
        )
    was, is_now = ([s.name for s in each.sources if not s.missing] for each in (before, now))
    if gone := _lost(was, is_now):
        notes.append(
            f"the report of {path} leaves out {gone} from now on: "
            "name the data again and leave out --only to see it."
        )
    return notes


def _lost(before: Sequence[str], now: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in before if name not in now)


def _latest(known: Ledger, key: str) -> Entry | None:
    return next((e for e in reversed(list(known.entries.values())) if e.key == key), None)


def run_jobs(
    jobs: Sequence[Job],
    plugins: Sequence[str],
    path: str | os.PathLike[str],
    machinery: EngineOptions,
    on_progress: OnProgress | None = None,
) -> Generator[Done, None, None]:
    """Run the jobs and yield each when it is over and on disk; close it to stop early.

    What somebody else has written to the file meanwhile is not written again.
    """
    writer = ledger.Writer(path)
    by_key = {job.key: job for job in jobs}
    runs = _runs([job.spec for job in jobs], plugins, machinery, on_progress)
    with contextlib.closing(runs):
        for spec, outcome in runs:
            job = by_key[spec.key]
            if isinstance(outcome, Failure):
                writer.add(failed_run(job.key, outcome.reason))
                yield Done(job, outcome.reason)
            else:
                writer.add(make_run(outcome, job.origin, spec.options))
                yield Done(job)


def _runs(
    specs: Sequence[RunSpec],
    plugins: Sequence[str],
    machinery: EngineOptions,
    on_progress: OnProgress | None,
) -> Generator[tuple[RunSpec, Outcome], None, None]:
    workers = machinery.workers
    if machinery.engine == "ray":
        from crg.engine.cluster import run_all_on_ray

        return run_all_on_ray(specs, workers, machinery.address, plugins, on_progress)
    # in processes even with one worker: a method may take its process down with it
    return run_all(specs, workers or 1, plugins, on_progress, isolated=True)


Summary = dict[str, Any]

_AVERAGED = ("ece", "nll", "purity", "worst_class_accuracy")


def summarise(planned: Plan, done: Mapping[str, Run]) -> Summary:
    """The whole comparison; ``files`` holds one summary per dataset and method."""
    outline = planned.outline
    runs: dict[tuple[int, int], list[Run]] = {}
    for cell in outline.cells:
        if cell.key is not None and cell.key in done:
            runs.setdefault((cell.source, cell.row), []).append(done[cell.key])
    files = {
        source.name: _with_best({
            row.label: _row(row, runs.get((place, number), ()))
            for number, row in enumerate(outline.rows)
        })
        for place, source in enumerate(outline.sources)
    }  # fmt: skip
    facts = {source.name: _facts(source) for source in outline.sources}
    return {"files": files, "seeds": list(outline.seeds), "data": facts}


def _facts(source: Source) -> Summary:
    names = ("path", "sha256", "n_samples", "n_classes", "n_views")
    return {**{name: getattr(source, name) for name in names}, "labelled": True}


def _row(row: Row, runs: Sequence[Run]) -> Summary:
    """What the runs of a method come to; without any, as when all failed, nothing is known."""
    return {
        "method": row.method,
        "options": dict(row.options),
        "accuracy": _spread([run.metrics["accuracy"] for run in runs]),
        **{name: _mean([run.metrics.get(name) for run in runs]) for name in _AVERAGED},
        "gain": _gain(runs),
    }


def _spread(values: Sequence[float]) -> Mapping[str, Any] | None:
    """Mean, sample standard deviation (None for a single order) and the values themselves."""
    if not values:
        return None
    std = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": std, "per_order": list(values)}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _gain(runs: Sequence[Run]) -> Mapping[str, float] | None:
    if not runs:
        return None
    right = np.stack([correct_rows(run.metrics, run.n_samples) for run in runs])
    baseline = np.stack([correct_rows(run.zero_shot, run.n_samples) for run in runs])
    return asdict(metrics.paired_interval(right, baseline))


def _with_best(rows: Mapping[str, Summary]) -> dict[str, Summary]:
    """Mark the rows of the highest mean accuracy; equal ones are best together."""
    known = [row["accuracy"]["mean"] for row in rows.values() if row["accuracy"] is not None]
    top = max(known, default=None)
    return {
        label: {**row, "best": row["accuracy"] is not None and row["accuracy"]["mean"] == top}
        for label, row in rows.items()
    }
