"""Reported accuracies: what papers print for a method, with what speaks against comparing it.

The numbers are in ``papers.toml``, each with the paper it was read in. None of them was
measured here, and none is left out because it looks wrong: that is what the notes are for.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from crg.results.schema import Outline, Row, Source, read_toml
from crg.types import InputError

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

    def stated(
        self, experiment: str, backbone: str | None, dataset: str, method: str
    ) -> tuple[str, ...]:
        """What is said of a result whose number is not available, each with where it is said."""
        if backbone is None or self.number(experiment, backbone, dataset, method) is not None:
            return ()
        return tuple(
            f"{note.text} So says {note.source}."
            for note in self.notes
            if note.kind == "statement" and note.concerns(experiment, backbone, {dataset}, method)
        )

    def printed(self, outline: Outline, source: Source, row: Row) -> Reported | None:
        """What papers print for a row of an experiment on a dataset with its model.

        It may be named by its label, or by its method with default options; papers print what
        they tuned per dataset, so a tuned row has the number of its method too.
        """
        if not outline.reported or source.model is None or row.offline:
            return None
        names = [row.label, row.method] if not row.options or row.tuned else [row.label]
        if row.method == "zero_shot" and not row.options and len(source.prompts) == 1:
            names = [row.label] * (row.label != row.method) + ["zero_shot_one_prompt"]
        found = (self.number(outline.reported, source.model, source.dataset, n) for n in names)
        return next((each for each in found if each is not None), None)

    def before(self, others: Papers) -> Papers:
        """Both, where these come first."""
        return Papers((*self.prints, *others.prints), (*self.notes, *others.notes))

    def _prints_of(self, experiment: str, backbone: str) -> list[Print]:
        return [
            each
            for each in self.prints
            if each.experiment == experiment and _plain(each.backbone) == _plain(backbone)
        ]


class _Table(Struct, forbid_unknown_fields=True):
    """One ``[[table]]`` of a file."""

    experiment: str
    backbone: str
    source: str
    columns: Annotated[tuple[str, ...], Meta(min_length=1)]
    rows: Annotated[dict[str, tuple[Annotated[float, Meta(ge=0, le=100)], ...]], Meta(min_length=1)]


class _Note(Struct, forbid_unknown_fields=True):
    """One ``[[slip]]``, ``[[protocol]]`` or ``[[statement]]`` of a file."""

    note: str
    source: str | None = None
    experiment: str | None = None
    backbone: str | None = None
    methods: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None


class _File(Struct, forbid_unknown_fields=True):
    """A file such as ``papers.toml``."""

    experiments: tuple[str, ...] = ()
    sources: dict[str, str] = {}
    table: tuple[_Table, ...] = ()
    slip: tuple[_Note, ...] = ()
    protocol: tuple[_Note, ...] = ()
    statement: tuple[_Note, ...] = ()


def with_papers(path: str | os.PathLike[str] | None) -> Papers:
    """The bundled papers; before them those of a file of the same form, if one is named."""
    if path is None:
        return bundled_papers()
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    data = read_toml(content, _File, str(path))
    for why in _faults(data):
        raise InputError(f"{path}: {why}.")
    return _papers(data, str(path)).before(bundled_papers())


@functools.cache
def bundled_papers() -> Papers:
    """The papers that come with the package."""
    return _papers(_bundled(), "")


@functools.cache
def known_experiments() -> tuple[str, ...]:
    """The experiments that numbers may be looked up for, those that wait for theirs included."""
    return _bundled().experiments


def _faults(data: _File) -> Iterator[str]:
    """What a form cannot say: names that lead nowhere, and rows that do not fit their columns."""
    notes = [(kind, each) for kind in NOTES for each in getattr(data, kind)]
    if not data.table and not notes:
        yield "it has no numbers: write them below [[table]]"
    for each in (*data.table, *(note for _, note in notes)):
        if each.source is not None and each.source not in data.sources:
            yield f"source is {each.source!r}: name one of the keys below [sources]"
        if each.experiment is not None and each.experiment not in known_experiments():
            known = ", ".join(known_experiments())
            yield f"experiment is {each.experiment!r}: choose one of {known}"
    for table in data.table:
        if len(set(table.columns)) < len(table.columns):
            yield f"columns are {', '.join(table.columns)}: name each dataset once"
        for method, row in table.rows.items():
            if len(row) != len(table.columns):
                yield f"{method} has {len(row)} numbers: give {len(table.columns)}, one per column"
    for kind, note in notes:
        if kind == "statement" and note.source is None:
            yield "a statement has no source: say where it is said"


def _papers(data: _File, file: str) -> Papers:
    prints = tuple(
        Print(each.experiment, each.backbone, data.sources[each.source], each.columns, each.rows,
              file)
        for each in data.table
    )  # fmt: skip
    notes = tuple(
        Note(kind, each.note, None if each.source is None else data.sources[each.source],
             each.experiment, each.backbone, each.methods, each.datasets, file)
        for kind in NOTES
        for each in getattr(data, kind)
    )  # fmt: skip
    return Papers(prints, notes)


@functools.cache
def _bundled() -> _File:
    content = resources.files("crg.results").joinpath("papers.toml").read_bytes()
    return read_toml(content, _File, "papers.toml")


def _plain(backbone: str) -> str:
    name = backbone.strip().lower().replace("/", "-")
    return name.removeprefix("openclip:").removesuffix(":openai")
