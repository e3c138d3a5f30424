"""Running an experiment: only missing runs, each written as soon as it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from crg.bench.plan import Plan
from crg.engine import OnProgress, Outcome, run_all
from crg.results import ledger
from crg.results.ledger import Ledger
from crg.results.provenance import make_run
from crg.results.schema import Entry, Failure, Outline, RunSpec
from crg.threads import processors
from crg.types import InputError

Engine: TypeAlias = Literal["processes", "ray"]


@dataclass(frozen=True)
class EngineOptions:
    """Where the runs are done: in processes of this machine or on Ray."""

    engine: Engine = "processes"
    workers: int | None = None  # None: one per processor
    address: str | None = None  # of a Ray cluster

    def __post_init__(self) -> None:
        if self.address is not None and self.engine != "ray":
            raise InputError(
                f"Only Ray has an address, {self.address}: add --engine ray or leave it out."
            )


def missing(plan: Plan, known: Ledger) -> list[RunSpec]:
    """The runs that the results file does not hold yet; failed ones are tried again."""
    done = known.runs
    return [spec for spec in plan.specs if spec.key not in done]


def begin(plan: Plan, known: Ledger) -> None:
    """Write the outline into the results file, unless it is the latest one there already."""
    ledger.make_folder(known.path)
    ledger.check_writable(known.path)
    append_new(known, plan.outline)


def append_new(known: Ledger, entry: Entry) -> None:
    """Add a line unless the latest one of its key says the same."""
    if known.latest.get(entry.key) != entry:
        ledger.append(known.path, entry)


def no_longer_shown(plan: Plan, known: Ledger) -> list[str]:
    """Sentences on orders, rows and datasets that a new outline hides from the report."""
    now, path = plan.outline, known.path
    before = known.latest.get(now.key)
    if not isinstance(before, Outline):
        return []
    notes = []
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


def run_specs(
    specs: Sequence[RunSpec],
    known: Ledger,
    options: EngineOptions,
    on_progress: OnProgress = lambda spec, done, total: None,
) -> Generator[tuple[RunSpec, str | None], None, None]:
    """Run all specs; yield each, with the reason if it failed, once its line is on disk.

    Lines that another process has written to the file meanwhile are not written again. To stop
    early, close the iterator.
    """
    with contextlib.closing(_outcomes(specs, options, on_progress)) as outcomes:
        for spec, outcome in outcomes:
            if isinstance(outcome, Failure):
                known.add(outcome)
                yield spec, outcome.reason
            else:
                known.add(make_run(outcome, spec))
                yield spec, None


def _outcomes(
    specs: Sequence[RunSpec], options: EngineOptions, on_progress: OnProgress
) -> Generator[tuple[RunSpec, Outcome], None, None]:
    if options.engine == "ray":
        from crg.engine.ray import run_all_on_ray

        return run_all_on_ray(specs, options.workers, options.address, on_progress)
    # in processes even with one worker: a method may take its process down with it
    return run_all(specs, options.workers or processors(), on_progress, isolated=True)
