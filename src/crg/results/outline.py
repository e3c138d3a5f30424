"""Outline: what an experiment consists of, kept in its results file beside the runs.

With it a results file tells all that a report needs: which run belongs to which row of which
table, what was not there, and what was not run and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from crg.streams.scenario import Scenario

KIND = "experiment"
# What reading a record that is no outline, or one of another version, may raise.
NO_OUTLINE = (KeyError, TypeError, ValueError, AttributeError)
LABELLED_IMAGES = "labelled images"  # among the needs of a row
ENOUGH_ORDERS = 5  # fewer tell too little of how much the order matters
ENOUGH_IMAGES = 30  # scored in each order: of fewer, a handful would make a verdict


@dataclass(frozen=True)
class Row:
    """One line of the experiment's tables: a method with options."""

    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)  # those that differ from the defaults
    tuned: bool = False  # its options were chosen with labels, or for one dataset
    needs: tuple[str, ...] = ()  # such as labelled images
    about: str = ""  # a few words for the report
    x: float | None = None  # its place in figures that show rows against a number
    series: str = ""  # rows of the same series are points of one line in such figures
    against: str = ""  # label of the row that its losses are held against in noise studies

    @property
    def uses_labels(self) -> bool:
        """Whether labels went into it: labelled images, or options chosen with them."""
        return self.tuned or LABELLED_IMAGES in self.needs


@dataclass(frozen=True)
class Source:
    """Images that the experiment runs on, or would if they were there."""

    name: str  # short and distinct, such as "shapes:night:3" or "dtd, RN50"
    dataset: str = ""  # name in the catalogue or stem of the file, for what papers report
    path: str = ""
    then: tuple[str, ...] = ()  # files whose images come after those of ``path``
    few: str | None = None  # labelled images for the methods that need some
    sha256: str = ""
    n_samples: int = 0
    n_classes: int = 0
    n_views: int = 0
    model: str | None = None
    prompts: tuple[str, ...] = ()  # templates; empty where the file does not tell
    text_kind: str | None = None  # where text features come from if not from the model
    missing: str | None = None  # why it is not there, and what would bring it


@dataclass(frozen=True)
class Setting:
    """A scenario under the name that it has in tables."""

    label: str
    scenario: Scenario = field(default_factory=Scenario)


@dataclass(frozen=True)
class Cell:
    """One run: places in the lists of the outline. ``key`` finds it among the results."""

    source: int
    setting: int
    row: int
    seed: int
    key: str | None = None
    reason: str | None = None  # why it is not run, where there is no key


@dataclass(frozen=True)
class Outline:
    """Everything that is decided before the first run."""

    name: str
    title: str
    about: str  # what it is about and how to read it, in a few sentences
    figure: str  # which image shows it: see crg.report
    rows: tuple[Row, ...]
    sources: tuple[Source, ...]
    settings: tuple[Setting, ...]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    x_title: str = ""  # of figures that show rows or settings against a number
    x_values: tuple[float, ...] = ()  # one per setting (or per row, where rows are the numbers)
    reported: str = ""  # experiment in papers.toml
    quick: bool = False  # the reduced form

    def as_record(self) -> dict[str, Any]:
        """Plain values, for a line of the results file."""
        return {"kind": KIND, "key": f"{KIND}:{self.name}", KIND: asdict(self)}


def from_record(record: Mapping[str, Any]) -> Outline:
    """The outline that ``as_record`` wrote."""
    facts = dict(record[KIND])
    facts["rows"] = tuple(Row(**_tuples(each)) for each in facts["rows"])
    facts["sources"] = tuple(Source(**_tuples(each)) for each in facts["sources"])
    facts["settings"] = tuple(
        Setting(each["label"], Scenario(**each["scenario"])) for each in facts["settings"]
    )
    facts["cells"] = tuple(Cell(**each) for each in facts["cells"])
    return Outline(**_tuples(facts))


def _tuples(facts: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists only."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in facts.items()}
