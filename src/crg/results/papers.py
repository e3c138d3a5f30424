"""Reported accuracies: the numbers that papers print for a method, with their caveats.

The numbers are in ``papers.toml``, each with the paper it was read in. None of them was
measured here, and none is left out because it looks wrong: the notes say so instead.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from crg.results.schema import Outline, Source, Variant
from crg.types import InputError

AVERAGE = "average"


@dataclass(frozen=True)
class Reported:
    """A number as printed, in %."""

    value: float
    source: str
    notes: tuple[str, ...]  # slips in papers and differences in protocol that concern it


class PaperTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[[table]]`` of a file: a block of a printed table, one value per method and column."""

    experiment: str
    backbone: str
    source: str  # the print that it was read in: a key of ``sources``
    columns: Annotated[tuple[str, ...], Meta(min_length=1)]
    rows: Annotated[dict[str, tuple[Annotated[float, Meta(ge=0, le=100)], ...]], Meta(min_length=1)]


class PaperNote(Struct, frozen=True, forbid_unknown_fields=True):
    """A caveat about numbers of its file: about all, unless a field narrows it."""

    note: str
    source: str | None = None  # of the tables it is about
    experiment: str | None = None
    backbone: str | None = None
    methods: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None

    def concerns(
        self, experiment: str, backbone: str, about: AbstractSet[str], method: str
    ) -> bool:
        """Whether it is about this number; ``about`` holds the datasets behind the number."""
        return (
            self.experiment in (None, experiment)
            and (self.backbone is None or _plain(self.backbone) == _plain(backbone))
            and (self.methods is None or method in self.methods)
            and (self.datasets is None or not about.isdisjoint(self.datasets))
        )


class PaperFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file such as ``papers.toml``."""

    experiments: tuple[str, ...] = ()
    sources: dict[str, str] = {}
    table: tuple[PaperTable, ...] = ()
    slip: tuple[PaperNote, ...] = ()
    protocol: tuple[PaperNote, ...] = ()


class Papers:
    """The numbers of some files. Where two tables hold the same entry, the first one counts."""

    def __init__(self, *files: PaperFile) -> None:
        self.files = files

    def number(self, experiment: str, backbone: str, dataset: str, method: str) -> Reported | None:
        """The accuracy that papers print for a method on a dataset, if any.

        The numbers are of OpenAI's weights: ``ViT-B/16``, ``ViT-B-16`` and ``ViT-B-16:openai``
        are the same backbone, ``ViT-B-16:laion2b`` is another.

        >>> bundled_papers().number("robustness", "ViT-B/16", "imagenet-a", "tda").value
        60.11
        """
        for file, table in [(each, table) for each in self.files for table in each.table]:
            row = dict(zip(table.columns, table.rows.get(method, ()), strict=False))
            if (
                table.experiment == experiment
                and _plain(table.backbone) == _plain(backbone)
                and dataset in row
            ):
                # a caveat about one dataset concerns the average too
                about = row.keys() if dataset == AVERAGE else {dataset}
                odd = (
                    note.note
                    for note in (*file.slip, *file.protocol)
                    if note.source in (None, table.source)
                    and note.concerns(experiment, backbone, about, method)
                )
                return Reported(row[dataset], file.sources[table.source], tuple(odd))
        return None

    def printed(self, outline: Outline, source: Source, row: Variant) -> Reported | None:
        """The accuracy that papers print for a method of an experiment on a dataset.

        It may be named by its label, or by its method with default options; papers print what
        they tuned per dataset, so a tuned variant has the number of its method too.
        """
        if not outline.reported or source.model is None or row.offline:
            return None
        names = [row.label, row.method] if not row.options or row.tuned else [row.label]
        if row.method == "zero_shot" and not row.options and len(source.prompts) == 1:
            names = [row.label] * (row.label != row.method) + ["zero_shot_one_prompt"]
        found = (self.number(outline.reported, source.model, source.dataset, n) for n in names)
        return next((each for each in found if each is not None), None)


def with_papers(path: str | os.PathLike[str] | None) -> Papers:
    """The bundled papers; before them those of a file of the same form, if one is named."""
    if path is None:
        return bundled_papers()
    try:
        file = msgspec.toml.decode(Path(path).read_bytes(), type=PaperFile)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not valid ({error}): correct it there.") from None
    for why in _faults(file):
        raise InputError(f"{path}: {why}.")
    return Papers(file, *bundled_papers().files)


@functools.cache
def bundled_papers() -> Papers:
    """The papers that come with the package."""
    content = resources.files("crg.results").joinpath("papers.toml").read_bytes()
    return Papers(msgspec.toml.decode(content, type=PaperFile))


def known_experiments() -> tuple[str, ...]:
    """The experiments that papers may have numbers for."""
    [bundled] = bundled_papers().files
    return bundled.experiments


def _faults(data: PaperFile) -> Iterator[str]:
    """Names that lead nowhere, and rows that do not fit their columns."""
    named: list[PaperTable | PaperNote] = [*data.table, *data.slip, *data.protocol]
    if not named:
        yield "it has no numbers: write them below [[table]]"
    for each in named:
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


def _plain(backbone: str) -> str:
    name = backbone.strip().lower().replace("/", "-")
    return name.removeprefix("openclip:").removesuffix(":openai")
