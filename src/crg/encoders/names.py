"""MODEL, MODEL:TAG and MODEL:FILE: what a name of an open_clip model stands for."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crg.encoders.libraries import library
from crg.types import InputError

_FOLDERS = ("local-dir:", "hf-hub:")  # open_clip's own forms: configuration and weights together
_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".npz")


@dataclass(frozen=True)
class Wanted:
    """A model with the weights for it: of exactly one kind."""

    model: str  # as open_clip calls it
    tag: str | None = None  # published weights
    file: Path | None = None  # a checkpoint on this machine

    @property
    def has_own_configuration(self) -> bool:
        """Whether open_clip finds both configuration and weights by the name alone."""
        return self.model.startswith(_FOLDERS)


def parse_name(name: str) -> Wanted:
    """What ``name`` stands for; a model, tag or file that there is not is refused."""
    if name.startswith(_FOLDERS):
        return Wanted(name)
    model, colon, rest = name.partition(":")
    model = _known_model(model)
    if not colon:
        return Wanted(model, tag=_default_tag(model))
    if library("open_clip", "openclip").pretrained.is_pretrained_cfg(model, rest):
        return Wanted(model, tag=rest.lower().replace("-", "_"))
    return Wanted(model, file=_existing_file(model, rest))


def published_tags(model: str) -> list[str]:
    """The tags of the weights that are published for a model."""
    tags: list[str] = library("open_clip", "openclip").list_pretrained_tags_by_model(model)
    return tags


def published_configuration(model: str, tag: str) -> dict[str, Any]:
    """Where published weights are and how images are prepared for them."""
    found: dict[str, Any] = library("open_clip", "openclip").get_pretrained_cfg(model, tag)
    return found


def _known_model(given: str) -> str:
    known: list[str] = library("open_clip", "openclip").list_models()
    same = {name.lower(): name for name in known}
    asked = given.replace("/", "-").lower()
    if asked in same:
        return same[asked]
    near = difflib.get_close_matches(asked, same, n=3, cutoff=0.5)
    names = ", ".join(["mini", *(same[each] for each in near)])
    raise InputError(
        f"There is no model {given!r}: did you mean one of {names}, "
        "or see crg encoders for all of them?"
    )


def _default_tag(model: str) -> str:
    tags = published_tags(model)
    if "openai" in tags:
        return "openai"
    if len(tags) == 1:
        return tags[0]
    if not tags:
        raise InputError(f"No weights are published for {model}: give a file with {model}:FILE.")
    raise InputError(
        f"{model} comes with different weights: choose with {model}:TAG, "
        f"where TAG is one of {', '.join(tags)}."
    )


def _existing_file(model: str, given: str) -> Path:
    path = Path(given).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise InputError(f"{given} is a folder: give the file of weights in it, {model}:FILE.")
    if "/" in given or "\\" in given or path.suffix.lower() in _SUFFIXES:
        raise InputError(f"There is no file {given}: put the weights of {model} there.")
    tags = published_tags(model)
    remedy = f"choose one of {', '.join(tags)}, or give a file" if tags else "give a file"
    raise InputError(f"{model} has no weights called {given!r}: {remedy}.")
