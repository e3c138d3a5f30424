"""What an experiment runs on: each request of its design becomes sources, found or missing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crg.experiment.design import (
    CatalogueRequest,
    DataRequest,
    Design,
    FilesRequest,
    ShapesRequest,
)
from crg.experiment.discovery import Found, full_name, pick, pick_few
from crg.experiment.rendering import Shapes
from crg.features import read_features
from crg.types import InputError

_THEN = ", then "


@dataclass(frozen=True)
class Prospect:
    """A source before it is rendered or read: where its files are, or why there are none."""

    name: str
    dataset: str
    paths: tuple[Path, ...] = ()  # more than one: they come one after the other
    few: Path | None = None
    shapes: tuple[Shapes, ...] = ()  # what is to be rendered into the paths
    missing: str | None = None
    model: str | None = None  # of a store of a catalogued dataset
    must_be_usable: bool = True  # False for what merely lies below a folder that was named

    @property
    def is_sequence(self) -> bool:
        """Whether several files come one after the other."""
        return len(self.paths) > 1


def find_prospects(design: Design, found: Sequence[Found], folder: Path) -> tuple[Prospect, ...]:
    """All sources of the design; nothing is rendered or encoded for it."""
    matched = _matched(design.data, found)
    rest = _distinct([e for e in found if e not in matched and not e.is_labelled_extra])
    prospects: list[Prospect] = []
    for request in design.data:
        if isinstance(request, CatalogueRequest):
            prospects += _catalogued(request, found)
        elif isinstance(request, ShapesRequest):
            prospects += _rendered(request, folder, design.wants_domains)
        elif isinstance(request, FilesRequest):
            prospects += [_of(each, found) for each in rest]
            prospects += _joined(rest) if design.wants_domains else ()
    return tuple({prospect.name: prospect for prospect in prospects}.values())


def _matched(requests: Sequence[DataRequest], found: Sequence[Found]) -> list[Found]:
    """The stores that catalogued datasets are taken from."""
    pairs = [
        pick(found, dataset, model)
        for request in requests
        if isinstance(request, CatalogueRequest)
        for dataset in request.datasets
        for model in request.models
    ]
    return [each for each in pairs if each is not None]


def _catalogued(request: CatalogueRequest, found: Sequence[Found]) -> Iterator[Prospect]:
    for model in request.models:
        for dataset in request.datasets:
            store = pick(found, dataset, model)
            if store is not None:
                yield _of(store, found)
                continue
            why = (
                f"No store of {dataset} encoded with {model} was found: run crg encode {dataset} "
                f"--model {model} --root FOLDER --out STORE and name STORE with --data."
            )
            yield Prospect(full_name(dataset, model), dataset, missing=why, model=model)


def _rendered(request: ShapesRequest, folder: Path, in_sequence: bool) -> Iterator[Prospect]:
    streams = [Shapes(shift, request) for shift in request.shifts]
    for each in streams:
        few = each.few_store(folder)
        yield Prospect(each.name, each.name, (each.store(folder),), few, (each,))
    if in_sequence and len(streams) > 1:
        name = "shapes:" + _THEN.join(each.shift for each in streams)
        paths = tuple(each.store(folder) for each in streams)
        yield Prospect(name, name, paths, streams[0].few_store(folder), tuple(streams))


def _of(file: Found, found: Sequence[Found]) -> Prospect:
    """A file by its name; a store of a catalogued dataset by that, for presets and reports."""
    if file.dataset is None or file.model is None:
        return Prospect(file.name, file.name, (file.path,), must_be_usable=file.is_named)
    few = pick_few(found, file)
    return Prospect(
        full_name(file.dataset, file.model),
        file.dataset,
        (file.path,),
        few=None if few is None else few.path,
        model=file.model,
        must_be_usable=file.is_named,
    )


def _joined(files: Sequence[Found]) -> Iterator[Prospect]:
    """One sequence of all files whose features can stand side by side."""
    alike: dict[tuple[int, str, str | None], list[Found]] = defaultdict(list)
    for each in files:
        try:
            features = read_features(each.path, verify=False)
        except InputError:
            if each.is_named:
                raise
            continue  # its own source tells why
        if features.labels is not None:
            scale = f"{features.task.logit_scale:.4g}"
            alike[features.task.width, scale, features.model].append(each)
    for group in alike.values():
        if len(group) > 1:
            name = _THEN.join(each.name for each in group)
            paths, is_named = tuple(e.path for e in group), all(e.is_named for e in group)
            yield Prospect(name, name, paths, must_be_usable=is_named)


def _distinct(files: Sequence[Found]) -> list[Found]:
    """Files of the same name are told apart by their paths."""
    count = Counter(each.name for each in files)
    return [replace(each, name=str(each.path)) if count[each.name] > 1 else each for each in files]
