"""The plan of an experiment: each dataset, method, setting and seed has a cell and perhaps a run.

Planning renders what is to be rendered and reads every file once, so that whatever cannot be
run is known before the first run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from crg.bench.design import PUBLISHED, Design, RowDesign, SettingDesign
from crg.bench.rendered import Tell
from crg.bench.sources import Prospect, origin_of
from crg.datasets.catalog import TRAIN, find_entry, get_entry
from crg.engine import RunSpec, read_once, read_with_few
from crg.features.files import Features
from crg.methods.options import build_config
from crg.methods.registry import BASELINE, get_method, typed_options, whole_config
from crg.presets import PRESET, presets_of
from crg.resources import FEW, GENERATED, TEXT_ENCODER, check_needs
from crg.results.provenance import Origin, run_key
from crg.results.schema import LABELLED_IMAGES, Cell, Outline, Row, Setting, Source
from crg.streams import Scenario
from crg.types import InputError, Task

SEED = "seed"  # the option of methods that train
# In these the seed decides which images come, and not only when.
SEEDED_CHOICE = ("imbalanced", "few_present", "out_of_distribution")
_NEEDS = {
    FEW: LABELLED_IMAGES,
    TEXT_ENCODER: "a text encoder",
    GENERATED: "generated views",
}


def as_row(request: RowDesign) -> Row:
    """The row as tables show it."""
    kind = get_method(request.method)
    options: dict[str, Any] = typed_options(request.method, request.options)
    options |= {PRESET: PUBLISHED} if request.preset == PUBLISHED else {}
    options |= {f"on {name}": dict(given) for name, given in request.per_dataset.items()}
    return Row(
        label=request.label,
        method=request.method,
        options=options,
        tuned=request.is_tuned,
        needs=tuple(_NEEDS.get(need, need) for need in kind.needs),
        offline=request.passes == 2,
        about=request.about,
        x=request.x,
        series=request.series,
        against=request.against,
    )


def options_on(request: RowDesign, dataset: str) -> dict[str, Any] | None:
    """The options of a row on a dataset, spelled out; None where it has no preset there."""
    entry = find_entry(dataset)
    name = entry.name if entry else dataset
    own = {**request.options, **request.per_dataset.get(name, {})}
    if request.preset != PUBLISHED:
        return typed_options(request.method, own)
    preset = f"{PUBLISHED}/{name}"
    if preset not in presets_of(request.method):
        return None
    return typed_options(request.method, {PRESET: preset, **own})


def trains_with_seed(request: RowDesign) -> bool:
    """Whether the method has a seed among its options that the row leaves open."""
    fields = dataclasses.fields(get_method(request.method).Config)
    given = {*request.options, *(name for own in request.per_dataset.values() for name in own)}
    return SEED in {field.name for field in fields} - given


def why_not(request: RowDesign, prospect: Prospect, features: Features) -> str | None:
    """One sentence that says why a row is not run on these images; None if it is."""
    dataset = prospect.dataset
    if features.labels is None:
        return _no_labels(prospect)
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
            return _no_labelled_images(request.method, prospect)
        check_needs(request.method, needs, _equipped(features, needs))
    except InputError as error:
        return str(error)
    return _too_few(options, dataset, features) if FEW in needs else None


def seeds_of(request: RowDesign, setting: SettingDesign, seeds: tuple[int, ...]) -> range:
    """How many of the seeds a row runs with: one where no image remembers those before.

    Zero-shot forgets too, but is cheap, and all are compared with it order by order. Where the
    method trains with a seed of its own, that follows the order's, and luck in training shows.
    """
    forgets = getattr(get_method(request.method), "forgets", False)
    once = forgets and request.method != BASELINE and not trains_with_seed(request)
    once = once and setting.scenario.order not in SEEDED_CHOICE
    return range(min(1, len(seeds)) if once else len(seeds))


def _equipped(features: Features, needs: Sequence[str]) -> Task:
    """The task with the text encoder of its model, if that is needed."""
    if TEXT_ENCODER not in needs:
        return features.task
    from crg.encoders import equipped

    return equipped(features.task, needs, features.model)


def _no_labels(prospect: Prospect) -> str:
    is_store = prospect.paths[0].is_dir()
    remedy = "encode images whose classes are known" if is_store else "store labels in it"
    return f"{prospect.dataset} has no labels: {remedy}."


def _no_labelled_images(method: str, prospect: Prospect) -> str:
    """What is said where a source has none, and what would bring them."""
    dataset, needs = prospect.dataset, f"Method {method!r} needs labelled images"
    if prospect.shapes:
        return f"{needs}: ask for shots beside the shapes in [[data]]."
    if prospect.model is None and not prospect.paths[0].is_dir():
        return f"{needs}: store few_features and few_labels in {prospect.paths[0]}."
    if prospect.model is None or TRAIN not in get_entry(dataset).splits:
        return (
            f"{needs} but {dataset} has none to train with: "
            "give a feature file with few_features and few_labels."
        )
    return (
        f"{needs}: run crg encode {dataset} --split train --shots 16 --views 1 "
        f"--model {prospect.model} --root FOLDER --out STORE and name STORE with --data."
    )


def _too_few(options: Mapping[str, Any], dataset: str, features: Features) -> str | None:
    """Where a row asks for more labelled images than any class has, it would be another row."""
    assert features.few_labels is not None
    most = int(np.bincount(features.few_labels).max(initial=0))
    if options.get("shots", 0) <= most:
        return None
    return f"{dataset} has at most {most} labelled images per class: encode more of them."


def _own_views(features: Features) -> int:
    return features.n_views - (features.generated or 0)


@dataclass(frozen=True)
class Job:
    """One run that a cell waits for; ``name`` is what people see."""

    name: str
    spec: RunSpec
    origin: Origin

    @property
    def key(self) -> str:
        """What the run is found by among results."""
        return self.spec.key


@dataclass(frozen=True)
class Plan:
    """What is to be run, each run once however many cells wait for it."""

    outline: Outline
    jobs: tuple[Job, ...]
    prospects: tuple[Prospect, ...]  # one per source of the outline; unusable ones say why
    plugins: tuple[str, ...] = ()


def plan(
    design: Design,
    prospects: Sequence[Prospect],
    folder: Path,
    plugins: Sequence[str] = (),
    workers: int = 1,
    tell: Tell = lambda name, progress: None,
    first_seed: int = 0,
) -> Plan:
    """Render, read and check everything, and lay out the cells."""
    seeds = tuple(range(first_seed, first_seed + design.orders))
    sources: list[Source] = []
    known: list[Prospect] = []
    cells: list[Cell] = []
    jobs: dict[str, Job] = {}
    for number, given in enumerate(prospects):
        for shapes in given.shapes:
            shapes.render_stream(folder, workers, tell)
            shapes.render_labelled(folder, workers)
        prospect, features = _read(given)
        known.append(prospect)
        if features is None:
            sources.append(_absent(prospect))
            continue
        laid = _Layout(design, prospect, features, number, seeds, tuple(plugins))
        sources.append(laid.source)
        for cell, job in laid.cells():
            cells.append(cell)
            if job is not None:
                jobs[job.key] = _merged(jobs.get(job.key), job)
    outline = _outline(design, seeds, sources, cells)
    return Plan(outline, tuple(jobs.values()), tuple(known), tuple(plugins))


def narrowed(whole: Plan, chosen: Collection[str], done: Collection[str]) -> Plan:
    """The runs of the rows with ``chosen`` labels; other rows stay if they have runs ``done``.

    So a method that joins an experiment stands beside what was measured before, and nothing else
    is run.
    """
    about = whole.outline
    ran = {cell.row for cell in about.cells if cell.key in done}
    kept = [n for n, row in enumerate(about.rows) if row.label in chosen or n in ran]
    place = {number: new for new, number in enumerate(kept)}
    cells = [replace(cell, row=place[cell.row]) for cell in about.cells if cell.row in place]
    rows = tuple(about.rows[number] for number in kept)
    wanted = {cell.key for cell in cells if rows[cell.row].label in chosen}
    return replaced(
        whole,
        outline=replace(about, rows=rows, cells=tuple(cells)),
        jobs=tuple(job for job in whole.jobs if job.key in wanted),
    )


def count_runs(design: Design, prospects: Sequence[Prospect]) -> int:
    """How many runs there are at most; what a source lacks is known only once it is read."""
    seeds = tuple(range(design.orders))
    return sum(
        len(seeds_of(row, setting, seeds))
        for prospect in prospects
        if prospect.missing is None
        for setting in design.settings
        if setting.several == prospect.several
        for row in design.rows
    )


class _Layout:
    """The cells of one source."""

    def __init__(
        self,
        design: Design,
        prospect: Prospect,
        features: Features,
        number: int,
        seeds: tuple[int, ...],
        plugins: tuple[str, ...],
    ) -> None:
        self.design, self.prospect, self.number = design, prospect, number
        self.seeds, self.plugins = seeds, plugins
        few = prospect.few
        self.labelled = None if few is None else (str(few), read_once(str(few)).sha256)
        self.source = _source(prospect, features)
        self.refusals = [why_not(row, prospect, features) for row in design.rows]

    def cells(self) -> Iterator[tuple[Cell, Job | None]]:
        """Each cell, with the run it waits for unless there is a reason against it."""
        fitting = [
            (place, setting)
            for place, setting in enumerate(self.design.settings)
            if setting.several == self.prospect.several
        ]
        for place, setting in fitting:
            for row, request in enumerate(self.design.rows):
                for index in seeds_of(request, setting, self.seeds):
                    cell = Cell(self.number, place, row, self.seeds[index])
                    if self.refusals[row] is not None:
                        yield replace(cell, reason=self.refusals[row]), None
                        continue
                    measured = self.design.memory and index == 0
                    first = place == fitting[0][0]
                    job = self._job(request, setting, cell.seed, measured and first)
                    yield replace(cell, key=job.key), job

    def _job(self, row: RowDesign, setting: SettingDesign, seed: int, memory: bool) -> Job:
        source, method = self.source, row.method
        options = options_on(row, self.prospect.dataset)
        assert options is not None  # or there would be a refusal
        options = {**options, SEED: seed} if trains_with_seed(row) else options
        few = self.labelled if FEW in get_method(method).needs else None
        scenario = replaced(setting.scenario, passes=row.passes)
        origin = replaced(
            origin_of(source.path, source.sha256, method, self.plugins, few),
            then=tuple(str(Path(path).resolve()) for path in source.then),
            scenario=_unusual(scenario),
        )
        spec = RunSpec(
            path=source.path,
            method=method,
            options=options,
            seed=seed,
            few=None if few is None else few[0],
            then=source.then,
            scenario=scenario,
            measure_memory=memory,
            key=run_key(origin, method, whole_config(method, options), seed),
        )
        name = f"{source.name}, {setting.label}, {row.label}, order {seed}"
        return Job(name, spec, origin)


def _read(prospect: Prospect) -> tuple[Prospect, Features | None]:
    """What a prospect holds; one that nobody named and that cannot be used is missing."""
    if prospect.missing is not None:
        return prospect, None
    first, *rest = (str(path) for path in prospect.paths)
    few = None if prospect.few is None else str(prospect.few)
    try:
        return prospect, read_with_few(first, few, rest)
    except InputError as error:
        if prospect.must_be_usable:
            raise
        return replaced(prospect, missing=str(error)), None


def _absent(prospect: Prospect) -> Source:
    missing, model = prospect.missing, prospect.model
    return Source(prospect.name, prospect.dataset, model=model, missing=missing)


def _source(prospect: Prospect, features: Features) -> Source:
    return Source(
        name=prospect.name,
        dataset=prospect.dataset,
        path=str(prospect.paths[0]),
        then=tuple(str(path) for path in prospect.paths[1:]),
        few=None if prospect.few is None else str(prospect.few),
        sha256=features.sha256 or "",
        n_samples=len(features),
        n_classes=features.task.n_classes,
        n_views=features.n_views - (features.generated or 0),
        model=features.model,
        prompts=features.prompts,
        text_kind=features.text_kind,
    )


def _merged(earlier: Job | None, job: Job) -> Job:
    """Of two cells that wait for the same run, one that asks for its memory is heard."""
    if earlier is None or (job.spec.measure_memory and not earlier.spec.measure_memory):
        return job
    return earlier


def _outline(
    design: Design, seeds: tuple[int, ...], sources: Sequence[Source], cells: Sequence[Cell]
) -> Outline:
    of_settings = [setting.x for setting in design.settings if setting.x is not None]
    of_rows = [row.x for row in design.rows if row.x is not None]
    return Outline(
        name=design.name,
        title=design.title,
        about=design.about,
        figure=design.figure,
        rows=tuple(as_row(row) for row in design.rows),
        sources=tuple(sources),
        settings=tuple(Setting(each.label, each.scenario) for each in design.settings),
        seeds=seeds,
        cells=tuple(cells),
        x_title=design.x_title,
        x_values=tuple(of_settings or of_rows),
        reported=design.reported,
        quick=design.is_quick,
    )


def _unusual(scenario: Scenario) -> dict[str, Any]:
    """The values of a scenario that are not the usual ones."""
    usual = dataclasses.asdict(Scenario())
    return {
        name: value for name, value in dataclasses.asdict(scenario).items() if value != usual[name]
    }
