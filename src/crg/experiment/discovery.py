"""Finding data: the stores and feature files below the paths that were named."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from crg import storage
from crg.datasets.catalog import TEST, TRAIN, find_split
from crg.features import REQUIRED, check_complete
from crg.formats import read_raw
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
    ``on_left_out`` is told why; files that do not look like feature files are passed over.
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
            f"{path} is not finished: run the same crg encode again, which goes on where it was."
        )
    return _store(path)


def _is_feature_file(path: Path) -> bool:
    try:
        return set(REQUIRED) <= set(read_raw(path, ()))
    except InputError:
        return False
