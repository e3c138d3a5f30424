"""Schema: what the lines of a results file hold, as structs that msgspec reads and checks.

A results file has one JSON object per line. A line without ``kind`` is the result of a run, in full
or archived; the other kinds are the outline of an experiment, a run that failed, and images on
which methods disagree. Line numbers never change, so that ``crg bench --rerun FILE:LINE`` keeps
its meaning.

Accuracy, calibration error and purity are fractions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Struct

from crg.datasets.catalog import TEST
from crg.streams import SEVERAL_FILES, SHUFFLED, Scenario
from crg.types import DEEPEST, InputError, parsed_json

SCHEMA = 1
LABELLED_IMAGES = "labelled images"  # among the needs of a method
ENOUGH_ORDERS = 5  # with fewer stream orders nothing is called significant
ENOUGH_IMAGES = 30  # scored in each order, for the same reason
SIMULATED_TEXT = {"simulated": "simulated text", "model": "text of another model"}


class RunMetrics(Struct, kw_only=True):
    """The metrics of a run and their types; images without labels leave most of them out."""

    accuracy: float | None = None
    worst_class_accuracy: float | None = None
    ece: float | None = None
    aurc: float | None = None  # area under the risk-coverage curve
    accuracy_at_90: float | None = None  # of the 90% most confident answers
    outside_auroc: float | None = None  # how well ``outside`` ranks images of no class
    nll: float | None = None
    reliability: tuple[tuple[int, float | None, float | None], ...] = ()
    purity: float | None = None
    purity_over_time: tuple[tuple[float, float], ...] = ()
    n_scored: int | None = None
    correct: str | None = None  # bits by row of the file, in hexadecimal
    streamed: str | None = None  # bits by row: which were scored, where some were not
    right_in_order: str | None = None  # bits by position in the stream
    predicted: str | None = None  # class numbers by row, compressed
    mislabelled: dict[str, int] | None = None  # label noise: insertions, and those mislabelled
    ms_per_step: float | None = None
    ms_per_step_median: float | None = None
    peak_bytes: int | None = None


class Data(Struct, frozen=True):
    """A feature file or store and the digest of its content."""

    path: str
    sha256: str | None = None


class RunSpec(Struct, frozen=True):
    """One run: a method with its options on one stream, and all that decides the outcome."""

    data: Data
    method: str
    given: dict[str, Any]  # options that differ from the defaults
    seed: int
    few: Data | None = None  # labelled images
    then: tuple[str, ...] = ()  # further files of the stream; the digest of ``data`` covers them
    scenario: Scenario = Scenario()
    plugins: tuple[str, ...] = ()
    code: str = ""  # digest of the code of the method
    key: str = ""  # equal for equal runs: see ``crg.results.provenance.run_key``
    name: str = ""  # for people: dataset, setting, method and order
    memory: bool = False  # whether peak memory is measured, in a separate process


class Result(RunSpec, frozen=True, kw_only=True):
    """The outcome of a run, beside zero-shot on the same stream: one line of a results file.

    An archived result has a ``digest`` in place of its options and of most metrics.
    """

    metrics: dict[str, Any]  # names and types: RunMetrics
    zero_shot: dict[str, Any] = {}  # the same metrics for zero-shot on the same stream
    options: dict[str, Any] = {}  # the whole configuration, defaults included
    n_samples: int = 0
    seconds: float = 0.0
    time: str = ""
    versions: dict[str, str | None] = {}
    machine: dict[str, Any] = {}
    digest: str | None = None
    schema: int = SCHEMA

    @property
    def n_scored(self) -> int:
        """How many images were scored: all of the stream, unless the metrics name a count."""
        return int(self.metrics.get("n_scored") or self.n_samples)


class Failure(Struct, frozen=True, kw_only=True):
    """A run that failed, and why; the same command tries it again."""

    key: str
    reason: str
    trace: str = ""  # where the reason is an exception rather than bad input
    time: str = ""
    kind: str = "failure"
    schema: int = SCHEMA


class Other(Struct, frozen=True, kw_only=True):
    """A line of a kind that is not read, such as the place of one that was not archived."""

    key: str
    kind: str
    schema: int = SCHEMA


class Variant(Struct, frozen=True):
    """A method with options, under the label that it has in tables."""

    label: str
    method: str
    options: dict[str, Any] = {}  # those that differ from the defaults
    tuned: bool = False  # its options were chosen with labels, or for one dataset
    needs: tuple[str, ...] = ()  # such as labelled images
    offline: bool = False  # it answers once it has seen all images
    x: float | None = None  # its place in figures that show methods against a number
    series: str = ""  # variants of the same series are points of one line in such figures

    @property
    def is_baseline(self) -> bool:
        """Whether it is plain zero-shot, which all others are compared with."""
        return self.method == "zero_shot" and not self.options and not self.offline

    @property
    def uses_labels(self) -> bool:
        """Whether it uses labelled images, or options chosen with labels."""
        return self.tuned or LABELLED_IMAGES in self.needs

    @property
    def kind(self) -> str:
        """Empty if it adapts online without labels; methods are rivals within their kind only."""
        return "labels" if self.uses_labels else "offline" if self.offline else ""


class Source(Struct, frozen=True):
    """A dataset to run on: as it was found, and with its facts once it was read."""

    name: str  # short and distinct, such as "shapes:night:3" or "dtd, RN50"
    dataset: str = ""  # name in the catalogue or stem of the file, to look up reported accuracies
    path: str = ""
    then: tuple[str, ...] = ()  # files whose images come after those of ``path``
    order: str = ""  # the stream order that needs ``then``
    few: str | None = None  # labelled images for the methods that need some
    split: str = TEST  # images of any other split are for learning, never for measuring
    weights: str = ""  # a fingerprint of those of the model
    is_named: bool = True  # False if found below a folder: then it may be unusable
    sha256: str = ""
    n_samples: int = 0
    n_classes: int = 0
    n_views: int = 0
    model: str | None = None
    prompts: tuple[str, ...] = ()  # templates; empty where the file does not name them
    text_kind: str | None = None  # where text features come from if not from the model
    missing: str | None = None  # why it is not there, and how to get it

    @property
    def paths(self) -> tuple[str, ...]:
        """All files of the stream, in order."""
        return (self.path, *self.then) if self.path else ()

    @property
    def is_rendered(self) -> bool:
        """Whether the images are shapes that the package draws."""
        return self.name.startswith("shapes")

    @property
    def text_flag(self) -> str:
        """A warning to print beside every number if the text features are not the model's own."""
        return SIMULATED_TEXT.get(self.text_kind or "", self.text_kind or "")


