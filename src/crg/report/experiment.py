"""From results files to experiments: every method on every dataset against zero-shot.

Runs are found by their keys. A method whose answers do not depend on the order is run once and
compared with every order.

Accuracy, calibration error and purity are fractions. A spread is over stream orders.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crg.methods.registry import BASELINE
from crg.report import contrasts
from crg.report.contrasts import Contrast, Correctness, Curve, Spread
from crg.results import ledger as results
from crg.results import schema
from crg.results.ledger import Ledger
from crg.results.papers import Reported, bundled_papers
from crg.results.schema import ENOUGH_ORDERS, Outline, Result, Setting, Source, Variant
from crg.types import InputError


@dataclass(frozen=True, eq=False)
class MethodResult:
    """Everything measured of one method on one dataset in one setting."""

    row: Variant
    status: str  # "measured", "incomplete" (some orders are missing), "failed", "not run"
    reason: str = ""
    accuracy: Spread | None = None
    gain: Contrast | None = None  # over zero-shot; None for zero-shot itself
    rival: Contrast | None = None  # see ``_Reader._rival``
    best: bool = False  # see ``is_best``
    ece: Spread | None = None
    aurc: Spread | None = None  # area under the risk-coverage curve
    accuracy_at_90: Spread | None = None  # of the 90% most confident answers
    outside_auroc: Spread | None = None  # how well ``outside`` ranks out-of-distribution images
    ms_per_step: float | None = None  # median
    nll: Spread | None = None
    worst_class_accuracy: Spread | None = None
    purity: Spread | None = None
    peak_bytes: int | None = None
    learning: Curve = ()  # running accuracy against images seen
    baseline_learning: Curve = ()  # that of zero-shot in the same orders
    purity_over_time: Curve = ()
    first_gain: Mapping[int, Contrast] = field(default_factory=dict)  # over the first n images
    reported: tuple[Reported, ...] = ()  # accuracies in print, one per source
    lines: tuple[int, ...] = ()  # of the results file: the argument of ``crg rerun``
    options: Mapping[str, Any] = field(default_factory=dict)  # all of them, defaults included
    right: Correctness | None = None

    @property
    def remark(self) -> str | None:
        """Why it was not measured in all orders; None if it was."""
        parts = [self.status if self.status != "measured" else "", self.reason]
        return ": ".join(filter(None, parts)) or None


@dataclass(frozen=True)
class Comparison:
    """All methods on one dataset in one setting."""

    source: Source
    setting: Setting
    results: tuple[MethodResult, ...]
    n_scored: int | None = None  # images, in the order that has the fewest

    def of(self, label: str) -> MethodResult:
        """The result of a method by its label."""
        return next(each for each in self.results if each.row.label == label)

    def pair(self) -> tuple[MethodResult, MethodResult] | None:
        """Zero-shot and the first other method; None unless both were measured."""
        base = next((each for each in self.results if each.row.is_baseline and each.accuracy), None)
        first = next((each for each in self.results if each.gain), None)
        return (base, first) if base and first else None


@dataclass(frozen=True)
class Experiment:
    """An experiment with all its measurements; missing datasets have no comparison."""

    outline: Outline
    comparisons: tuple[Comparison, ...]
    missing: tuple[Source, ...] = ()
    gallery: Mapping[str, tuple[schema.ShownImage, ...]] = field(default_factory=dict)  # by dataset
    machine: Mapping[str, Sequence[str]] = field(default_factory=dict)  # values by name
    notes: tuple[str, ...] = ()
    path: str = ""  # the results file

    def by_source(self) -> dict[str, tuple[Comparison, ...]]:
        """The comparisons of each dataset, in the order of the settings.

        The same images with the names of further files are one dataset.
        """
        found: dict[str, list[Comparison]] = defaultdict(list)
        for each in self.comparisons:
            found[each.source.dataset if each.source.then else each.source.name].append(each)
        return {name: tuple(each) for name, each in found.items()}


def read_experiments(
    paths: Iterable[str | os.PathLike[str]],
    methods: Collection[str] = (),
    on_note: Callable[[str], None] = lambda sentence: None,
) -> list[Experiment]:
    """The experiments in results files, each file parsed once; a folder is all its files.

    ``methods`` keeps only these, by label or method, and zero-shot. ``on_note`` is called with
    a sentence on lines that were left out.
    """
    given = [Path(path) for path in paths]
    files = dict.fromkeys(file for path in given for file in _files(path))
    ledgers = [results.read(file) for file in files]
    found: list[Experiment] = []
    for ledger in ledgers:
        mine = experiments_of(ledger, None, methods)
        for sentence in ledger.notes() if mine else ():
            on_note(sentence)
        found += mine
    if not found:
        raise InputError(_nothing_to_show(given, ledgers))
    return found


def experiments_of(
    ledger: Ledger, name: str | None = None, methods: Collection[str] = ()
) -> list[Experiment]:
    """The experiments of one results file, or the one called ``name``, by their latest outlines."""
    found = (each for each in ledger.latest.values() if isinstance(each, Outline))
    outlines = [each for each in found if name in (None, each.name)]
    return [_Reader(with_methods(each, methods), ledger).experiment() for each in outlines]


def with_methods(outline: Outline, methods: Collection[str]) -> Outline:
    """The outline with these methods only, by label or method; zero-shot always stays."""
    if not methods:
        return outline
    known = {name for row in outline.rows for name in (row.label, row.method)}
    unknown = [name for name in methods if name not in known]
    if unknown:
        raise InputError(
            f"{outline.name} has no method {unknown[0]!r}: choose from {', '.join(sorted(known))}."
        )
    wanted = {n for n, row in enumerate(outline.rows)
              if row.is_baseline or not {row.label, row.method}.isdisjoint(methods)}  # fmt: skip
    return outline.with_rows(sorted(wanted))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.jsonl")) or sorted(path.glob("*.jsonl.gz"))
    if not path.exists():
        raise InputError(f"{path} does not exist: name a results file or a folder of them.")
    return [path]


def _nothing_to_show(given: Sequence[Path], ledgers: Sequence[Ledger]) -> str:
    """Why files without any experiment have no report, and what would help."""
    named = ", ".join(map(str, given)) or "No results file"
    entries = [entry for ledger in ledgers for entry in ledger.entries.values()]
    if any(isinstance(entry, Result) and entry.digest is not None for entry in entries):
        return (
            f"{named} holds archived runs only, which are kept for crg bench --rerun: open the "
            "page beside them, or draw the results of a new crg bench."
        )
    left_out = [line for ledger in ledgers for line in ledger.left_out.items()]
    why = f" (line {left_out[0][0]} {left_out[0][1]})" if left_out else ""
    return f"{named} holds no experiment{why}: run one with crg bench."


class _Reader:
    """One experiment of a results file: finds the runs by key and compares them."""

    def __init__(self, outline: Outline, ledger: Ledger) -> None:
        self.outline, self.ledger = outline, ledger
        self.n_orders = len(outline.seeds)
        wanted = {cell.key for cell in outline.cells if cell.key is not None}
        self.runs: dict[str, Result] = {}
        self.lines: dict[str, int] = {}
        self.failures: dict[str, str] = {}
        self.gallery: dict[str, tuple[schema.ShownImage, ...]] = {}
        for number, entry in ledger.entries.items():
            if isinstance(entry, Result) and entry.digest is None and entry.key in wanted:
                self.runs[entry.key], self.lines[entry.key] = entry, number
            elif isinstance(entry, schema.Failure):
                self.failures[entry.key] = entry.reason
            elif isinstance(entry, schema.Gallery) and entry.experiment == outline.name:
                self.gallery[entry.source] = entry.images

    def experiment(self) -> Experiment:
        machine = _machine(self.runs.values())
        return Experiment(
            outline=self.outline,
            comparisons=tuple(self._comparisons()),
            missing=tuple(each for each in self.outline.sources if each.missing is not None),
            gallery={name: images for name, images in self.gallery.items() if images},
            machine=machine,
            notes=(*_notes(self.outline, machine), *self.ledger.notes()),
            path=str(self.ledger.path),
        )

    def _comparisons(self) -> Iterable[Comparison]:
        cells: dict[tuple[int, int], list[schema.Cell]] = defaultdict(list)
        for cell in self.outline.cells:
            cells[cell.source, cell.setting].append(cell)
        for place, source in enumerate(self.outline.sources):
            for number, setting in enumerate(self.outline.settings):
                mine = cells.get((place, number))
                if source.missing is not None or mine is None:
                    continue
                rows = [self._row(source, n, mine) for n in range(len(self.outline.rows))]
                scored = [self.runs[c.key].n_scored for c in mine if c.key in self.runs]
                n_scored = min(scored, default=None)
                yield Comparison(source, setting, tuple(self._with_rivals(rows)), n_scored)

    def _row(self, source: Source, number: int, cells: Sequence[schema.Cell]) -> MethodResult:
        """One method with its figures, against zero-shot on the same streams."""
        row, mine = self.outline.rows[number], [cell for cell in cells if cell.row == number]
        keys = tuple(dict.fromkeys(cell.key for cell in mine if cell.key is not None))
        runs = [self.runs[key] for key in keys if key in self.runs]
        reported = bundled_papers().printed(self.outline, source, row)
        result = MethodResult(row, *self._status(mine, keys), reported=reported)
        if not runs:
            return result
        once = len(keys) == 1 and self.n_orders > 1  # its answers do not depend on the order
        right = contrasts.correctness(runs, "metrics", once)
        base = None if row.is_baseline else contrasts.correctness(runs, "zero_shot", once)
        label = next((each.label for each in self.outline.rows if each.is_baseline), BASELINE)
        shows_start = self.outline.figure == "cold_start" and not once and base is not None
        return replace(
            result,
            **contrasts.figures_of(runs, once),
            gain=contrasts.contrast(right, base, label, self.n_orders),
            first_gain=contrasts.first_gains(runs, label) if shows_start else {},
            lines=tuple(self.lines[run.key] for run in runs),
            options=runs[0].options,
            right=right,
        )

    def _status(self, cells: Sequence[schema.Cell], keys: Sequence[str]) -> tuple[str, str]:
        if not keys:
            return "not run", " ".join(dict.fromkeys(cell.reason for cell in cells if cell.reason))
        absent = [key for key in keys if key not in self.runs]
        if not absent:
            return "measured", ""
        failures = [self.failures[key] for key in absent if key in self.failures]
        why = failures[-1].strip().splitlines()[-1].strip() if failures and failures[-1] else ""
        if len(absent) < len(keys):
            count = f"{len(absent)} of {len(keys)} stream orders missing"
            return "incomplete", f"{count}: {why}" if why else f"{count}."
        return ("failed", why) if failures else ("not run", "Not reached: run crg bench again.")

    def _with_rivals(self, rows: Sequence[MethodResult]) -> list[MethodResult]:
        found = []
        for place, mine in enumerate(rows):
            other = self._rival(mine, rows, rows[:place])
            label, right = (other.row.label, other.right) if other else ("", None)
            rival = contrasts.contrast(mine.right, right, label, self.n_orders)
            found.append(replace(mine, best=is_best(mine, rows), rival=rival))
        return found

    def _rival(
        self, mine: MethodResult, rows: Sequence[MethodResult], above: Sequence[MethodResult]
    ) -> MethodResult | None:
        """The method to compare with besides zero-shot: the most accurate one of its kind.

        In an ablation it is the most similar variant above it; tables of several settings have no
        room for either.
        """
        if mine.row.is_baseline or len(self.outline.settings) > 1:
            return None
        if self.outline.figure == "waterfall":
            return _most_like(mine, above)
        known = [each for each in rows if each is not mine and each.accuracy is not None]
        kind = [e for e in known if e.row.method != BASELINE and e.row.kind == mine.row.kind]
        return max(kind, key=_mean, default=None)


def is_best(mine: MethodResult, rows: Iterable[MethodResult]) -> bool:
    """Whether it is the most accurate of those measured in all orders, online, without labels."""
    candidates = [each for each in rows if each.status == "measured" and not each.row.kind]
    return mine in candidates and _mean(mine) == max(map(_mean, candidates)) > -1


def _mean(result: MethodResult) -> float:
    return -1.0 if result.accuracy is None else result.accuracy.mean


def _most_like(mine: MethodResult, above: Sequence[MethodResult]) -> MethodResult | None:
    """Of the variants above of the same method, the last one whose options differ least."""
    same = [each for each in above if each.row.method == mine.row.method and each.options]

    def differing(other: MethodResult) -> int:
        names = {*other.options, *mine.options}
        return sum(other.options.get(name) != mine.options.get(name) for name in names)

    return min(reversed(same), key=differing) if same and mine.options else None


def _machine(runs: Iterable[Result]) -> dict[str, list[str]]:
    """Versions and machine of the runs, every distinct value, and when they were measured."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for run in runs:
        for name, value in ({"measured": run.time} | run.versions | run.machine).items():
            if value is not None:
                found[name][str(value)] = None
    return {name: list(values) for name, values in found.items()}


def _notes(outline: Outline, machine: Mapping[str, Sequence[str]]) -> list[str]:
    """Caveats that concern the whole experiment."""
    notes = ["Reduced form (--quick)."] if outline.quick else []
    count = len(outline.seeds)
    if count < ENOUGH_ORDERS:
        orders = "1 stream order" if count == 1 else f"{count} stream orders"
        notes.append(f"{orders}: nothing is called significant with fewer than {ENOUGH_ORDERS}.")
    if any(len(machine.get(name, ())) > 1 for name in ("host", "processor")):
        notes.append("Runs of several machines: their times cannot be compared.")
    if len(machine.get("crg", ())) > 1:
        notes.append(f"Runs of several versions of crg: {', '.join(machine['crg'])}.")
    return notes
