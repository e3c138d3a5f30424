"""What the runs of an experiment say, as plain values: all that tables and figures are made of.

Accuracy, calibration error and purity are fractions. A spread is over stream orders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crg.metrics import Interval
from crg.results.outline import ENOUGH_IMAGES, Outline, Row, Setting, Source
from crg.results.papers import Reported

Curve = tuple["Point", ...]


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over stream orders (None for a single one)."""

    mean: float
    std: float | None
    per_order: tuple[float, ...]


@dataclass(frozen=True)
class Point:
    """A place in the stream: the mean over orders and the band of one standard deviation."""

    x: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Bin:
    """Answers of similar confidence: how sure they were and how many were right."""

    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Contrast:
    """A row against another on the same streams; ``verdict`` is empty if zero is not excluded."""

    against: str  # label of the other row
    interval: Interval
    verdict: str  # "better", "worse" or ""
    lacks: str = ""  # "orders" or "images": of what there are too few for any verdict

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval does; a verdict takes enough orders and images besides."""
        return self.interval.low > 0 or self.interval.high < 0


@dataclass(frozen=True)
class Trace:
    """Where a run stands: what ``crg rerun`` is given."""

    file: str
    line: int
    key: str
    seed: int


@dataclass(frozen=True)
class Line:
    """One row of a table. Figures are None where nothing was measured; ``reason`` says why."""

    row: Row
    status: str  # "measured", "incomplete" (some orders are missing), "failed", "not run"
    reason: str = ""
    run_once: bool = False  # no answer of it depends on the order: one run stands for all orders
    accuracy: Spread | None = None
    to_zero_shot: Contrast | None = None  # None for zero-shot itself
    to_best_rival: Contrast | None = None
    best: bool = False  # highest mean accuracy of the rows that use no labels
    to_like: Contrast | None = None  # against the row above, of the same method, most like it
    unlike: tuple[str, ...] = ()  # the options in which it differs from that row
    to_label_free: Contrast | None = None  # of a row that uses labels, against one without: the
    # one with the same ``Row.x`` where rows stand for numbers, the best one otherwise
    to_first_setting: Contrast | None = None  # of the same row: its accuracy where settings are
    # numbers; where they are streams its gain over zero-shot, as the task may not be the same
    change_to: Mapping[str, Contrast] = field(default_factory=dict)  # label -> this row's change
    # from the first setting to the last one, against that row's; in the last setting only
    ece: Spread | None = None
    nll: Spread | None = None
    worst_class: Spread | None = None
    purity: Spread | None = None
    milliseconds: Spread | None = None
    peak_bytes: int | None = None
    mislabelled: float | None = None  # share of cache insertions that got a wrong label on purpose
    reliability: tuple[Bin, ...] = ()
    learning: Curve = ()  # accuracy so far against images seen
    purity_over_time: Curve = ()
    first: Mapping[int, Spread] = field(default_factory=dict)  # accuracy over the first n images
    first_gain: Mapping[int, Contrast] = field(default_factory=dict)  # the same against zero-shot
    reported: Reported | None = None  # what papers print for it
    said: tuple[str, ...] = ()  # what is said of it where the number is not available
    traces: tuple[Trace, ...] = ()


@dataclass(frozen=True)
class Table:
    """All rows on one source in one setting."""

    source: Source
    setting: Setting
    lines: tuple[Line, ...]
    scored: Spread | None = None  # how many images were scored in each order

    @property
    def has_enough_images(self) -> bool:
        """Whether every order scored so many that its rows can be judged."""
        return self.scored is None or min(self.scored.per_order) >= ENOUGH_IMAGES

    def line(self, label: str) -> Line:
        """The line of a row."""
        return next(line for line in self.lines if line.row.label == label)


@dataclass(frozen=True)
class Shown:
    """An image on which methods disagree."""

    sample_id: str
    png: bytes
    truth: str
    answers: Mapping[str, str]  # label of a row -> class name


@dataclass(frozen=True)
class PrintedCell:
    """What papers print for a method on a dataset that is not there, or say of it."""

    reported: Reported | None
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class PrintedTable:
    """Numbers of papers that nothing stands beside, for the missing datasets of one model."""

    model: str
    datasets: tuple[str, ...]  # the last one may be the average
    rows: Mapping[str, tuple[PrintedCell, ...]]  # by method

    @property
    def cells(self) -> tuple[PrintedCell, ...]:
        """All of them, row by row."""
        return tuple(cell for row in self.rows.values() for cell in row)


@dataclass(frozen=True)
class Study:
    """An experiment with all that was measured; ``tables`` leave out sources that are missing."""

    outline: Outline
    tables: tuple[Table, ...]
    missing: tuple[Source, ...] = ()
    printed: tuple[PrintedTable, ...] = ()  # what papers print for the sources that are missing
    gallery: Mapping[str, tuple[Shown, ...]] = field(default_factory=dict)  # by name of a source
    machine: Mapping[str, str] = field(default_factory=dict)  # versions and machine of the runs
    notes: tuple[str, ...] = ()  # such as fewer than five orders
    path: str = ""  # the results file

    def tables_of(self, source: str) -> tuple[Table, ...]:
        """The tables of one source, in the order of the settings."""
        return tuple(table for table in self.tables if table.source.name == source)
