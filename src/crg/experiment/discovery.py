"""Finding data: the stores and feature files below the paths that were named."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crg import storage
from crg.datasets.catalog import TEST, TRAIN, find_split
from crg.features import REQUIRED
from crg.formats import read_raw
from crg.types import InputError

VARIABLE = "CRG_DATA"  # paths that are searched where none is named
_SUFFIXES = (".npz", ".safetensors")
_DEPTH = 4  # folders below a path that was named
_OPENAI = ("", "openai")  # the weights that the name of a model alone stands for


@dataclass(frozen=True)
class Found:
    """A store or a feature file."""

    path: Path
    name: str  # stem of its file name
    dataset: str | None = None  # in the catalogue; None for feature files, which do not tell
    model: str | None = None
    split: str = TEST
    weights: str = ""  # a fingerprint of those of the model
    n_pictures: int = 0

    @property
    def is_labelled_extra(self) -> bool:
        """Whether its pictures are for learning, so that nothing may be measured on them."""
        return self.split != TEST


def named_paths(given: Sequence[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """The paths of ``--data``, or else those of the environment variable."""
    if given:
        return tuple(Path(path) for path in given)
    return tuple(Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part)


def discover(paths: Iterable[Path]) -> tuple[Found, ...]:
    """Everything usable at or below the paths, each once, in the order of the names.

    What was named itself must be usable; what merely lies below may be something else.
    """
    found: dict[Path, Found] = {}
    for path in paths:
        for each in _at(path):
            found.setdefault(each.path.resolve(), each)
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
    """Labelled pictures for a store of a catalogued dataset, encoded with the very same model.

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
    return min(fitting, key=lambda each: (each.split != TRAIN, -each.n_pictures), default=None)


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


def _at(path: Path) -> Iterator[Found]:
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
        yield from _below(path, _DEPTH)


def _below(folder: Path, depth: int) -> Iterator[Found]:
    try:
        inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError as error:
        raise InputError(
            f"{folder} cannot be read ({error.strerror}): ask for permission or name another."
        ) from None
    for path in inside:
        if path.is_dir():
            if (path / storage.HEADER).exists():
                if _is_finished(path):
                    yield _store(path)
            elif depth > 1:
                yield from _below(path, depth - 1)
        elif path.suffix.lower() in _SUFFIXES and _is_feature_file(path):
            yield Found(path, path.stem)


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
        n_pictures=header.shape[0],
    )


def _is_finished(path: Path) -> bool:
    try:
        return storage.read_header(path).finished
    except InputError:
        return False  # damaged, or of another version: whoever names it itself is told


def _is_feature_file(path: Path) -> bool:
    try:
        return set(REQUIRED) <= set(read_raw(path, ()))
    except InputError:
        return False