class Setting(Struct, frozen=True, forbid_unknown_fields=True):
    """``[[setting]]`` of an experiment: a scenario under the name that it has in tables."""

    order: str = SHUFFLED
    label: str = ""  # by default the order
    strength: float | None = None
    images: Annotated[int, msgspec.Meta(ge=1)] | None = None
    mislabelled: float = 0.0
    x: float | None = None  # its place in figures that show settings against a number

    @property
    def scenario(self) -> Scenario:
        """The scenario of the streams, which refuses what does not fit together."""
        return Scenario(self.order, self.strength, self.images, self.mislabelled)

    @property
    def several(self) -> str:
        """The order if it needs several files, else empty."""
        return self.order if self.order in SEVERAL_FILES else ""


class Cell(Struct, frozen=True):
    """One run: indices into the lists of the outline. ``key`` finds it among the results."""

    source: int
    setting: int
    row: int
    seed: int
    key: str | None = None
    reason: str | None = None  # why it is not run, where there is no key


class Outline(Struct, frozen=True, tag="experiment", tag_field="kind"):
    """The plan of an experiment, decided before its first run."""

    name: str
    title: str
    about: str  # its question and how to read the answer, in a few sentences
    figure: str  # the kind of figure that answers its question: see crg.report.figures
    rows: tuple[Variant, ...]
    sources: tuple[Source, ...]
    settings: tuple[Setting, ...]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    x_title: str = ""  # of figures that show methods or settings against a number
    reported: str = ""  # experiment in papers.toml
    quick: bool = False  # the reduced form
    key: str = ""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Set the key; refuse an outline that is empty or whose cells point nowhere."""
        msgspec.structs.force_setattr(self, "key", f"experiment:{self.name}")
        lists = (self.sources, self.settings, self.rows)
        places = {(cell.source, cell.setting, cell.row) for cell in self.cells}
        pointed = all(0 <= n < len(e) for each in places for n, e in zip(each, lists, strict=True))
        if not pointed or not all((*lists, self.seeds)):
            raise ValueError("the outline is empty or its cells point nowhere")

    def with_rows(self, kept: Sequence[int]) -> Outline:
        """The outline with the rows of these numbers only."""
        cells = [msgspec.structs.replace(cell, row=kept.index(cell.row))
                 for cell in self.cells if cell.row in kept]  # fmt: skip
        rows = tuple(self.rows[n] for n in kept)
        return msgspec.structs.replace(self, rows=rows, cells=tuple(cells))


class ShownImage(Struct, frozen=True):
    """An image on which methods disagree."""

    id: str
    png: str  # base64
    truth: str
    answers: dict[str, str]  # label of a method -> class name


class Gallery(Struct, frozen=True, kw_only=True, tag="gallery", tag_field="kind"):
    """Images of one dataset of an experiment on which methods disagree."""

    experiment: str
    source: str
    images: tuple[ShownImage, ...]
    key: str
    schema: int = SCHEMA


Entry: TypeAlias = Result | Failure | Outline | Gallery | Other
_KINDS: dict[str, type[Entry]] = {"failure": Failure, "experiment": Outline, "gallery": Gallery}
_REQUIRED = ("options", "zero_shot", "n_samples", "seconds")  # of a result that is not archived


class LineError(ValueError):
    """A line that cannot be read; the message continues from "it"."""


def decode(line: bytes) -> Entry:
    """The entry that a line holds; a ``LineError`` says in a few words why it cannot be read."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
        if line.count(b"[") + line.count(b"{") > DEEPEST:
            parsed_json(line)  # refuses what is nested too deeply
        is_ours = isinstance(fields["key"], str) and isinstance(fields.get("kind"), str | None)
    except (ValueError, KeyError, RecursionError):
        is_ours, fields = False, {}
    if not is_ours or "schema" not in fields:
        raise LineError("is truncated or not ours")
    if fields["schema"] != SCHEMA:
        raise LineError(f"is of the schema {fields['schema']!r}, which this crg does not read")
    try:
        return _entry(fields)
    except (msgspec.MsgspecError, InputError) as error:
        raise LineError(f"is not valid ({error}), so run it again with crg bench") from None


def _entry(fields: dict[str, Any]) -> Entry:
    if kind := fields.get("kind"):
        return msgspec.convert(fields, _KINDS.get(kind, Other))
    for name in _REQUIRED:
        if name not in fields and fields.get("digest") is None:
            raise msgspec.ValidationError(f"Object missing required field `{name}`")
    result = msgspec.convert(fields, Result)
    for metrics in (result.metrics, result.zero_shot):
        msgspec.convert(metrics, RunMetrics)
    return result


def encode(entry: Entry) -> bytes:
    """The line of an entry. Numbers that are not finite are refused: JSON cannot hold them."""
    builtins = msgspec.to_builtins(entry)
    return json.dumps(builtins, allow_nan=False, separators=(",", ":")).encode()
