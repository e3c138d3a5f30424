"""Running an experiment: only missing runs, each written as soon as it is done.

The gallery shows rendered images that some methods get right and others wrong. Predictions are kept
with every run, so nothing is run again; only a few images are drawn.
"""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from crg.bench.sources import draw, shapes_in
from crg.engine.processes import run_all
from crg.engine.worker import OnProgress, read_once
from crg.features.files import Features
from crg.images.image_set import Source as ImageSource
from crg.images.reading import read_image
from crg.methods.options import option
from crg.results import ledger
from crg.results.ledger import Ledger
from crg.results.measurements import predicted_rows
from crg.results.provenance import make_run
from crg.results.schema import Entry, Failure, Gallery, Outline, Result, RunSpec, ShownImage
from crg.threads import processors
from crg.types import InputError

# Rows of these methods with their default options.
SHOWN_METHODS = ("zero_shot", "tda", "dpe", "crg", "anchored")
SIDE = 72  # pixels
MOST = 16  # images per source

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class EngineOptions:
    """Where the runs are done: in processes of this machine or on Ray."""

    engine: Literal["processes", "ray"] = option("processes", "Where to run.")
    workers: int | None = option(
        None, "Processes to run in.  [default: one per processor]", at_least=1
    )
    address: str | None = None  # of a Ray cluster

    def __post_init__(self) -> None:
        if self.address is not None and self.engine != "ray":
            raise InputError(
                f"Only Ray has an address, {self.address}: add --engine ray or leave it out."
            )


def append_new(known: Ledger, entry: Entry) -> None:
    """Add a line unless the latest one of its key says the same."""
    if known.latest.get(entry.key) != entry:
        ledger.append(known.path, entry)


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
    if options.engine == "ray":
        from crg.engine.ray import run_all_on_ray

        runs = run_all_on_ray(specs, options.workers, options.address, on_progress)
    else:
        runs = run_all(specs, options.workers or processors(), on_progress)
    with contextlib.closing(runs) as outcomes:
        for spec, outcome in outcomes:
            if isinstance(outcome, Failure):
                known.add(outcome)
                yield spec, outcome.reason
            else:
                known.add(make_run(outcome, spec))
                yield spec, None


def add_galleries(outline: Outline, known: Ledger) -> None:
    """Add a line per rendered dataset that has images which only some of its rows get right."""
    runs = known.refresh().runs
    for number, source in enumerate(outline.sources):
        answers, shapes = _answers(outline, number, runs), shapes_in(Path(source.path).name)
        if len(answers) < 2 or source.then or shapes is None:
            continue
        if shown := _shown(read_once(source.path), answers, draw(shapes).sources):
            key = f"gallery:{outline.name}:{source.name}"
            entry = Gallery(experiment=outline.name, source=source.name, images=shown, key=key)
            append_new(known, entry)


def _answers(outline: Outline, source: int, runs: Mapping[str, Result]) -> dict[str, Numbers]:
    """By label of a row its answers in the first order of the first setting."""
    found, rows = {}, _rows_of_gallery(outline)
    for cell in outline.cells:
        is_first = cell.source == source and cell.setting == 0 and cell.seed == outline.seeds[0]
        run = runs.get(cell.key or "") if is_first else None
        if cell.row in rows and run and "predicted" in run.metrics:
            found[outline.rows[cell.row].label] = predicted_rows(run.metrics)
    return found


def _rows_of_gallery(outline: Outline) -> list[int]:
    """The numbers of the rows to show: where the figure is learning, zero-shot and the first."""
    rows = list(enumerate(outline.rows))
    if outline.figure == "learning":
        first = next((n for n, row in rows if not row.is_baseline), None)
        return [n for n, row in rows if row.is_baseline or n == first]
    return [n for n, row in rows if row.method in SHOWN_METHODS and not row.options]


def _shown(
    features: Features, answers: Mapping[str, Numbers], images: Sequence[ImageSource]
) -> tuple[ShownImage, ...]:
    names, labels = features.task.class_names, features.labels
    assert labels is not None  # or there would be no metrics
    together = np.stack(list(answers.values()))
    right = together == labels
    differ = right.any(axis=0) & ~right.all(axis=0) & (together >= 0).all(axis=0)
    # In this order an even choice is proportional.
    rows = sorted(np.flatnonzero(differ).tolist(), key=lambda row: right[:, row].tolist())
    count = min(MOST, len(rows))
    return tuple(
        ShownImage(
            id=str(features.sample_ids[row]),
            png=_small_png(images[row]),
            truth=names[labels[row]],
            answers={label: names[given[row]] for label, given in answers.items()},
        )
        for row in (rows[(2 * n + 1) * len(rows) // (2 * count)] for n in range(count))
    )


def _small_png(source: ImageSource) -> str:
    """A thumbnail in base64."""
    image = read_image(source)
    image.thumbnail((SIDE, SIDE))
    image.save(png := io.BytesIO(), "PNG", optimize=True)
    return base64.b64encode(png.getvalue()).decode()
