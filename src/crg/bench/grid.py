"""A grid of runs, every file with every variant of a method in every stream order, and its summary.

Each run is kept in the results file as soon as it is done, so a grid that was stopped can
continue where it was.

Accuracy, calibration error and purity are fractions. The mean and the spread (sample
standard deviation) are over stream orders. The gain over zero-shot comes with the interval
of ``crg.metrics.paired_interval``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import crg.parts
from crg import metrics
from crg.encoders import equipped
from crg.engine import OnProgress, RunSpec, read_once, read_with_few, results_only, run_all
from crg.evaluate import BASELINE, correct_rows
from crg.methods.options import build_config
from crg.methods.registry import get_method
from crg.needs import FEW, check_needs
from crg.presets import with_preset
from crg.results import ledger
from crg.types import InputError, Result


@dataclass(frozen=True)
class Variant:
    """A method with options, under the name that it has in the table."""

    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DataFile:
    """What is known of a feature file; ``path`` is as the user gave it."""

    path: str
    sha256: str
    n_samples: int
    n_classes: int
    n_views: int
    labelled: bool


@dataclass(frozen=True)
class Cell:
    """One run of the grid; cells with equal keys are one and the same run."""

    file: DataFile
    label: str
    spec: RunSpec
    origin: ledger.Origin
    key: str


@dataclass(frozen=True)
class Grid:
    """All runs that a comparison needs."""

    files: tuple[DataFile, ...]
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    plugins: tuple[str, ...] = ()

    @property
    def n_runs(self) -> int:
        """Number of different runs."""
        return len({cell.key for cell in self.cells})


@dataclass(frozen=True)
class Finished:
    """A run that is done, for each cell that it answers."""

    cells: tuple[Cell, ...]
    result: Result
    reused: bool  # it was in the results file already


def plan_grid(
    paths: Sequence[str],
    variants: Sequence[Variant],
    seeds: Sequence[int],
    plugins: Sequence[str] = (),
    few: str | None = None,
) -> Grid:
    """Check every file, method and option before the first run, and lay out the cells.

    ``few`` is a file or store of labelled images for methods that need some.
    """
    variants = [
        replace(variant, options=typed_options(variant.method, variant.options))
        for variant in variants
    ]
    labels = [variant.label for variant in variants]
    if len(set(labels)) != len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InputError(f"{twice!r} is asked for twice: give one of them a label of its own.")
    files = tuple(_inspected(path, few, variants) for path in _distinct(paths))
    labelled = None if few is None else (few, read_once(few).sha256)
    cells = [
        _cell(file, variant, seed, tuple(plugins), labelled)
        for file in files
        for variant in variants
        for seed in seeds
    ]
    return Grid(files, tuple(variants), tuple(seeds), tuple(cells), tuple(plugins))


def iter_grid(
    grid: Grid,
    results_path: str | os.PathLike[str] | None = None,
    resume: bool = False,
    workers: int = 1,
    on_progress: OnProgress | None = None,
) -> Iterator[Finished]:
    """Yield each run when it is done and on disk; with ``resume`` first those done before.

    A run that fails ends the grid; ``on_progress`` is called for each run at work.
    """
    by_key: dict[str, list[Cell]] = defaultdict(list)
    for cell in grid.cells:
        by_key[cell.key].append(cell)
    done: dict[str, ledger.Record] = {}
    if resume and results_path is not None:
        done = ledger.find(ledger.read_ledger(results_path).records, list(by_key))
    for key, record in done.items():
        yield Finished(tuple(by_key[key]), ledger.to_result(record), reused=True)
    if results_path is not None:
        ledger.check_writable(results_path, or_none=True)
    left = {key: cells for key, cells in by_key.items() if key not in done}
    # The engine hands back the very specs it was given, so their identity finds the cells.
    first = {id(cells[0].spec): cells for cells in left.values()}
    specs = [cells[0].spec for cells in left.values()]
    runs = results_only(run_all(specs, workers, grid.plugins, on_progress))
    with contextlib.closing(runs):
        for spec, result in runs:
            cells = first[id(spec)]
            if results_path is not None:
                record = ledger.make_record(result, cells[0].origin, spec.options)
                ledger.append(results_path, record)
            yield Finished(tuple(cells), result, reused=False)


def typed_options(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options, checked and in the types that the method declares."""
    config = build_config(method, get_method(method).Config, given)
    return {name: getattr(config, name) for name in with_preset(method, given)}


def origin_of(
    path: str,
    sha256: str | None,
    method: str,
    plugins: Sequence[str],
    labelled: tuple[str, str | None] | None = None,
) -> ledger.Origin:
    """Where a run of ``method`` on a file comes from; ``labelled`` are few-shot images."""
    own = str(Path(path).resolve()), sha256, _code_digest(method), tuple(plugins)
    if labelled is None or FEW not in get_method(method).needs:
        return ledger.Origin(*own)  # what a method does not look at is no part of its run
    return ledger.Origin(*own, str(Path(labelled[0]).resolve()), labelled[1])


