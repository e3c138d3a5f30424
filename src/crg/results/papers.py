"""Reported accuracies: the numbers that papers print for a method, with their caveats.

The numbers are in ``papers.toml``, each with the place it was read in. None of them was
measured here, and none is left out because it looks wrong: the notes say so instead.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from importlib import resources

import msgspec
from msgspec import Struct

from crg.results.schema import Outline, Source, Variant

AVERAGE = "average"


@dataclass(frozen=True)
class Reported:
    """A number as printed, in %."""

    value: float
    source: str  # a short name for the place it was read in
    citation: str
    rank: int = field(compare=False)  # in the order of the tables
    notes: tuple[str, ...]  # slips in papers and differences in protocol that concern it


class PaperTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[[table]]``: a block of a printed table, one value per method and column."""

    experiment: str
    backbone: str
    source: str  # the print that it was read in: a key of ``sources``
    columns: tuple[str, ...]
    rows: dict[str, tuple[float, ...]]


class PaperNote(Struct, frozen=True, forbid_unknown_fields=True):
    """A caveat about printed numbers: about all, unless a field narrows it."""

    note: str
    source: str | None = None  # of the tables it is about
    experiment: str | None = None
    backbone: str | None = None
    methods: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None


class Papers(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``papers.toml``."""

    experiments: tuple[str, ...]  # those that papers may have numbers for
    sources: dict[str, str]
    table: tuple[PaperTable, ...]
    slip: tuple[PaperNote, ...]
    protocol: tuple[PaperNote, ...]

    def numbers(
        self, experiment: str, backbone: str, dataset: str, *names: str
    ) -> tuple[Reported, ...]:
        """The accuracies that are printed for a method on a dataset, at most one per source.

        The first of ``names`` that a source knows counts. A source that repeats the number of an
        earlier one is left out. The numbers are of OpenAI's weights: ``ViT-B/16``, ``ViT-B-16`` and
        ``ViT-B-16:openai`` are the same backbone, ``ViT-B-16:laion2b`` is another.

        >>> bundled_papers().numbers("robustness", "ViT-B/16", "imagenet-a", "tda")[0].value
        60.11
        """
        found: dict[str, Reported] = {}
        for rank, table in enumerate(self.table):
            name = next((name for name in names if name in table.rows), "")
            row = dict(zip(table.columns, table.rows.get(name, ()), strict=False))
            if (
                table.experiment == experiment
                and _plain(table.backbone) == _plain(backbone)
                and dataset in row
                and row[dataset] not in [each.value for each in found.values()]
            ):
                # a caveat about one dataset concerns the average too
                about = row.keys() if dataset == AVERAGE else {dataset}
                odd = (
                    note.note
                    for note in (*self.slip, *self.protocol)
                    if note.source in (None, table.source)
                    and note.experiment in (None, experiment)
                    and _plain(note.backbone or backbone) == _plain(backbone)
                    and (note.methods is None or name in note.methods)
                    and (note.datasets is None or not about.isdisjoint(note.datasets))
                )
                citation = self.sources[table.source]
                number = Reported(row[dataset], table.source, citation, rank, tuple(odd))
                found.setdefault(table.source, number)
        return tuple(found.values())

    def printed(self, outline: Outline, source: Source, row: Variant) -> tuple[Reported, ...]:
        """The accuracies that are printed for a method of an experiment on a dataset.

        It may be named by its label, or by its method with default options; papers print what
        they tuned per dataset, so a tuned variant has the numbers of its method too.
        """
        if not outline.reported or source.model is None or row.offline:
            return ()
        names = [row.label, row.method] if not row.options or row.tuned else [row.label]
        if row.is_baseline and len(source.prompts) < 2:  # where no prompt is named, it may be one
            several = ["zero_shot"] if not source.prompts else []
            names = [row.label] * (row.label != row.method) + ["zero_shot_one_prompt", *several]
        return self.numbers(outline.reported, source.model, source.dataset, *names)


@functools.cache
def bundled_papers() -> Papers:
    """The papers that come with the package."""
    content = resources.files("crg.results").joinpath("papers.toml").read_bytes()
    return msgspec.toml.decode(content, type=Papers)


def _plain(backbone: str) -> str:
    name = backbone.strip().lower().replace("/", "-")
    return name.removeprefix("openclip:").removesuffix(":openai")
