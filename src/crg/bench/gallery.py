"""The gallery: images on which methods disagree, small, for the report.

Predictions are kept with every run, so nothing is run again; only a few images are drawn or
read. Sources whose images are not available have no gallery.
"""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crg.bench.plan import Plan
from crg.bench.sources import Prospect
from crg.datasets import load_dataset
from crg.datasets.catalog import find_entry
from crg.engine import read_once
from crg.features.files import Features
from crg.images.image_set import Source as ImageSource
from crg.images.reading import read_image
from crg.results import ledger
from crg.results.outline import Outline
from crg.types import InputError

KIND = "gallery"
SHOWN_METHODS = (
    "zero_shot",
    "tda",
    "dpe",
    "crg",
    "anchored",
)  # rows of these in their default options
SIDE = 72  # pixels
MOST = 12  # images per source
NOT_STREAMED = 65535

Numbers = np.ndarray[Any, Any]


def galleries(
    plan: Plan, records: Iterable[ledger.Record], root: Path | None = None
) -> list[ledger.Record]:
    """One line per source that has images on which its rows disagree."""
    by_key = {record["key"]: record for record in records if "metrics" in record}
    made = []
    for number, prospect in enumerate(plan.prospects):
        answers = _answers(plan.outline, number, by_key)
        if len(answers) < 2 or prospect.is_sequence or prospect.missing is not None:
            continue
        images = _images(prospect, root)
        features = read_once(str(prospect.paths[0]))
        shown = _shown(features, answers, images) if images else []
        if shown:
            made.append(_line(plan.outline.name, prospect.name, shown))
    return made


def predicted_rows(metrics: Mapping[str, Any]) -> Numbers:
    """The class number that a run gave to each row of the file; 65535 where it met none."""
    packed = base64.b64decode(metrics["predicted"])
    return np.frombuffer(zlib.decompress(packed), dtype="<u2")


def _answers(
    outline: Outline, source: int, by_key: Mapping[str, ledger.Record]
) -> dict[str, Numbers]:
    """By label of a row its answers in the first order of the first setting."""
    found = {}
    for cell in outline.cells:
        row = outline.rows[cell.row]
        is_first = cell.source == source and cell.setting == 0 and cell.seed == outline.seeds[0]
        record = by_key.get(cell.key or "") if is_first else None
        if row.method not in SHOWN_METHODS or row.options or record is None:
            continue
        if "predicted" in record["metrics"]:
            found[row.label] = predicted_rows(record["metrics"])
    return found


def _shown(
    features: Features, answers: Mapping[str, Numbers], images: Mapping[str, ImageSource]
) -> list[dict[str, Any]]:
    together = np.stack(list(answers.values()))
    differ = (together != together[0]).any(axis=0) & (together != NOT_STREAMED).all(axis=0)
    ids = features.sample_ids
    rows = [int(row) for row in np.flatnonzero(differ) if str(ids[int(row)]) in images]
    names, labels = features.task.class_names, features.labels
    assert labels is not None  # or there would be no metrics
    return [
        {
            "id": str(ids[row]),
            "png": base64.b64encode(_small_png(images[str(ids[row])])).decode(),
            "truth": names[labels[row]],
            "answers": {label: names[given[row]] for label, given in answers.items()},
        }
        for row in _spread_evenly(rows)
    ]


def _spread_evenly(rows: Sequence[int]) -> list[int]:
    """At most so many of the rows as are shown, from all parts of the file."""
    if len(rows) <= MOST:
        return list(rows)
    places = np.linspace(0, len(rows) - 1, MOST).round().astype(int)
    return [rows[place] for place in places]


def _images(prospect: Prospect, root: Path | None) -> dict[str, ImageSource]:
    """The images by id; none where they cannot be found."""
    if prospect.shapes:
        dataset = prospect.shapes[0].stream()
    elif root is None or find_entry(prospect.dataset) is None:
        return {}
    else:
        try:
            dataset = load_dataset(prospect.dataset, root=root)
        except InputError:
            return {}
    return dict(zip(dataset.ids, dataset.sources, strict=True))


def _small_png(source: ImageSource) -> bytes:
    image = read_image(source)
    image.thumbnail((SIDE, SIDE))
    png = io.BytesIO()
    image.save(png, "PNG", optimize=True)
    return png.getvalue()


def _line(experiment: str, source: str, images: list[dict[str, Any]]) -> ledger.Record:
    return {
        "schema": ledger.SCHEMA,
        "kind": KIND,
        "key": f"{KIND}:{experiment}:{source}",
        "experiment": experiment,
        "source": source,
        "images": images,
    }