def _cell(
    file: DataFile,
    variant: Variant,
    seed: int,
    plugins: tuple[str, ...],
    labelled: tuple[str, str | None] | None,
) -> Cell:
    method = variant.method
    whole = dataclasses.asdict(build_config(method, get_method(method).Config, variant.options))
    origin = origin_of(file.path, file.sha256, method, plugins, labelled)
    key = ledger.run_key(origin, method, whole, seed)
    few = None if labelled is None else labelled[0]
    spec = RunSpec(file.path, method, variant.options, seed, few)
    return Cell(file, variant.label, spec, origin, key)


def _distinct(paths: Sequence[str]) -> list[str]:
    """The paths without those that lead to a file already named."""
    first = {Path(path).resolve(): path for path in reversed(paths)}
    return [path for path in dict.fromkeys(paths) if first[Path(path).resolve()] == path]


def _inspected(path: str, few: str | None, variants: Sequence[Variant]) -> DataFile:
    features = read_with_few(path, few)
    for variant in variants:
        kind = get_method(variant.method)
        needs = kind.needs_with(build_config(variant.method, kind.Config, variant.options))
        check_needs(variant.method, needs, equipped(features.task, needs, features.model))
    return DataFile(
        path=path,
        sha256=features.sha256 or "",
        n_samples=len(features),
        n_classes=features.task.n_classes,
        n_views=features.n_views,
        labelled=features.labels is not None,
    )


@functools.cache
def _code_digest(method: str) -> str:
    """Digest of the file that defines a method and of the parts that methods are made of.

    Whoever edits either must not be given the old results when resuming.
    """
    try:
        own = inspect.getsourcefile(get_method(method))
    except TypeError:  # made at a prompt
        own = None
    parts = Path(crg.parts.__file__).parent
    files = [*sorted(parts.glob("*.py")), parts.parent / "ops.py"]
    digest = hashlib.sha256()
    for file in [*files, Path(own)] if own else files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


Summary = dict[str, Any]

_AVERAGED = ("ece", "nll", "purity", "worst_class_accuracy", "ms_per_step", "ms_per_step_median")


def with_baseline(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """The variants with zero-shot among them: it is what the others are measured against."""
    if any(variant.method == BASELINE for variant in variants):
        return tuple(variants)
    return (Variant(BASELINE, BASELINE), *variants)


def summarise(grid: Grid, finished: Iterable[Finished]) -> Summary:
    """The whole comparison; ``files`` holds one summary per file and label."""
    done = {
        (cell.file.path, cell.label, cell.spec.seed): item.result
        for item in finished
        for cell in item.cells
    }
    files = {
        file.path: {
            variant.label: _row(variant, [done[file.path, variant.label, s] for s in grid.seeds])
            for variant in grid.variants
        }
        for file in grid.files
    }
    return {
        "files": {path: _with_best(rows) for path, rows in files.items()},
        "seeds": list(grid.seeds),
        "data": {file.path: asdict(file) for file in grid.files},
    }


def _row(variant: Variant, runs: Sequence[Result]) -> Summary:
    row: Summary = {"method": variant.method, "options": dict(variant.options)}
    row["accuracy"] = _spread([run.metrics.get("accuracy") for run in runs])
    for name in _AVERAGED:
        row[name] = _mean([run.metrics.get(name) for run in runs])
    row["gain"] = _gain(runs)
    return row


def _spread(values: Sequence[float | None]) -> Mapping[str, Any] | None:
    """Mean, sample standard deviation (None for a single order) and the values themselves."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    std = statistics.stdev(known) if len(known) > 1 else None
    return {"mean": statistics.fmean(known), "std": std, "per_order": known}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _gain(runs: Sequence[Result]) -> Mapping[str, float] | None:
    if "correct" not in runs[0].metrics:
        return None
    right = np.stack([correct_rows(run.metrics, run.n_samples) for run in runs])
    baseline = np.stack([correct_rows(run.zero_shot, run.n_samples) for run in runs])
    return asdict(metrics.paired_interval(right, baseline))


def _with_best(rows: Mapping[str, Summary]) -> dict[str, Summary]:
    """Mark the rows of the highest mean accuracy; equal ones share the honour."""
    known = [row["accuracy"]["mean"] for row in rows.values() if row["accuracy"] is not None]
    top = max(known, default=None)
    return {
        label: {**row, "best": row["accuracy"] is not None and row["accuracy"]["mean"] == top}
        for label, row in rows.items()
    }
