"""The demonstration: rendered images, a shift, the bundled model, and every method on them.

Everything is done the way a user would do it: the images are encoded into a store, and the
methods run over the store in several stream orders with their default options.
"""

from __future__ import annotations

import io
import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import crg
from crg.adapter import create
from crg.bench.grid import Finished, Grid, Summary, Variant
from crg.encoders import load_encoder
from crg.encoding import encode
from crg.encoding.job import EncodingProgress
from crg.evaluate import BASELINE, correct_rows, iter_run
from crg.features.files import Features, read_features
from crg.images.image_set import ImageSet
from crg.images.reading import read_image
from crg.images.views import Recipe
from crg.shapes.dataset import shape_images
from crg.streams.orders import shuffled

MODEL = "mini"
FAVOURITE = "crg"  # its changed answers are shown, if it is among the methods
N_CORRECTED, N_BROKEN = 12, 6  # examples of each
Curve = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Scenery:
    """Which images are rendered, and how they are shown to the model."""

    shift: str = "night"  # or "clean"
    severity: int = 3
    images: int = 960
    views: int = 8
    seed: int = 0

    @property
    def title(self) -> str:
        """What it is called in tables."""
        return "rendered shapes" if self.shift == "clean" else (
            f"rendered shapes, {self.shift}, severity {self.severity}"
        )  # fmt: skip

    def image_set(self) -> ImageSet:
        """The images, drawn when they are needed."""
        shift = None if self.shift == "clean" else self.shift
        return shape_images(shift, self.severity, self.images, self.seed)


def encode_scenery(
    scenery: Scenery, store: Path, workers: int, on_progress: Callable[[EncodingProgress], None]
) -> ImageSet:
    """Render and encode into a store; gives the images."""
    dataset, recipe = scenery.image_set(), Recipe(views=scenery.views, seed=scenery.seed)
    encode(dataset, load_encoder(MODEL), recipe, store, workers=workers, on_progress=on_progress)
    return dataset


@dataclass(frozen=True)
class Example:
    """An image whose answer adaptation changed."""

    png: bytes
    truth: str
    zero_shot: str
    adapted: str


@dataclass(frozen=True)
class Demonstration:
    """All that the page shows."""

    title: str
    summary: Summary  # of one file
    shown: str  # label of the row whose changed answers are shown
    running: Mapping[str, Curve]  # per row: images seen and running accuracy in %
    purity: Mapping[str, Curve]  # per row with a cache: images seen and purity in %
    corrected: tuple[Example, ...]  # wrong zero-shot, right with adaptation
    broken: tuple[Example, ...]  # the other way round
    n_corrected: int  # in the first order, of which the examples are the first
    n_broken: int
    facts: Mapping[str, Any]  # how it was made


def demonstrate(
    scenery: Scenery,
    dataset: ImageSet,
    store: Path,
    grid: Grid,
    finished: Sequence[Finished],
    summary: Summary,
) -> Demonstration:
    """Everything for the page, from the finished runs and the store that they read."""
    features = read_features(store)
    labels = [] if features.labels is None else features.labels.tolist()
    shown = _shown(grid.variants)
    changes = changed_rows(features, shown.method, shown.options, grid.seeds[0])
    corrected, broken = split_changes(changes, labels)
    facts = {
        "images": f"{len(dataset)} rendered, {scenery.title}, {scenery.views} views each",
        "classes": f"{len(dataset.class_names)}: {', '.join(dataset.class_names)}",
        "prompts": " | ".join(dataset.templates),
        "model": f"{MODEL}, bundled; it never saw these combinations in training",
        "methods": "default options, the same for every stream",
        "stream orders": f"{len(grid.seeds)}, seeds {grid.seeds[0]} to {grid.seeds[-1]}",
        "versions": f"crg {crg.__version__}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}",
        "data": f"sha256 {features.sha256}",
    }
    return Demonstration(
        title=f"Test-time adaptation on {scenery.title}",
        summary=summary,
        shown=shown.label,
        running=running_accuracy(finished),
        purity=purity_over_time(finished),
        corrected=tuple(as_example(dataset, *change) for change in corrected[:N_CORRECTED]),
        broken=tuple(as_example(dataset, *change) for change in broken[:N_BROKEN]),
        n_corrected=len(corrected),
        n_broken=len(broken),
        facts=facts,
    )


def _shown(variants: Sequence[Variant]) -> Variant:
    """The favourite, or else the last variant that was asked for."""
    named = {variant.label: variant for variant in variants}
    return named.get(FAVOURITE, variants[-1])


def titled(summary: Summary, title: str) -> Summary:
    """The summary of one file under another name than its path."""
    [rows], [facts] = summary["files"].values(), summary["data"].values()
    named = {"files": {title: rows}, "data": {title: {**facts, "path": title}}}
    return {**summary, **named}


def running_accuracy(finished: Iterable[Finished], window_start: int = 20) -> dict[str, Curve]:
    """Per label the fraction of right answers so far, in %, as a mean over orders.

    The first images are left out, where the share still jumps.
    """
    curves: dict[str, list[np.ndarray[Any, Any]]] = defaultdict(list)
    for item in finished:
        for cell in item.cells:
            order = shuffled(item.result.n_samples, cell.spec.seed)
            right = correct_rows(item.result.metrics, item.result.n_samples)[order]
            curves[cell.label].append(np.cumsum(right) / np.arange(1, len(right) + 1))
    return {label: _thinned(np.mean(rows, axis=0), window_start) for label, rows in curves.items()}


def purity_over_time(finished: Iterable[Finished]) -> dict[str, Curve]:
    """Per label with a cache the fraction of rightly filed images, as a mean over orders."""
    values: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in finished:
        for cell in item.cells:
            for step, share in item.result.metrics.get("purity_over_time") or ():
                values[cell.label][step].append(100 * share)
    return {
        label: tuple((step, float(np.mean(shares))) for step, shares in sorted(steps.items()))
        for label, steps in values.items()
    }


def changed_rows(
    features: Features, method: str, options: Mapping[str, Any], seed: int
) -> list[tuple[int, int, int]]:
    """(row, zero-shot label, adapted label) of every changed answer, in the order of the stream."""
    order = shuffled(len(features), seed)
    adapted = iter_run(create(method, features.task, **options), features, order)
    plain = iter_run(create(BASELINE, features.task), features, order)
    pairs = zip(order, plain, adapted, strict=True)
    labels = [(int(row), a.prediction.label, b.prediction.label) for row, a, b in pairs]
    return [(row, before, after) for row, before, after in labels if before != after]


def as_example(images: ImageSet, row: int, before: int, after: int, side: int = 96) -> Example:
    """The image of a row with its three names, as a small PNG."""
    assert images.labels is not None
    image = read_image(images.sources[row])
    image.thumbnail((side, side))
    png = io.BytesIO()
    image.save(png, "PNG", optimize=True)
    names = images.class_names
    return Example(png.getvalue(), names[images.labels[row]], names[before], names[after])


def split_changes(
    changes: Sequence[tuple[int, int, int]], labels: Sequence[int]
) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """The changes that corrected an answer, and those that broke one."""
    corrected = [change for change in changes if labels[change[0]] == change[2]]
    broken = [change for change in changes if labels[change[0]] == change[1]]
    return corrected, broken


def _thinned(shares: np.ndarray[Any, Any], start: int, points: int = 120) -> Curve:
    places = np.unique(
        np.linspace(min(start, len(shares) - 1), len(shares) - 1, points).astype(int)
    )
    return tuple((float(place + 1), 100 * float(shares[place])) for place in places)
