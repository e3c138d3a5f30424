"""The plan of an experiment: each dataset, method, setting and seed has a cell and perhaps a run.

Planning renders what is to be rendered and reads every file once, so that whatever cannot be
run is known before the first run.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

import crg.parts
from crg.bench.design import PUBLISHED, DataDesign, Design, RowDesign, completed
from crg.bench.sources import OnEncoding, find_sources, render_store
from crg.datasets.catalog import TRAIN, find_entry
from crg.encoders import equipped
from crg.engine.worker import read_once, read_with_few
from crg.features.files import Features
from crg.methods.options import build_config
from crg.methods.registry import BASELINE, get_method, typed_options, whole_config
from crg.presets import PRESET, presets_of
from crg.resources import FEW, GENERATED, TEXT_ENCODER, check_needs
from crg.results.provenance import run_key
from crg.results.schema import (
    LABELLED_IMAGES,
    Cell,
    Data,
    Outline,
    RunSpec,
    Setting,
    Source,
    Variant,
)
from crg.types import InputError

SEED = "seed"  # the option of methods that train
# In these the seed decides which images come, and not only when.
SEEDED_CHOICE = ("imbalanced", "few_present", "out_of_distribution")
_NEEDS = {FEW: LABELLED_IMAGES, TEXT_ENCODER: "a text encoder", GENERATED: "generated views"}


def as_variant(row: RowDesign) -> Variant:
    """The row as tables show it."""
    options: dict[str, Any] = typed_options(row.method, row.options)
    options |= {PRESET: PUBLISHED} if row.preset == PUBLISHED else {}
    needs = tuple(_NEEDS.get(need, need) for need in get_method(row.method).needs)
    offline = row.passes == 2
    return Variant(row.label, row.method, options, row.is_tuned, needs, offline, row.x, row.series)


def options_on(request: RowDesign, dataset: str) -> dict[str, Any] | None:
    """The options of a row on a dataset, spelled out; None where it has no preset there."""
    if request.preset != PUBLISHED:
        return typed_options(request.method, request.options)
    entry = find_entry(dataset)
    preset = f"{PUBLISHED}/{entry.name if entry else dataset}"
    if preset not in presets_of(request.method):
        return None
    return typed_options(request.method, {PRESET: preset, **request.options})


def trains_with_seed(request: RowDesign) -> bool:
    """Whether the method has a seed among its options that the row leaves open."""
    fields = dataclasses.fields(get_method(request.method).Config)
    return SEED in {field.name for field in fields} - request.options.keys()


def why_not(request: RowDesign, source: Source, features: Features) -> str | None:
    """One sentence that says why a row is not run on these images; None if it is."""
    dataset = source.dataset
    if features.labels is None:
        return f"{dataset} has no labels: store them in the file, or encode a labelled dataset."
    if request.several_views and _own_views(features) == 1:
        return f"{dataset} has one view per image: encode it with --views."
    options = options_on(request, dataset)
    if options is None:
        return f"There is no published preset of {request.method} for {dataset}."
    try:
        kind = get_method(request.method)
        build_config(request.method, kind.Config, options)  # refuses bad options
        needs = kind.needs
        if FEW in needs and features.few_features is None:
            return _no_labelled_images(request.method, source)
        check_needs(request.method, needs, equipped(features.task, needs, features.model))
    except InputError as error:
        return str(error)
    most = 0 if features.few_labels is None else np.bincount(features.few_labels).max(initial=0)
    if FEW in needs and options.get("shots", 0) > most:  # it would be another row
        return f"{dataset} has at most {most} labelled images per class: encode more of them."
    return None


def seeds_of(request: RowDesign, setting: Setting, seeds: tuple[int, ...]) -> tuple[int, ...]:
    """The seeds that a row runs with: one where no image remembers those before.

    Zero-shot forgets too, but is cheap, and all are compared with it order by order. A method that
    trains with a seed runs once per order, so that its spread includes the variance of training.
    """
    forgets = getattr(get_method(request.method), "forgets", False)
    once = forgets and request.method != BASELINE and not trains_with_seed(request)
    once = once and setting.scenario.order not in SEEDED_CHOICE
    return seeds[:1] if once else seeds


def _no_labelled_images(method: str, source: Source) -> str:
    """How to get labelled images for a source that has none."""
    dataset, needs = source.dataset, f"Method {method!r} needs labelled images"
    if source.is_rendered:
        return f"{needs}: ask for shots beside the shapes in [[data]]."
    entry = find_entry(dataset) if Path(source.path).is_dir() and source.model else None
    if entry is None or TRAIN not in entry.splits:
        return f"{needs}: add few_features and few_labels to {dataset} (crg compare: or --few)."
    return (
        f"{needs}: run crg encode {dataset} --split train --shots 16 "
        f"--model {source.model} --root FOLDER --out STORE and name STORE with --data."
    )


def _own_views(features: Features) -> int:
    return features.n_views - (features.generated or 0)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The outline of an experiment, and each of its runs once."""

    outline: Outline
    specs: tuple[RunSpec, ...]


