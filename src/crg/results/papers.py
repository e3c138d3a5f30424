"""Reported accuracies: what papers print for a method, with what speaks against comparing it.

The numbers are in ``papers.toml``, each with the paper it was read in. None of them was
measured here, and none is left out because it looks wrong: that is what the notes are for.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import resources
from typing import Any

AVERAGE = "average"
NOTES = ("slip", "protocol", "statement")


@dataclass(frozen=True)
class Reported:
    """A number as printed, in %."""

    value: float
    source: str
    notes: tuple[str, ...]  # slips in papers and differences in protocol that concern it


@dataclass(frozen=True)
class Print:
    """One block of a printed table: a method has one value per column."""

    experiment: str
    backbone: str
    source: str  # whose print it was read in
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]
    file: str = ""  # where it stands: notes of other files do not concern it


@dataclass(frozen=True)
class Note:
    """What must be known of numbers: of all, but for what narrows it (None does not)."""

    kind: str  # one of NOTES
    text: str
    source: str | None = None  # of the tables it is about; of a statement, where that is said
    experiment: str | None = None
    backbone: str | None = None
    methods: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None
    file: str = ""

    def concerns(
        self, experiment: str, backbone: str, about: AbstractSet[str], method: str
    ) -> bool:
        """Whether nothing keeps it from concerning the entry."""
        return (
            self.experiment in (None, experiment)
            and (self.backbone is None or _plain(self.backbone) == _plain(backbone))
            and (self.methods is None or method in self.methods)
            and (self.datasets is None or not about.isdisjoint(self.datasets))
        )


@dataclass(frozen=True)
class Papers:
    """What papers print. Where two print the same entry, the first one counts."""

    prints: tuple[Print, ...]
    notes: tuple[Note, ...]

    def number(self, experiment: str, backbone: str, dataset: str, method: str) -> Reported | None:
        """What papers print for a method on a dataset, if anything is known.

        The numbers are of OpenAI's weights: ``ViT-B/16``, ``ViT-B-16`` and ``ViT-B-16:openai``
        are the same backbone, ``ViT-B-16:laion2b`` is another.

        >>> bundled_papers().number("robustness", "ViT-B/16", "imagenet-a", "tda").value
        60.11
        """
        for each in self._prints_of(experiment, backbone):
            row = dict(zip(each.columns, each.rows.get(method, ()), strict=False))
            if dataset in row:
                # what is odd about one of its datasets is odd about an average too
                about = row.keys() if dataset == AVERAGE else {dataset}
                odd = (
                    note.text
                    for note in self.notes
                    if note.kind != "statement"
                    and note.file == each.file
                    and note.source in (None, each.source)
                    and note.concerns(experiment, backbone, about, method)
                )
                return Reported(row[dataset], each.source, tuple(odd))
        return None

    def average(self, experiment: str, backbone: str, method: str) -> Reported | None:
        """The average that papers print for a method over the datasets of an experiment."""
        return self.number(experiment, backbone, AVERAGE, method)

    def stated(self, experiment: str, backbone: str, dataset: str, method: str) -> tuple[str, ...]:
        """What is said of a result whose number is not available, each with where it is said."""
        if self.number(experiment, backbone, dataset, method) is not None:
            return ()
        return tuple(
            f"{note.text} So says {note.source}."
            for note in self.notes
            if note.kind == "statement" and note.concerns(experiment, backbone, {dataset}, method)
        )

    def methods(self, experiment: str, backbone: str) -> tuple[str, ...]:
        """The methods that anything is printed or stated for, in the order of the prints."""
        printed = [row for each in self._prints_of(experiment, backbone) for row in each.rows]
        stated = [
            method
            for note in self.notes
            if note.kind == "statement" and note.methods and note.datasets
            for method in note.methods
            if note.concerns(experiment, backbone, set(note.datasets), method)
        ]
        return tuple(dict.fromkeys((*printed, *stated)))

    def before(self, others: Papers) -> Papers:
        """Both, where these come first."""
        return Papers((*self.prints, *others.prints), (*self.notes, *others.notes))

    def _prints_of(self, experiment: str, backbone: str) -> list[Print]:
        return [
            each
            for each in self.prints
            if each.experiment == experiment and _plain(each.backbone) == _plain(backbone)
        ]


def papers_of(data: Mapping[str, Any], file: str = "") -> Papers:
    """The papers of a file such as ``papers.toml``, whose form must have been checked."""
    sources = data.get("sources", {})
    prints = tuple(
        Print(
            table["experiment"],
            table["backbone"],
            sources[table["source"]],
            tuple(table["columns"]),
            {method: tuple(map(float, row)) for method, row in table["rows"].items()},
            file,
        )
        for table in data.get("table", ())
    )
    notes = (_note(kind, each, sources, file) for kind in NOTES for each in data.get(kind, ()))
    return Papers(prints, tuple(notes))


@functools.cache
def bundled_papers() -> Papers:
    """The papers that come with the package."""
    return papers_of(_bundled())


@functools.cache
def known_experiments() -> tuple[str, ...]:
    """The experiments that numbers may be looked up for, those that wait for theirs included."""
    return tuple(_bundled()["experiments"])


def _note(kind: str, note: Mapping[str, Any], sources: Mapping[str, str], file: str) -> Note:
    return Note(
        kind,
        note["note"],
        sources[note["source"]] if "source" in note else None,
        note.get("experiment"),
        note.get("backbone"),
        _names(note.get("methods")),
        _names(note.get("datasets")),
        file,
    )


def _names(given: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)


def _plain(backbone: str) -> str:
    name = backbone.strip().lower().replace("/", "-")
    return name.removeprefix("openclip:").removesuffix(":openai")


def _bundled() -> dict[str, Any]:
    return tomllib.loads(resources.files("crg.results").joinpath("papers.toml").read_text("utf-8"))
