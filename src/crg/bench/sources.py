"""Datasets to run on: stores and feature files on disk, and rendered shapes.

``find_sources`` lists what a design asks for as ``Source``s, without reading or rendering any.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from crg.bench import rendered
from crg.bench.design import DataDesign, Design
from crg.datasets.catalog import TEST, TRAIN, find_entry, find_split
from crg.features import store as storage
from crg.features.files import REQUIRED, check_complete, read_features
from crg.features.formats import read_raw
from crg.results.schema import Source
from crg.streams import SEVERAL_FILES
from crg.types import InputError

VARIABLE = "CRG_DATA"  # paths to search where none is named
_SUFFIXES = (".npz", ".safetensors")
_DEPTH = 4  # folders below a path that was named
_OPENAI = ("", "openai")  # the weights that the name of a model alone stands for
_THEN = ", then "

OnLeftOut: TypeAlias = Callable[[Path, str], None]  # a path, and why it cannot be used


def named_paths(given: Sequence[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """The paths of ``--data``, or else those of the environment variable."""
    if given:
        return tuple(Path(path) for path in given)
    return tuple(Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part)


def discover(
    paths: Iterable[Path], on_left_out: OnLeftOut = lambda path, why: None
) -> tuple[Source, ...]:
    """Everything usable at or below the paths, each once, in the order of the names.

    What was named itself must be usable. What merely lies below is left out if it is not, and
    ``on_left_out`` is called with the reason; files that are not feature files are passed over.
    """
    found: dict[Path, Source] = {}
    for path in paths:
        for each in _at(path, on_left_out):
            place = Path(each.path).resolve()
            first = found.setdefault(place, each)
            found[place] = replace(first, is_named=first.is_named or each.is_named)
    return tuple(found.values())


def pick(found: Iterable[Source], dataset: str, model: str) -> Source | None:
    """The store of a catalogued dataset encoded with a model; the original weights come first."""
    fitting = [
        each
        for each in found
        if each.dataset == dataset
        and each.split == TEST
        and each.model
        and same_model(each.model, model)
    ]
    return min(fitting, key=lambda each: _tag(each.model or "") not in _OPENAI, default=None)


def pick_few(found: Iterable[Source], store: Source) -> Source | None:
    """Labelled images for a store of a catalogued dataset, encoded with the very same model.

    Those for training come before those for validation, and of several the most.
    """
    fitting = [
        each
        for each in found
        if each.split != TEST
        and each.dataset == store.dataset
        and each.weights == store.weights
        and same_model(each.model or "", store.model or "")
    ]
    return min(fitting, key=lambda each: (each.split != TRAIN, -each.n_samples), default=None)


def same_model(one: str, other: str) -> bool:
    """Whether two names stand for the same architecture, whatever its weights.

    >>> same_model("openclip:ViT-B-16:openai", "vit-b/16"), same_model("RN50", "RN101")
    (True, False)
    """
    return _architecture(one) == _architecture(other)


def _architecture(model: str) -> str:
    return model.strip().lower().replace("/", "-").removeprefix("openclip:").partition(":")[0]


def _tag(model: str) -> str:
    return model.strip().lower().removeprefix("openclip:").partition(":")[2]


def full_name(dataset: str, model: str) -> str:
    """The name of a source; weights other than OpenAI's are part of it.

    >>> full_name("dtd", "RN50:openai"), full_name("dtd", "RN50:yfcc15m")
    ('dtd, RN50', 'dtd, RN50:yfcc15m')
    """
    plain = model.removeprefix("openclip:")
    return f"{dataset}, {plain.partition(':')[0] if _tag(model) in _OPENAI else plain}"


def _at(path: Path, on_left_out: OnLeftOut) -> Iterator[Source]:
    if not path.exists():
        raise InputError(f"{path} does not exist: check what --data or {VARIABLE} names.")
    if path.is_file():
        if not _is_feature_file(path):
            raise InputError(
                f"{path} is no feature file: give one that holds {', '.join(REQUIRED)}, a store, "
                "or a folder of them."
            )
        yield _file(path)
    elif (path / storage.HEADER).exists():
        yield _store(path)
    else:
        inside = [replace(each, is_named=False) for each in _below(path, _DEPTH, on_left_out)]
        if not inside:
            on_left_out(path, f"there is nothing in {path} that can be used.")
        yield from inside


def _below(folder: Path, depth: int, on_left_out: OnLeftOut) -> Iterator[Source]:
    for path in _inside(folder, on_left_out):
        try:
            if path.is_dir() and not (path / storage.HEADER).exists():
                yield from _below(path, depth - 1, on_left_out) if depth > 1 else ()
            elif path.is_dir():
                yield _finished_store(path)
            elif path.suffix.lower() in _SUFFIXES:
                check_complete(path, read_raw(path, ()))
                yield _file(path)
        except InputError as error:
            on_left_out(path, str(error))
        except OSError as error:
            on_left_out(path, _unreadable(path, error))


def _inside(folder: Path, on_left_out: OnLeftOut) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError as error:
        on_left_out(folder, _unreadable(folder, error))
        return []


def _unreadable(path: Path, error: OSError) -> str:
    return f"{path} cannot be read ({error.strerror}): ask for permission or name another."


def _file(path: Path) -> Source:
    return Source(path.stem, path.stem, str(path))


def _store(path: Path) -> Source:
    header = storage.read_header(path)
    known, model = find_split(str(header.key.get("dataset", ""))), header.key.get("model")
    return Source(
        name=full_name(known[0].name, model) if known and model else path.name,
        dataset=known[0].name if known and model else path.name,
        path=str(path),
        split=known[1] if known else TEST,
        weights=str(header.key.get("weights", "")),
        n_samples=header.shape[0],
        model=model if known else None,
    )


def _finished_store(path: Path) -> Source:
    if not storage.read_header(path).finished:
        raise InputError(
            f"{path} is not finished: "
            "run the same crg encode again, which continues where it stopped."
        )
    return _store(path)


def _is_feature_file(path: Path) -> bool:
    try:
        return set(REQUIRED) <= set(read_raw(path, ()))
    except InputError:
        return False


def find_sources(design: Design, found: Sequence[Source], folder: Path) -> tuple[Source, ...]:
    """All datasets of the design; nothing is rendered or encoded for it."""
    matched = [
        pick(found, dataset, model)
        for data in design.data
        for dataset in data.datasets or ()
        for model in data.models
    ]
    rest = _distinct([each for each in found if each not in matched and each.split == TEST])
    sources: list[Source] = []
    for data in design.data:
        if data.datasets is not None:
            sources += _catalogued(data.datasets, data.models, found)
        elif data.shapes is not None:
            sources += _shapes(data, data.shapes, folder, design.wants("domains"))
        else:
            sources += [_with_few(each, found) for each in rest]
            sources += _joined(rest, design)
    return tuple({source.name: source for source in sources}.values())


def _catalogued(
    datasets: Sequence[str], models: Sequence[str], found: Sequence[Source]
) -> Iterator[Source]:
    for model in models:
        for dataset in datasets:
            store = pick(found, dataset, model)
            if store is not None:
                yield _with_few(store, found)
                continue
            why = (
                f"No store of {dataset} encoded with {model} was found: run crg encode {dataset} "
                f"--model {model} --root FOLDER --out STORE and name STORE with --data."
            )
            yield Source(full_name(dataset, model), dataset, model=model, missing=why)


def _shapes(
    data: DataDesign, shifts: Sequence[str], folder: Path, in_sequence: bool
) -> Iterator[Source]:
    paths, few = [], None
    for shift in shifts:
        name, store, labelled = rendered.names(replace(data, shapes=(shift,)))
        paths.append(str(folder / store))
        own = str(folder / labelled) if labelled else None
        few = few or own
        yield Source(name, name, paths[-1], few=own)
    if in_sequence and len(paths) > 1:
        name = "shapes:" + _THEN.join(shifts)
        yield Source(name, name, paths[0], tuple(paths[1:]), "domains", few)


def _with_few(source: Source, found: Sequence[Source]) -> Source:
    """The source with labelled images, where there are some for it."""
    few = pick_few(found, source) if source.model else None
    return source if few is None else replace(source, few=few.path)


def _joined(files: Sequence[Source], design: Design) -> Iterator[Source]:
    """All files whose features can stand side by side, as orders of several files need them."""
    if not any(design.wants(order) for order in SEVERAL_FILES):
        return
    alike: dict[tuple[int, str, str | None], list[Source]] = defaultdict(list)
    n_views: dict[str, int] = {}
    for each in files:
        try:
            features = read_features(each.path, verify=False)
        except InputError:
            if each.is_named:
                raise
            continue  # its own source says why
        if features.labels is not None:
            scale, n_views[each.path] = f"{features.task.logit_scale:.4g}", features.n_views
            alike[features.task.width, scale, features.model].append(each)
    for group in alike.values():
        if design.wants("domains") and len(group) > 1:
            yield _together(_THEN.join(each.name for each in group), "domains", group)
        for first in group if design.wants("many_names") else ():
            same = [e for e in group if e is not first and n_views[e.path] == n_views[first.path]]
            if same:  # others would lose views
                name = f"{first.name}, names of {len(same) + 1} files"
                yield replace(_together(name, "many_names", [first, *same]), dataset=first.name)


def _together(name: str, order: str, group: Sequence[Source]) -> Source:
    first, *rest = (each.path for each in group)
    is_named = all(each.is_named for each in group)
    return Source(name, name, first, tuple(rest), order, is_named=is_named)


def _distinct(files: Sequence[Source]) -> list[Source]:
    """Files of the same name are called by their paths."""
    count = Counter(each.name for each in files)
    return [replace(each, name=each.path) if count[each.name] > 1 else each for each in files]


def unknown_datasets(design: Design, sources: Iterable[str]) -> list[str]:
    """Sentences on options for single datasets that neither the catalogue nor a source knows."""
    known = set(sources)
    return [
        f"the row {row.label!r} has options for {name!r}, and no source is called so."
        for row in design.rows
        for name in row.per_dataset
        if find_entry(name) is None and name not in known
    ]
