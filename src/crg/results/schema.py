"""Schema: what the lines of a results file hold, as structs that msgspec reads and checks.

A results file has one JSON object per line. A line without ``kind`` is a run: a full record, or an
archived one, which has a digest in place of most that was measured. The other kinds are the outline
of an experiment, a run that failed, and images on which methods disagree. Line numbers never
change, so that ``crg rerun FILE:LINE`` keeps its meaning.

Accuracy, calibration error and purity are fractions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from crg.streams import Scenario
from crg.types import DEEPEST, InputError, Result, parsed_json

SCHEMA = 1
LABELLED_IMAGES = "labelled images"  # among the needs of a row
ENOUGH_ORDERS = 5  # with fewer stream orders nothing is called significant
ENOUGH_IMAGES = 30  # scored in each order, for the same reason
SIMULATED_TEXT = {"simulated": "simulated text", "model": "text of another model"}

T = TypeVar("T")


class Mislabelled(Struct, frozen=True):
    """Injected label noise: how many images a cache took in, and how many under a wrong class."""

    insertions: int
    mislabelled: int


class Metrics(Struct, frozen=True, kw_only=True):
    """What is measured of one run; images without labels leave most of it out."""

    accuracy: float | None = None
    worst_class_accuracy: float | None = None
    ece: float | None = None
    nll: float | None = None
    reliability: tuple[tuple[int, float | None, float | None], ...] = ()
    purity: float | None = None
    purity_over_time: tuple[tuple[float, float], ...] = ()
    n_scored: int | None = None
    correct: str | None = None  # bits by row of the file, in hexadecimal
    streamed: str | None = None  # bits by row: which were scored, where some were not
    right_in_order: str | None = None  # bits by place in the stream
    predicted: str | None = None  # class numbers by row, compressed
    mislabelled: Mislabelled | None = None
    ms_per_step: float | None = None
    ms_per_step_median: float | None = None
    peak_bytes: int | None = None


class Data(Struct, frozen=True):
    """A feature file or store and the digest of what is in it."""

    path: str
    sha256: str | None = None


class _Repeatable(Struct, frozen=True, kw_only=True):
    """All that is needed to do a run again."""

    key: str
    method: str
    seed: int
    given: dict[str, Any]  # options that differ from the defaults
    data: Data
    few: Data | None = None  # labelled images
    then: tuple[str, ...] = ()  # further files of the stream
    scenario: dict[str, Any] = {}  # what is not as usual
    plugins: tuple[str, ...] = ()
    code: str = ""  # digest of the code of the method
    time: str = ""
    versions: dict[str, str | None] = {}
    machine: dict[str, Any] = {}
    metrics: dict[str, Any]
    schema: int = SCHEMA


class Run(_Repeatable, frozen=True, kw_only=True):
    """A run with everything that was measured."""

    options: dict[str, Any]  # all of them, defaults too
    zero_shot: dict[str, Any]  # the same metrics for zero-shot on the same stream
    n_samples: int
    seconds: float
    command: str = ""

    @property
    def measured(self) -> Metrics:
        """The metrics of the method, by name and type."""
        return msgspec.convert(self.metrics, Metrics)

    @property
    def baseline(self) -> Metrics:
        """The metrics of zero-shot on the same stream, by name and type."""
        return msgspec.convert(self.zero_shot, Metrics)

    @property
    def result(self) -> Result:
        """The run as the evaluation returned it."""
        return Result(self.method, self.options, self.seed, self.metrics, self.zero_shot,
                      self.n_samples, self.seconds)  # fmt: skip


class ArchivedRun(_Repeatable, frozen=True, kw_only=True):
    """A run of which the main figures and a digest are kept: enough to repeat and to check it."""

    digest: str
    zero_shot: dict[str, Any] = {}  # on rendered shapes, what their features are compared by


class Failure(Struct, frozen=True, kw_only=True):
    """A run that failed, and why; the same command tries it again."""

    key: str
    reason: str
    time: str = ""
    kind: str = "failure"
    schema: int = SCHEMA


class Row(Struct, frozen=True):
    """One row of the experiment's tables: a method with options, under a label."""

    label: str
    method: str
    options: dict[str, Any] = {}  # those that differ from the defaults
    tuned: bool = False  # its options were chosen with labels, or for one dataset
    needs: tuple[str, ...] = ()  # such as labelled images
    offline: bool = False  # it answers when it has seen all images
    about: str = ""  # a few words for the report
    x: float | None = None  # its place in figures that show rows against a number
    series: str = ""  # rows of the same series are points of one line in such figures
    against: str = ""  # label of the row that it is compared with under label noise

    @property
    def uses_labels(self) -> bool:
        """Whether labels went into it: labelled images, or options chosen with them."""
        return self.tuned or LABELLED_IMAGES in self.needs

    @property
    def kind(self) -> str:
        """What sets it apart from methods that adapt as images come; only its kind are rivals."""
        return "labels" if self.uses_labels else "offline" if self.offline else ""


