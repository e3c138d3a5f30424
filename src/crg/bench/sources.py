"""What an experiment runs on: stores and feature files on disk, and rendered shapes.

``origin_of`` is what a run is known by beside its options: its data and the code of its method.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import crg.parts
from crg.bench.design import DataDesign, Design
from crg.bench.rendered import Shapes
from crg.datasets.catalog import TEST, TRAIN, find_entry, find_split
from crg.features import store as storage
from crg.features.files import REQUIRED, check_complete, read_features
from crg.features.formats import read_raw
from crg.methods.registry import get_method
from crg.resources import FEW
from crg.results.provenance import Origin
from crg.streams import SEVERAL_FILES
from crg.types import InputError

VARIABLE = "CRG_DATA"  # paths that are searched where none is named
_SUFFIXES = (".npz", ".safetensors")
_DEPTH = 4  # folders below a path that was named
_OPENAI = ("", "openai")  # the weights that the name of a model alone stands for

OnLeftOut: TypeAlias = Callable[[Path, str], None]  # a path, and why it cannot be used


@dataclass(frozen=True)
class Found:
    """A store or a feature file."""

    path: Path
    name: str  # stem of its file name
    dataset: str | None = None  # in the catalogue; None for feature files, which do not tell
    model: str | None = None
    split: str = TEST
    weights: str = ""  # a fingerprint of those of the model
    n_images: int = 0
    is_named: bool = True  # itself, rather than a folder that it lies below

    @property
    def is_labelled_extra(self) -> bool:
        """Whether its images are for learning, so that nothing may be measured on them."""
        return self.split != TEST


def named_paths(given: Sequence[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """The paths of ``--data``, or else those of the environment variable."""
    if given:
        return tuple(Path(path) for path in given)
    return tuple(Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part)


def discover(
    paths: Iterable[Path], on_left_out: OnLeftOut = lambda path, why: None
) -> tuple[Found, ...]:
    """Everything usable at or below the paths, each once, in the order of the names.

    What was named itself must be usable. What merely lies below is left out if it is not, and
    ``on_left_out`` is called with the reason; files that are not feature files are passed over.
    """
    found: dict[Path, Found] = {}
    for path in paths:
        for each in _at(path, on_left_out):
            place = each.path.resolve()
            first = found.setdefault(place, each)
            found[place] = replace(first, is_named=first.is_named or each.is_named)
    return tuple(found.values())


def pick(found: Iterable[Found], dataset: str, model: str) -> Found | None:
    """The store of a catalogued dataset encoded with a model; the original weights come first."""
    fitting = [
        each
        for each in found
        if each.dataset == dataset
        and not each.is_labelled_extra
        and each.model
        and same_model(each.model, model)
    ]
    return min(fitting, key=lambda each: _tag(each.model or "") not in _OPENAI, default=None)


def pick_few(found: Iterable[Found], store: Found) -> Found | None:
    """Labelled images for a store of a catalogued dataset, encoded with the very same model.

    Those for training come before those for validation, and of several the most.
    """
    fitting = [
        each
        for each in found
        if each.is_labelled_extra
        and each.dataset == store.dataset
        and each.weights == store.weights
        and same_model(each.model or "", store.model or "")
    ]
    return min(fitting, key=lambda each: (each.split != TRAIN, -each.n_images), default=None)


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
    """What a source is called; weights that are not the original ones are named.

    >>> full_name("dtd", "RN50:openai"), full_name("dtd", "RN50:yfcc15m")
    ('dtd, RN50', 'dtd, RN50:yfcc15m')
    """
    plain = model.removeprefix("openclip:")
    return f"{dataset}, {plain.partition(':')[0] if _tag(model) in _OPENAI else plain}"


def _at(path: Path, on_left_out: OnLeftOut) -> Iterator[Found]:
    if not path.exists():
        raise InputError(f"{path} does not exist: check what --data or {VARIABLE} names.")
    if path.is_file():
        if not _is_feature_file(path):
            raise InputError(
                f"{path} is no feature file: give one that holds {', '.join(REQUIRED)}, a store, "
                "or a folder of them."
            )
        yield Found(path, path.stem)
    elif (path / storage.HEADER).exists():
        yield _store(path)
    else:
        inside = [replace(each, is_named=False) for each in _below(path, _DEPTH, on_left_out)]
        if not inside:
            on_left_out(path, f"there is nothing in {path} that can be used.")
        yield from inside


def _below(folder: Path, depth: int, on_left_out: OnLeftOut) -> Iterator[Found]:
    for path in _inside(folder, on_left_out):
        try:
            if path.is_dir() and not (path / storage.HEADER).exists():
                yield from _below(path, depth - 1, on_left_out) if depth > 1 else ()
            elif path.is_dir():
                yield _finished_store(path)
            elif path.suffix.lower() in _SUFFIXES:
                check_complete(path, read_raw(path, ()))
                yield Found(path, path.stem)
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


def _store(path: Path) -> Found:
    header = storage.read_header(path)
    known = find_split(str(header.key.get("dataset", "")))
    return Found(
        path,
        path.name,
        dataset=known[0].name if known else None,
        model=header.key.get("model"),
        split=known[1] if known else TEST,
        weights=str(header.key.get("weights", "")),
        n_images=header.shape[0],
    )


def _finished_store(path: Path) -> Found:
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


_THEN = ", then "


@dataclass(frozen=True)
class Prospect:
    """A source before it is rendered or read: where its files are, or why there are none."""

    name: str
    dataset: str
    paths: tuple[Path, ...] = ()  # more than one: see ``several``
    few: Path | None = None
    shapes: tuple[Shapes, ...] = ()  # what is to be rendered into the paths
    missing: str | None = None
    model: str | None = None  # of a store of a catalogued dataset
    must_be_usable: bool = True  # False for what merely lies below a folder that was named
    several: str = ""  # the order that needs more than one of the paths


def find_prospects(design: Design, found: Sequence[Found], folder: Path) -> tuple[Prospect, ...]:
    """All sources of the design; nothing is rendered or encoded for it."""
    matched = [
        pick(found, dataset, model)
        for data in design.data
        for dataset in data.datasets or ()
        for model in data.models
    ]
    rest = _distinct([e for e in found if e not in matched and not e.is_labelled_extra])
    prospects: list[Prospect] = []
    for data in design.data:
        if data.datasets is not None:
            prospects += _catalogued(data.datasets, data.models, found)
        elif data.shapes is not None:
            prospects += _rendered(data, data.shapes, folder, design.wants("domains"))
        else:
            prospects += [_of(each, found) for each in rest]
            prospects += _joined(rest, design)
    return tuple({prospect.name: prospect for prospect in prospects}.values())


def _catalogued(
    datasets: Sequence[str], models: Sequence[str], found: Sequence[Found]
) -> Iterator[Prospect]:
    for model in models:
        for dataset in datasets:
            store = pick(found, dataset, model)
            if store is not None:
                yield _of(store, found)
                continue
            why = (
                f"No store of {dataset} encoded with {model} was found: run crg encode {dataset} "
                f"--model {model} --root FOLDER --out STORE and name STORE with --data."
            )
            yield Prospect(full_name(dataset, model), dataset, missing=why, model=model)


def _rendered(
    data: DataDesign, shifts: Sequence[str], folder: Path, in_sequence: bool
) -> Iterator[Prospect]:
    counts = (data.severity, data.images, data.views, data.shots, data.generated, data.all_names)
    streams = [Shapes(shift, *counts) for shift in shifts]
    for each in streams:
        few = each.few_store(folder)
        yield Prospect(each.name, each.name, (each.store(folder),), few, (each,))
    if in_sequence and len(streams) > 1:
        name = "shapes:" + _THEN.join(each.shift for each in streams)
        paths = tuple(each.store(folder) for each in streams)
        few = streams[0].few_store(folder)
        yield Prospect(name, name, paths, few, tuple(streams), several="domains")


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


def _joined(files: Sequence[Found], design: Design) -> Iterator[Prospect]:
    """All files whose features can stand side by side, as orders of several files need them."""
    if not any(design.wants(order) for order in SEVERAL_FILES):
        return
    alike: dict[tuple[int, str, str | None], list[Found]] = defaultdict(list)
    n_views: dict[Path, int] = {}
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


def _together(name: str, order: str, group: Sequence[Found]) -> Prospect:
    paths, is_named = tuple(each.path for each in group), all(each.is_named for each in group)
    return Prospect(name, name, paths, must_be_usable=is_named, several=order)


def _distinct(files: Sequence[Found]) -> list[Found]:
    """Files of the same name are told apart by their paths."""
    count = Counter(each.name for each in files)
    return [replace(each, name=str(each.path)) if count[each.name] > 1 else each for each in files]


def unknown_datasets(design: Design, sources: Iterable[str]) -> list[str]:
    """Sentences on options for single datasets that neither the catalogue nor a source knows."""
    known = set(sources)
    return [
        f"the row {row.label!r} has options for {name!r}, and no source is called so."
        for row in design.rows
        for name in row.per_dataset
        if find_entry(name) is None and name not in known
    ]


def origin_of(
    path: str,
    sha256: str | None,
    method: str,
    plugins: Sequence[str],
    labelled: tuple[str, str | None] | None = None,
) -> Origin:
    """Where a run of ``method`` on a file comes from; ``labelled`` are few-shot images."""
    own = str(Path(path).resolve()), sha256, _code_digest(method), tuple(plugins)
    if labelled is None or FEW not in get_method(method).needs:
        return Origin(*own)  # what a method does not look at is no part of its run
    return Origin(*own, str(Path(labelled[0]).resolve()), labelled[1])


@functools.cache
def _code_digest(method: str) -> str:
    """Digest of the file that defines a method and of the parts that methods are made of.

    Whoever edits either must not be given the old results when the experiment continues.
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
