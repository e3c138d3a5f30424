"""Datasets to run on: stores and feature files on disk, and rendered shapes.

``find_sources`` lists what a design asks for as ``Source``s, without reading or rendering any.
Shapes are encoded once with the bundled model. The name of a store of shapes says all that decides
its content, so that it can be rendered again from it.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec.structs import replace

from crg.atomic import make_folder
from crg.bench.design import DataDesign, Design
from crg.datasets.catalog import TEST, TRAIN, find_split
from crg.features import store as storage
from crg.features.files import check_complete, read_features
from crg.features.formats import read_raw
from crg.results.schema import Source
from crg.streams import SEVERAL_FILES
from crg.types import InputError

if TYPE_CHECKING:
    from crg.encoding import EncodingProgress
    from crg.images.image_set import ImageSet

_SUFFIXES = (".npz", ".safetensors")
_DEPTH = 4  # folders below a path that was named
_OPENAI = ("", "openai")  # the weights that the name of a model alone stands for
_THEN = ", then "
CLEAN = "clean"  # the name of images without a shift
FOLDER = Path("build", "bench")  # where stores are made unless another place is named
MODEL = "mini"
# The model was not trained on these, and no shift, severity or option was chosen with them.
STREAM_SEED, LABELLED_SEED = 21, 121
_SHIFTED = "(?P<shift>[a-z]+)-(?P<severity>[1-5])"
_COUNT = "[1-9][0-9]*"
_STORE_NAME = re.compile(
    f"(?:{CLEAN}|{_SHIFTED})-"
    f"(?:(?P<images>{_COUNT})x(?P<views>{_COUNT})(?:-(?P<generated>{_COUNT})made)?"
    f"(?P<all_names>-all-names)?"
    f"|labelled-(?P<shots>{_COUNT}))"
)

OnEncoding: TypeAlias = Callable[[str, "EncodingProgress"], None]  # what is encoded, and how far
OnLeftOut: TypeAlias = Callable[[Path, str], None]  # a path, and why it cannot be used


def discover(
    paths: Iterable[Path], on_left_out: OnLeftOut = lambda path, why: None
) -> tuple[Source, ...]:
    """Everything usable at or below the paths, each once, in the order of the names.

    What was named itself must be usable. What merely lies below is left out if it is not, and
    ``on_left_out`` is called with the reason; files that are not feature files are passed over.
    """
    found: dict[Path, Source] = {}
    for path in paths:
        if not path.exists():
            raise InputError(f"{path} does not exist: check the path.")
        if path.is_file() or (path / storage.HEADER).exists():
            found[path.resolve()] = _usable(path)
            continue
        inside = [replace(each, is_named=False) for each in _below(path, _DEPTH, on_left_out)]
        if not inside:
            on_left_out(path, f"{path} holds no feature file and no store.")
        for each in inside:
            found.setdefault(Path(each.path).resolve(), each)
    return tuple(found.values())


def pick(found: Iterable[Source], dataset: str, model: str) -> Source | None:
    """The store of a catalogued dataset encoded with a model; the original weights come first."""
    stores = [each for each in found if each.dataset == dataset and each.split == TEST]
    wanted = _architecture(model)
    fitting = [each for each in stores if each.model and _architecture(each.model) == wanted]
    return min(fitting, key=lambda each: _tag(each.model or "") not in _OPENAI, default=None)


def _architecture(model: str) -> str:
    """The architecture that the name of a model stands for, whatever its weights.

    >>> _architecture("openclip:ViT-B-16:openai") == _architecture("vit-b/16")
    True
    """
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


def _below(folder: Path, depth: int, on_left_out: OnLeftOut) -> Iterator[Source]:
    inside: list[Path] = []
    with _leaving_out(folder, on_left_out):
        inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    for path in inside:
        with _leaving_out(path, on_left_out):
            if path.is_dir() and not (path / storage.HEADER).exists():
                yield from _below(path, depth - 1, on_left_out) if depth > 1 else ()
            elif path.is_dir() or path.suffix.lower() in _SUFFIXES:
                yield _usable(path)


@contextlib.contextmanager
def _leaving_out(path: Path, on_left_out: OnLeftOut) -> Iterator[None]:
    """Report a path that cannot be used instead of raising."""
    try:
        yield
    except InputError as error:
        on_left_out(path, str(error))
    except OSError as error:
        why = f"cannot be read ({error.strerror}): ask for permission or name another."
        on_left_out(path, f"{path} {why}")


def _usable(path: Path) -> Source:
    """The feature file or finished store at a path; refused where it is neither."""
    if path.is_file() or path.is_symlink():
        raw = read_raw(path, ("dataset", "model"))
        check_complete(path, raw)
        keys = [key for key in ("dataset", "model") if key in raw]
        named = {key: "".join(map(str, np.ravel(raw[key]))) for key in keys}
        dataset = named.get("dataset", path.stem)
        return Source(path.stem, dataset, str(path), model=named.get("model"))
    header = storage.read_finished(path)
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


def find_sources(design: Design, found: Sequence[Source], folder: Path) -> tuple[Source, ...]:
    """All datasets of the design; nothing is rendered or encoded for it."""
    matched = [
        pick(found, dataset, model)
        for data in design.data
        for dataset in data.datasets or ()
        for model in data.models
    ]
    groups = [data.files for data in design.data if isinstance(data.files, tuple)]
    matched += _named(itertools.chain(*groups), found)
    rest = [each for each in found if each not in matched and each.split == TEST]
    count = Counter(each.name for each in rest)  # files of the same name are called by their paths
    rest = [replace(each, name=each.path) if count[each.name] > 1 else each for each in rest]
    sources: list[Source] = []
    for data in design.data:
        if data.datasets is not None:
            sources += _catalogued(data.datasets, data.models, found)
        elif data.shapes is not None:
            sources += _shapes(data, data.shapes, folder, design.wants("domains"))
        else:
            files = _named(data.files, found) if isinstance(data.files, tuple) else rest
            sources += [_with_few(each, found) for each in files]
            sources += _joined(files, design)
    return tuple({source.name: source for source in sources}.values())


def find_asked(
    design: Design,
    data: Iterable[Path],
    folder: Path,
    only: str | None,
    on_note: Callable[[str], None],
) -> list[Source]:
    """The datasets of the design whose name contains ``only``, with those found at ``data``.

    ``on_note`` gets a sentence on each that cannot be used.
    """

    def is_asked_for(name: str) -> bool:
        return only is None or only.casefold() in name.casefold()

    def leave_out(path: Path, why: str) -> None:
        if is_asked_for(path.name):
            on_note(why)

    sources = find_sources(design, discover(data, leave_out), folder)
    if not sources:
        raise InputError(
            "No data was found: name feature files, stores or folders of them with --data."
        )
    chosen = [each for each in sources if is_asked_for(each.name)]
    if not chosen:
        names = ", ".join(repr(each.name) for each in sources)
        raise InputError(f"No dataset has {only!r} in its name: there is {names}.")
    return chosen


def _catalogued(
    datasets: Sequence[str], models: Sequence[str], found: Sequence[Source]
) -> Iterator[Source]:
    for model, dataset in itertools.product(models, datasets):
        why = (
            f"No store of {dataset} encoded with {model} was found: run crg encode {dataset} "
            f"--model {model} --root FOLDER --out STORE and name STORE with --data."
        )
        absent = Source(full_name(dataset, model), dataset, model=model, missing=why)
        store = pick(found, dataset, model)
        yield absent if store is None else _with_few(store, found)


def _shapes(
    data: DataDesign, shifts: Sequence[str], folder: Path, in_sequence: bool
) -> Iterator[Source]:
    paths, few = [], None
    for shift in shifts:
        name, store, labelled = shape_names(replace(data, shapes=(shift,)))
        paths.append(str(folder / store))
        own = str(folder / labelled) if labelled else None
        few = few or own
        yield Source(name, name, paths[-1], few=own)
    if in_sequence and len(paths) > 1:
        name = "shapes:" + _THEN.join(shifts)
        yield Source(name, name, paths[0], tuple(paths[1:]), "domains", few)


def _named(names: Iterable[str], found: Sequence[Source]) -> list[Source]:
    """The files or stores of these names, as far as they were found."""
    return [each for name in names for each in found if Path(each.path).stem == name]


def _with_few(source: Source, found: Sequence[Source]) -> Source:
    """The source with labelled images of its dataset, where the very same model encoded some.

    Those for training come before those for validation, and of several the most.
    """
    others = [each for each in found if each.split != TEST and each.dataset == source.dataset]
    fitting = [each for each in others if source.model and each.weights == source.weights]
    few = min(fitting, key=lambda each: (each.split != TRAIN, -each.n_samples), default=None)
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
    return Source(name, name, first, tuple(rest), order, is_named=all(e.is_named for e in group))


def shape_names(data: DataDesign) -> tuple[str, str, str | None]:
    """The names of a dataset with one shift, of its store, and of its labelled images' store.

    >>> shape_names(DataDesign(shapes=("night",), shots=4))
    ('shapes:night:3', 'night-3-480x8', 'night-3-labelled-4')
    """
    kind = _kind(data)
    made = f"-{data.generated}made" if data.generated else ""
    named = "-all-names" if data.all_names else ""
    return (
        f"shapes:{kind.replace('-', ':')}{', all names' if data.all_names else ''}",
        f"{kind}-{data.images}x{data.views}{made}{named}",
        f"{kind}-labelled-{data.shots}" if data.shots else None,
    )


def shapes_in(name: str) -> DataDesign | None:
    """The shapes in the store of this name; None for any other name.

    >>> shapes_in("night-3-480x8").images, shapes_in("clean-labelled-4").shots
    (480, 4)
    """
    from crg.shapes.shifts import SHIFTS

    found = _STORE_NAME.fullmatch(name)
    if found is None or found["shift"] not in (None, *SHIFTS):
        return None
    given = {part: value for part, value in found.groupdict().items() if value is not None}
    shift, named = given.pop("shift", CLEAN), bool(given.pop("all_names", ""))
    counts = {part: int(value) for part, value in given.items()}
    return DataDesign(shapes=(shift,), **counts, all_names=named)  # type: ignore[arg-type]


def draw(data: DataDesign) -> ImageSet:
    """The images of a stream, or those with labels if there are ``shots``; drawn when needed."""
    from crg.shapes import N_CLASSES, shape_images

    [shift] = data.shapes or ()
    count, seed = data.images, STREAM_SEED
    if data.shots:
        count, seed = data.shots * N_CLASSES, LABELLED_SEED
    return shape_images(
        None if shift == CLEAN else shift, data.severity, count, seed, data.all_names
    )


def render_store(
    name: str, folder: Path, workers: int = 1, on_encoding: OnEncoding = lambda name, now: None
) -> Path | None:
    """Render and encode the store of this name, unless it is there; None for any other name."""
    data = shapes_in(name)
    if data is None:
        return None
    from crg.encoders import load_encoder
    from crg.encoding import encode
    from crg.encoding.variations import relight
    from crg.images.views import Recipe

    make_folder(folder, "--folder")
    images, made = draw(data), None
    if data.generated:
        made = relight(images, folder / f"{_kind(data)}-{data.images}-made", data.generated)
    encode(
        images,
        load_encoder(MODEL),
        Recipe() if data.shots else Recipe(views=data.views),
        folder / name,
        variations=made,
        workers=workers,
        on_progress=lambda progress: on_encoding(shape_names(data)[0], progress),
    )
    return folder / name


def _kind(data: DataDesign) -> str:
    [shift] = data.shapes or ()
    return CLEAN if shift == CLEAN else f"{shift}-{data.severity}"
