"""A grid of runs: every file with every variant of a method in every stream order.

Each run is kept in the results file as soon as it is done, so a grid that was stopped can go
on where it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import crg.parts
from crg import results
from crg.engine import OnProgress, RunSpec, read_once, read_with_few, results_only, run_all
from crg.equipment import equipped
from crg.methods.options import build_config
from crg.methods.registry import get_method
from crg.presets import with_preset
from crg.resources import FEW, check_needs
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
    origin: results.Origin
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

    A run that fails ends the grid; ``on_progress`` is told of each run at work.
    """
    by_key: dict[str, list[Cell]] = defaultdict(list)
    for cell in grid.cells:
        by_key[cell.key].append(cell)
    done: dict[str, results.Record] = {}
    if resume and results_path is not None:
        done = results.find(results.read_ledger(results_path).records, list(by_key))
    for key, record in done.items():
        yield Finished(tuple(by_key[key]), results.to_result(record), reused=True)
    if results_path is not None:
        results.check_writable(results_path, or_none=True)
    left = {key: cells for key, cells in by_key.items() if key not in done}
    # The engine hands back the very specs it was given, so their identity finds the cells.
    first = {id(cells[0].spec): cells for cells in left.values()}
    specs = [cells[0].spec for cells in left.values()]
    runs = results_only(run_all(specs, workers, grid.plugins, on_progress))
    with contextlib.closing(runs):
        for spec, result in runs:
            cells = first[id(spec)]
            if results_path is not None:
                record = results.make_record(result, cells[0].origin, spec.options)
                results.append(results_path, record)
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
) -> results.Origin:
    """Where a run of ``method`` on a file comes from; ``labelled`` are few-shot images."""
    own = str(Path(path).resolve()), sha256, _code_digest(method), tuple(plugins)
    if labelled is None or FEW not in get_method(method).needs:
        return results.Origin(*own)  # what a method does not look at is no part of its run
    return results.Origin(*own, str(Path(labelled[0]).resolve()), labelled[1])


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
    key = results.run_key(origin, method, whole, seed)
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