class Source(Struct, frozen=True):
    """A dataset that the experiment runs on, or would if it were there."""

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
    prompts: tuple[str, ...] = ()  # templates; empty where the file does not say
    text_kind: str | None = None  # where text features come from if not from the model
    missing: str | None = None  # why it is not there, and what would bring it

    @property
    def is_rendered(self) -> bool:
        """Whether the images are shapes that the package draws."""
        return self.name.startswith("shapes")

    @property
    def text_flag(self) -> str:
        """What must be said wherever a number of this dataset is shown; mostly nothing."""
        return SIMULATED_TEXT.get(self.text_kind or "", self.text_kind or "")


class Setting(Struct, frozen=True):
    """A scenario under the name that it has in tables."""

    label: str
    scenario: Scenario = msgspec.field(default_factory=Scenario)


class Cell(Struct, frozen=True):
    """One run: places in the lists of the outline. ``key`` finds it among the results."""

    source: int
    setting: int
    row: int
    seed: int
    key: str | None = None
    reason: str | None = None  # why it is not run, where there is no key


class Outline(Struct, frozen=True):
    """What an experiment consists of, decided before its first run."""

    name: str
    title: str
    about: str  # what it is about and how to read it, in a few sentences
    figure: str  # the kind of figure that answers its question: see crg.report.figures
    rows: tuple[Row, ...]
    sources: tuple[Source, ...]
    settings: tuple[Setting, ...]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    x_title: str = ""  # of figures that show rows or settings against a number
    x_values: tuple[float, ...] = ()  # one per setting (or per row, where rows are the numbers)
    reported: str = ""  # experiment in papers.toml
    quick: bool = False  # the reduced form

    def __post_init__(self) -> None:
        """Refuse an outline that is empty or whose cells point nowhere."""
        lists = (self.sources, self.settings, self.rows)
        places = {(cell.source, cell.setting, cell.row) for cell in self.cells}
        pointed = all(0 <= n < len(e) for each in places for n, e in zip(each, lists, strict=True))
        if not pointed or not all((*lists, self.seeds)):
            raise ValueError("the outline is empty or its cells point nowhere")

    def as_line(self) -> OutlineLine:
        """The line of a results file that holds it."""
        return OutlineLine(experiment=self, key=f"experiment:{self.name}")


class OutlineLine(Struct, frozen=True, kw_only=True):
    """The line that holds an outline."""

    experiment: Outline
    key: str
    kind: str = "experiment"
    schema: int = SCHEMA


class ShownImage(Struct, frozen=True):
    """An image on which methods disagree."""

    id: str
    png: str  # base64
    truth: str
    answers: dict[str, str]  # label of a row -> class name


class Gallery(Struct, frozen=True, kw_only=True):
    """Images of one dataset of an experiment on which methods disagree."""

    experiment: str
    source: str
    images: tuple[ShownImage, ...]
    key: str
    kind: str = "gallery"
    schema: int = SCHEMA


class Other(Struct, frozen=True, kw_only=True):
    """A line of a kind that is not read here, such as the place of one that was not archived."""

    key: str
    kind: str
    schema: int = SCHEMA


Entry: TypeAlias = Run | ArchivedRun | Failure | OutlineLine | Gallery | Other

_KINDS: Mapping[str, type[Entry]] = {
    "failure": Failure,
    "experiment": OutlineLine,
    "gallery": Gallery,
}


class _Head(Struct):
    """What decides how a line is read."""

    schema: Any
    key: str
    kind: str | None = None
    digest: str | None = None


class LineError(ValueError):
    """A line that cannot be read; the message continues from "it"."""


def decode(line: bytes) -> Entry:
    """What a line holds; a ``LineError`` says in a few words why it cannot be read."""
    try:
        head = msgspec.json.decode(line, type=_Head)
        if line.count(b"[") + line.count(b"{") > DEEPEST:
            parsed_json(line)  # for its depth
    except (ValueError, RecursionError):
        raise LineError("is truncated or not ours") from None
    if head.schema != SCHEMA:
        raise LineError(f"is of the schema {head.schema!r}, which this crg does not read")
    kind: type[Entry] = _KINDS.get(head.kind, Other) if head.kind else Run
    kind = ArchivedRun if kind is Run and head.digest is not None else kind
    try:
        entry = msgspec.json.decode(line, type=kind)
        if isinstance(entry, Run):
            _ = entry.measured, entry.baseline
    except (msgspec.MsgspecError, InputError, UnicodeDecodeError) as error:
        raise LineError(f"is not valid ({error}), so run it again with crg bench") from None
    return entry


def encode(entry: Entry) -> bytes:
    """The line of an entry. What is not finite is refused: JSON has no word for it."""
    _refuse_nan(builtins := msgspec.to_builtins(entry))
    return msgspec.json.encode(builtins)


def read_toml(content: bytes, kind: type[T], file: str) -> T:
    """A TOML file as a struct, with one sentence that names the file and the place of a mistake."""
    try:
        return msgspec.toml.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{file} is not valid ({error}): correct it there.") from None


def _refuse_nan(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a result is not a finite number")
    inside = value.values() if isinstance(value, dict) else value
    for each in inside if isinstance(value, dict | list | tuple) else ():
        _refuse_nan(each)
