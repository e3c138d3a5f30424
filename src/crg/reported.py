"""Reported accuracies: what papers print for a method, with what speaks against comparing it.

The numbers are in ``reported.toml``, each with the paper it was read in. None of them was
measured here, and none is left out because it looks wrong: that is what the notes are for.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import resources
from typing import Any

AVERAGE = "average"


@dataclass(frozen=True)
class Reported:
    """A number as printed, in per cent."""

    value: float
    source: str
    notes: tuple[str, ...]  # slips in papers and differences in protocol that concern it


def reported(experiment: str, backbone: str, dataset: str, method: str) -> Reported | None:
    """What papers print for a method on a dataset, if anything is known.

    The numbers are of OpenAI's weights: ``ViT-B/16``, ``ViT-B-16`` and ``ViT-B-16:openai`` are
    the same backbone, ``ViT-B-16:laion2b`` is another.

    >>> reported("robustness", "ViT-B/16", "imagenet-a", "tda").value
    60.11
    """
    for table in _read()["table"]:
        if table["experiment"] != experiment or _plain(table["backbone"]) != _plain(backbone):
            continue
        row = dict(zip(table["columns"], table["rows"].get(method, ()), strict=False))
        if dataset in row:
            # what is odd about one of its datasets is odd about an average too
            about = row.keys() if dataset == AVERAGE else {dataset}
            odd = _notes(("slip", "protocol"), experiment, backbone, about, method)
            notes = (n["note"] for n in odd if n.get("source") in (None, table["source"]))
            return Reported(row[dataset], _read()["sources"][table["source"]], tuple(notes))
    return None


def known_experiments() -> tuple[str, ...]:
    """The experiments that numbers may be looked up for, those that wait for theirs included."""
    return tuple(_read()["experiments"])


def reported_average(experiment: str, backbone: str, method: str) -> Reported | None:
    """The average that papers print for a method over the datasets of an experiment."""
    return reported(experiment, backbone, AVERAGE, method)


def stated(experiment: str, backbone: str, dataset: str, method: str) -> tuple[str, ...]:
    """What is said of a result whose number is not at hand, each with where it is said."""
    found = _notes(("statement",), experiment, backbone, {dataset}, method)
    return tuple(f"{n['note']} ({_read()['sources'][n['source']]})" for n in found)


def _notes(
    kinds: tuple[str, ...], experiment: str, backbone: str, about: AbstractSet[str], method: str
) -> list[Mapping[str, Any]]:
    """The notes of these kinds that nothing keeps from concerning the entry."""
    return [
        note
        for kind in kinds
        for note in _read()[kind]
        if note.get("experiment", experiment) == experiment
        and _plain(note.get("backbone", backbone)) == _plain(backbone)
        and method in note.get("methods", [method])
        and not about.isdisjoint(note.get("datasets", about))
    ]


def _plain(backbone: str) -> str:
    name = backbone.strip().lower().replace("/", "-")
    return name.removeprefix("openclip:").removesuffix(":openai")


@functools.cache
def _read() -> dict[str, Any]:
    return tomllib.loads(resources.files("crg").joinpath("reported.toml").read_text("utf-8"))
