"""The plan of an experiment: every source, row, setting and seed has its cell and perhaps a run.

Planning renders what is to be rendered and reads every file once, so that whatever cannot be
run is known before the first run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from crg import results
from crg.engine import RunSpec, read_once, read_with_few
from crg.experiment.data import Prospect
from crg.experiment.design import Design, RowRequest, SettingRequest
from crg.experiment.rendering import Tell
from crg.experiment.rows import (
    SEED,
    as_row,
    options_on,
    seeds_of,
    trains_with_seed,
    whole_config,
    why_not,
)
from crg.features import Features
from crg.grid import origin_of
from crg.methods.registry import get_method
from crg.outline import Cell, Outline, Source
from crg.resources import FEW
from crg.scenario import Scenario
from crg.types import InputError


@dataclass(frozen=True)
class Job:
    """One run that a cell waits for; ``name`` is what people are told of it."""

    name: str
    key: str
    spec: RunSpec
    origin: results.Origin


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
) -> Plan:
    """Render, read and check everything, and lay out the cells."""
    seeds = tuple(range(design.orders))
    sources: list[Source] = []
    known: list[Prospect] = []
    cells: list[Cell] = []
    jobs: dict[str, Job] = {}
    for number, given in enumerate(prospects):
        for shapes in given.shapes:
            shapes.render(folder, workers, tell)
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


def count_runs(design: Design, prospects: Sequence[Prospect]) -> int:
    """How many runs there are at most; what a source lacks is known only once it is read."""
    seeds = tuple(range(design.orders))
    return sum(
        len(seeds_of(row, setting, seeds))
        for prospect in prospects
        if prospect.missing is None
        for setting in design.settings
        if setting.is_domains == prospect.is_sequence
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
            if setting.is_domains == self.prospect.is_sequence
        ]
        for place, setting in fitting:
            for row, request in enumerate(self.design.rows):
                for index in seeds_of(request, setting, self.seeds):
                    cell = Cell(self.number, place, row, self.seeds[index])
                    if self.refusals[row] is not None:
                        yield replace(cell, reason=self.refusals[row]), None
                        continue
                    measured = self.design.measures_memory and index == 0
                    first = place == fitting[0][0]
                    job = self._job(request, setting, cell.seed, measured and first)
                    yield replace(cell, key=job.key), job

    def _job(self, row: RowRequest, setting: SettingRequest, seed: int, memory: bool) -> Job:
        source, method = self.source, row.method
        options = options_on(row, self.prospect.dataset)
        assert options is not None  # or there would be a refusal
        options = {**options, SEED: seed} if trains_with_seed(row) else options
        few = self.labelled if FEW in get_method(method).needs else None
        origin = replace(
            origin_of(source.path, source.sha256, method, self.plugins, few),
            then=tuple(str(Path(path).resolve()) for path in source.then),
            scenario=unusual(setting.scenario),
        )
        spec = RunSpec(
            path=source.path,
            method=method,
            options=options,
            seed=seed,
            few=None if few is None else few[0],
            then=source.then,
            scenario=setting.scenario,
            measure_memory=memory,
        )
        key = results.run_key(origin, method, whole_config(method, options), seed)
        name = f"{source.name}, {setting.label}, {row.label}, order {seed}"
        return Job(name, key, spec, origin)


def unusual(scenario: Scenario) -> dict[str, Any]:
    """The values of a scenario that are not the usual ones."""
    usual = asdict(Scenario())
    return {name: value for name, value in asdict(scenario).items() if value != usual[name]}


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
        return replace(prospect, missing=str(error)), None


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
        settings=tuple(setting.as_setting() for setting in design.settings),
        seeds=seeds,
        cells=tuple(cells),
        x_title=design.x_title,
        x_values=tuple(of_settings or of_rows),
        reported=design.reported,
        quick=design.is_quick,
    )