def plan(
    design: Design,
    sources: Sequence[Source],
    folder: Path,
    plugins: Sequence[str] = (),
    workers: int = 1,
    on_encoding: OnEncoding = lambda name, now: None,
) -> Plan:
    """Render, read and check everything, and lay out the cells.

    The outline has all sources: with their facts, or with the reason why they cannot be used.
    """
    seeds = tuple(range(design.orders))
    known: list[Source] = []
    cells: list[Cell] = []
    specs: dict[str, RunSpec] = {}
    for source in sources:
        if source.is_rendered:
            for path in filter(None, (*source.paths, source.few)):
                render_store(Path(path).name, folder, workers, on_encoding)
        source, features = _read(source)
        known.append(source)
        if features is None:
            continue
        refusals = [why_not(row, source, features) for row in design.rows]
        known[-1] = replace(
            source,
            sha256=features.sha256 or "",
            n_samples=len(features),
            n_classes=features.task.n_classes,
            n_views=_own_views(features),
            model=features.model,
            prompts=features.prompts,
            text_kind=features.text_kind,
        )
        for cell, spec in _cells(design, known[-1], refusals, seeds, plugins):
            cells.append(replace(cell, source=len(known) - 1))
            if spec is not None and (spec.memory or spec.key not in specs):
                specs[spec.key] = spec
    outline = Outline(
        name=design.name,
        title=design.title,
        about=design.about,
        figure=design.figure,
        rows=tuple(as_variant(row) for row in design.rows),
        sources=tuple(known),
        settings=design.settings,
        seeds=seeds,
        cells=tuple(cells),
        x_title=design.x_title,
        reported=design.reported,
        quick=design.quick is None,
    )
    return Plan(outline, tuple(specs.values()))


def plan_files(
    found: Sequence[Source],
    rows: Sequence[RowDesign],
    orders: int,
    few: str | None = None,
    plugins: Sequence[str] = (),
) -> Plan:
    """A comparison of methods on feature files; methods that cannot run are refused."""
    places = "\n".join(_resolved(each.path) for each in found)
    compared = Design(
        name=f"compare-{hashlib.sha256(places.encode()).hexdigest()[:8]}",
        title=f"Comparison on {', '.join(dict.fromkeys(each.name for each in found))}",
        rows=tuple(rows),
        data=(DataDesign(files=True),),
        orders=orders,
    )
    design = completed(compared)
    sources = [replace(e, few=few or e.few) for e in find_sources(design, found, Path())]
    if not sources:
        raise InputError("There is nothing to measure: name labelled feature files or stores.")
    planned = plan(design, sources, Path(), plugins)
    missing = (each.missing for each in planned.outline.sources)
    for reason in filter(None, (*missing, *(cell.reason for cell in planned.outline.cells))):
        raise InputError(reason)
    return planned


def narrowed(whole: Plan, chosen: Collection[str], done: Collection[str]) -> Plan:
    """The runs of the rows with ``chosen`` labels; other rows stay if they have runs ``done``.

    So a method that joins an experiment stands beside what was measured before, and nothing else
    is run.
    """
    about = whole.outline
    ran = {cell.row for cell in about.cells if cell.key in done}
    kept = [n for n, row in enumerate(about.rows) if row.label in chosen or n in ran]
    outline = about.with_rows(kept)
    wanted = {cell.key for cell in outline.cells if outline.rows[cell.row].label in chosen}
    return Plan(outline, tuple(spec for spec in whole.specs if spec.key in wanted))


def count_runs(design: Design, sources: Sequence[Source]) -> int:
    """How many runs there are at most; what a source lacks is known only once it is read."""
    seeds = tuple(range(design.orders))
    return sum(
        len(seeds_of(row, setting, seeds))
        for source in sources
        if source.missing is None
        for setting in design.settings
        if setting.several == source.order
        for row in design.rows
    )


def _cells(
    design: Design,
    source: Source,
    refusals: Sequence[str | None],
    seeds: tuple[int, ...],
    plugins: Sequence[str],
) -> Iterator[tuple[Cell, RunSpec | None]]:
    """The cells of one source, each with its run unless there is a reason against it."""
    few = Data(_resolved(source.few), read_once(source.few).sha256) if source.few else None
    fitting = [n for n, each in enumerate(design.settings) if each.several == source.order]
    for place in fitting:
        setting = design.settings[place]
        for number, row in enumerate(design.rows):
            for seed in seeds_of(row, setting, seeds):
                cell = Cell(0, place, number, seed)
                if refusals[number] is not None:
                    yield replace(cell, reason=refusals[number]), None
                    continue
                options = options_on(row, source.dataset)
                assert options is not None  # or there would be a refusal
                options = {**options, SEED: seed} if trains_with_seed(row) else options
                spec = RunSpec(
                    data=Data(_resolved(source.path), source.sha256 or None),
                    method=row.method,
                    given=options,
                    seed=seed,
                    few=few if FEW in get_method(row.method).needs else None,
                    then=tuple(map(_resolved, source.then)),
                    scenario=replace(setting.scenario, passes=row.passes),
                    plugins=tuple(plugins),
                    code=code_digest(row.method),
                    name=f"{source.name}, {setting.label}, {row.label}, order {seed}",
                    memory=design.memory and seed == seeds[0] and place == fitting[0],
                )
                key = run_key(spec, whole_config(row.method, options))
                yield replace(cell, key=key), replace(spec, key=key)


def _resolved(path: str) -> str:
    return str(Path(path).resolve())


@functools.cache
def code_digest(method: str) -> str:
    """Digest of the file that defines a method and of the parts that methods are made of.

    Editing either invalidates the old results when the experiment continues.
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


def _read(source: Source) -> tuple[Source, Features | None]:
    """The features of a source; one below a named folder that cannot be read is missing."""
    if source.missing is not None:
        return source, None
    try:
        return source, read_with_few(source.path, source.few, source.then)
    except InputError as error:
        if source.is_named:
            raise
        return Source(source.name, source.dataset, model=source.model, missing=str(error)), None
