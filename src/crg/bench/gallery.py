"""The gallery: images on which methods disagree, small, for the report.

Predictions are kept with every run, so nothing is run again; only a few images are drawn or
read. Sources whose images are not available have no gallery.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crg.bench.rendered import draw, shapes_in
from crg.datasets import load_dataset
from crg.datasets.catalog import find_entry
from crg.engine import read_once
from crg.features.files import Features
from crg.images.image_set import Source as ImageSource
from crg.images.reading import read_image
from crg.results.measurements import predicted_rows
from crg.results.schema import Gallery, Outline, Result, ShownImage, Source
from crg.types import InputError

# Rows of these methods with their default options.
SHOWN_METHODS = ("zero_shot", "tda", "dpe", "crg", "anchored")
SIDE = 72  # pixels
MOST = 12  # images per source

Numbers = np.ndarray[Any, Any]


def galleries(
    outline: Outline, runs: Mapping[str, Result], root: Path | None = None
) -> list[Gallery]:
    """One line per source that has images on which its rows disagree."""
    made = []
    for number, source in enumerate(outline.sources):
        answers = _answers(outline, number, runs)
        if len(answers) < 2 or source.then or source.missing is not None:
            continue
        images = _images(source, root)
        shown = _shown(read_once(source.path), answers, images) if images else ()
        if shown:
            key = f"gallery:{outline.name}:{source.name}"
            line = Gallery(experiment=outline.name, source=source.name, images=shown, key=key)
            made.append(line)
    return made


def _answers(outline: Outline, source: int, runs: Mapping[str, Result]) -> dict[str, Numbers]:
    """By label of a row its answers in the first order of the first setting."""
    found = {}
    for cell in outline.cells:
        row = outline.rows[cell.row]
        is_first = cell.source == source and cell.setting == 0 and cell.seed == outline.seeds[0]
        run = runs.get(cell.key or "") if is_first else None
        if row.method in SHOWN_METHODS and not row.options and run and "predicted" in run.metrics:
            found[row.label] = predicted_rows(run.metrics)
    return found


def _shown(
    features: Features, answers: Mapping[str, Numbers], images: Mapping[str, ImageSource]
) -> tuple[ShownImage, ...]:
    together = np.stack(list(answers.values()))
    differ = (together != together[0]).any(axis=0) & (together >= 0).all(axis=0)
    ids = features.sample_ids
    rows = [int(row) for row in np.flatnonzero(differ) if str(ids[int(row)]) in images]
    names, labels = features.task.class_names, features.labels
    assert labels is not None  # or there would be no metrics
    return tuple(
        ShownImage(
            id=str(ids[row]),
            png=base64.b64encode(_small_png(images[str(ids[row])])).decode(),
            truth=names[labels[row]],
            answers={label: names[given[row]] for label, given in answers.items()},
        )
        for row in _spread_evenly(rows)
    )


def _spread_evenly(rows: Sequence[int]) -> list[int]:
    """At most so many of the rows as are shown, from all parts of the file."""
    if len(rows) <= MOST:
        return list(rows)
    places = np.linspace(0, len(rows) - 1, MOST).round().astype(int)
    return [rows[place] for place in places]


def _images(source: Source, root: Path | None) -> dict[str, ImageSource]:
    """The images by id; none where they are not available."""
    if shapes := shapes_in(Path(source.path).name):
        dataset = draw(shapes)
    elif root is None or find_entry(source.dataset) is None:
        return {}
    else:
        try:
            dataset = load_dataset(source.dataset, root=root)
        except InputError:
            return {}
    return dict(zip(dataset.ids, dataset.sources, strict=True))


def _small_png(source: ImageSource) -> bytes:
    image = read_image(source)
    image.thumbnail((SIDE, SIDE))
    png = io.BytesIO()
    image.save(png, "PNG", optimize=True)
    return png.getvalue()
