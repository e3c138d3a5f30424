"""From results files to experiments: every method against zero-shot on the same streams.

Differences are always between answers to the same image in the same stream order, with the
interval of ``crg.metrics.paired_interval``, a crossed bootstrap over images and orders. A
difference is significant if its 95% interval excludes zero, and only with at least
``ENOUGH_ORDERS`` orders of at least ``ENOUGH_IMAGES`` scored images each. A method whose answers
do not depend on the order is run once and paired with every order.

Accuracy, calibration error and purity are fractions. A spread is over stream orders.
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crg import metrics
from crg.methods.registry import BASELINE
from crg.metrics import Interval
from crg.results import ledger as results
from crg.results.measurements import unpacked_bits
from crg.results.papers import Papers, Reported, bundled_papers
from crg.results.schema import (
    ENOUGH_IMAGES,
    ENOUGH_ORDERS,
    ArchivedRun,
    Cell,
    Failure,
    Gallery,
    Metrics,
    Outline,
    OutlineLine,
    Row,
    Run,
    Setting,
    ShownImage,
    Source,
)
from crg.streams.orders import shuffled
from crg.streams.scenario import SHUFFLED, Scenario
from crg.types import InputError

RESAMPLES = 10_000  # with fewer, the seed would decide on differences that are close
FIRST = (50, 100, 200, 500)  # images of a cold start
_N_PLACES = 60  # of a curve
_FIRST_PLACE = 20  # the accuracy over fewer images says nothing
_ONE_PROMPT = "zero_shot_one_prompt"

Numbers = np.ndarray[Any, Any]
Curve = tuple[tuple[float, float, float], ...]  # x, mean, standard deviation


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over stream orders (None for a single one)."""

    mean: float
    std: float | None
    per_order: tuple[float, ...]


@dataclass(frozen=True)
class Contrast:
    """A method against another on the same streams."""

    against: str  # label of the other one
    interval: Interval
    verdict: str = ""  # "better" or "worse" where the difference is significant
    lacks: str = ""  # "orders" or "images", where there are too few for anything significant

    @property
    def mark(self) -> str:
        """▲ significantly better, ▼ significantly worse, nothing where not significant."""
        return {"better": "▲", "worse": "▼"}.get(self.verdict, "")


@dataclass(frozen=True)
class MethodResult:
    """What was measured of one method on one dataset in one setting."""

    row: Row
    status: str  # "measured", "incomplete" (some orders are missing), "failed", "not run"
    reason: str = ""
    run_once: bool = False  # its answers do not depend on the order
    accuracy: Spread | None = None
    gain: Contrast | None = None  # over zero-shot; None for zero-shot itself
    rival: Contrast | None = None  # against the most accurate other method of its kind
    step: Contrast | None = None  # against the row above of the same method, most like it
    change: Contrast | None = None  # against itself in the first setting (streams: of the gain)
    best: bool = False  # highest mean accuracy of the complete methods that use no labels
    ece: Spread | None = None
    nll: Spread | None = None
    worst_class: Spread | None = None
    purity: Spread | None = None
    milliseconds: Spread | None = None
    peak_bytes: int | None = None
    mislabelled: float | None = None  # fraction of cache insertions with injected label noise
    reliability: tuple[tuple[int, float, float], ...] = ()  # count, confidence, accuracy
    learning: Curve = ()  # running accuracy against images seen
    purity_over_time: Curve = ()
    first_gain: Mapping[int, Contrast] = field(default_factory=dict)  # over the first n images
    reported: Reported | None = None  # what papers print for it
    lines: tuple[int, ...] = ()  # of the results file: what ``crg rerun`` is given

    @property
    def is_baseline(self) -> bool:
        """Whether it is plain zero-shot, which the others are measured against."""
        return is_baseline(self.row)


@dataclass(frozen=True)
class Comparison:
    """All methods on one dataset in one setting."""

    source: Source
    setting: Setting
    results: tuple[MethodResult, ...]
    n_scored: int | None = None  # images, in the order that has the fewest

    def of(self, label: str) -> MethodResult | None:
        """The result of a method by its label."""
        return next((each for each in self.results if each.row.label == label), None)


@dataclass(frozen=True)
class Experiment:
    """An experiment with all that was measured; missing datasets have no comparison."""

    outline: Outline
    comparisons: tuple[Comparison, ...]
    missing: tuple[Source, ...] = ()
    gallery: Mapping[str, tuple[ShownImage, ...]] = field(default_factory=dict)  # by dataset
    machine: Mapping[str, str] = field(default_factory=dict)  # versions and machine of the runs
    notes: tuple[str, ...] = ()
    path: str = ""  # the results file

    def by_source(self) -> dict[str, tuple[Comparison, ...]]:
        """The comparisons of each dataset, in the order of the settings."""
        found: dict[str, list[Comparison]] = defaultdict(list)
        for each in self.comparisons:
            found[each.source.name].append(each)
        return {name: tuple(each) for name, each in found.items()}


def is_baseline(row: Row) -> bool:
    """Whether a row is plain zero-shot."""
    return row.method == BASELINE and not row.options


def read_experiments(
    paths: Iterable[str | os.PathLike[str]],
    methods: Collection[str] = (),
    papers: Papers | None = None,
    on_note: Callable[[str], None] = lambda sentence: None,
) -> list[Experiment]:
    """The experiments in results files, each file parsed once; a folder is all its files.

    ``methods`` keeps only these, by label or method, and zero-shot. ``on_note`` is called with
    a sentence on lines that were left out.
    """
    given = [Path(path) for path in paths]
    files = list(dict.fromkeys(file for path in given for file in _files(path)))
    ledgers = {file: results.read(file) for file in files}
    found: list[Experiment] = []
    for file, ledger in ledgers.items():
        mine = experiments_of(ledger, str(file), methods, papers)
        for sentence in results.left_out_notes(file, ledger.left_out) if mine else ():
            on_note(sentence)
        found += mine
    if not found:
        raise InputError(_nothing_to_show(given, ledgers))
    return found


def experiments_of(
    ledger: results.Ledger,
    file: str,
    methods: Collection[str] = (),
    papers: Papers | None = None,
) -> list[Experiment]:
    """The experiments of one results file, each by its latest outline."""
    outlines: dict[str, Outline] = {
        each.key: each.experiment
        for each in ledger.entries.values()
        if isinstance(each, OutlineLine)
    }
    left_out = tuple(results.left_out_notes(file, ledger.left_out))
    believed = bundled_papers() if papers is None else papers
    return [
        _Reader(with_methods(each, methods), ledger, believed).experiment(file, left_out)
        for each in outlines.values()
    ]


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
    kept = [
        n
        for n, row in enumerate(outline.rows)
        if is_baseline(row) or row.label in methods or row.method in methods
    ]
    cells = tuple(
        msgspec.structs.replace(cell, row=kept.index(cell.row))
        for cell in outline.cells
        if cell.row in kept
    )
    rows = tuple(outline.rows[n] for n in kept)
    return msgspec.structs.replace(outline, rows=rows, cells=cells)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.jsonl")) or sorted(path.glob("*.jsonl.gz"))
    if not path.exists():
        raise InputError(f"{path} does not exist: name a results file or a folder of them.")
    return [path]


def _nothing_to_show(given: Sequence[Path], ledgers: Mapping[Path, results.Ledger]) -> str:
    """Why files without any experiment have no report, and what would help."""
    named = ", ".join(map(str, given)) or "No results file"
    entries = [entry for ledger in ledgers.values() for entry in ledger.entries.values()]
    if any(isinstance(entry, ArchivedRun) for entry in entries):
        return (
            f"{named} holds archived runs only, which are kept for crg rerun: open the page beside "
            "them, or draw what a new crg bench measures."
        )
    left_out = [line for ledger in ledgers.values() for line in ledger.left_out]
    why = f" (line {left_out[0].number} {left_out[0].why})" if left_out else ""
    return f"{named} holds no experiment{why}: run one with crg bench."


@dataclass(frozen=True, eq=False)
class Answers:
    """Which images were answered rightly, by row of the file, in each of some orders."""

    seeds: tuple[int, ...]
    right: Numbers  # (orders, N); bool, or the difference of two such
    seen: Numbers  # (orders, N): which images were scored
    for_all_orders: bool = False  # one order only: the answers are the same in every one

    def of(self, seeds: Sequence[int]) -> Answers:
        """The answers in the orders of ``seeds``, each of which there must be."""
        if self.for_all_orders:
            shape = (len(seeds), self.right.shape[1])
            right, seen = np.broadcast_to(self.right, shape), np.broadcast_to(self.seen, shape)
            return Answers(tuple(seeds), right, seen)
        places = [self.seeds.index(seed) for seed in seeds]
        return Answers(tuple(seeds), self.right[places], self.seen[places])

    def minus(self, other: Answers | None) -> Answers | None:
        """How each answer differs: 1 corrected, -1 broken, 0 as it was."""
        pair = _paired(self, other)
        if pair is None:
            return None
        mine, its = pair
        difference = mine.right.astype(np.int8) - its.right.astype(np.int8)
        for_all = self.for_all_orders and other is not None and other.for_all_orders
        return Answers(mine.seeds, difference, mine.seen & its.seen, for_all)


def _paired(one: Answers | None, other: Answers | None) -> tuple[Answers, Answers] | None:
    """Both in the orders that they share; None where there are none, or the images differ."""
    if one is None or other is None:
        return None
    if one.for_all_orders or other.for_all_orders:
        seeds = other.seeds if one.for_all_orders else one.seeds
    else:
        seeds = tuple(seed for seed in one.seeds if seed in other.seeds)
    if not seeds or one.right.shape[1] != other.right.shape[1]:
        return None
    return one.of(seeds), other.of(seeds)


def contrast(one: Answers | None, other: Answers | None, label: str, n_all: int) -> Contrast | None:
    """``one`` against ``other``; ``n_all`` orders are what a method that is run once stands for."""
    pair = _paired(one, other)
    if pair is None or one is None or other is None:
        return None
    first, second = pair
    seen = first.seen & second.seen
    if not seen.any():
        return None
    if (seen == seen[:1]).all():  # the same images in every order: no others need be drawn
        kept = seen[0]
        interval = metrics.paired_interval(
            first.right[:, kept], second.right[:, kept], n_resamples=RESAMPLES
        )
    else:
        interval = metrics.paired_interval(first.right, second.right, seen, RESAMPLES)
    n_orders = n_all if one.for_all_orders and other.for_all_orders else len(first.seeds)
    return judged(label, interval, n_orders, int(seen.sum(axis=1).min()))


def judged(label: str, interval: Interval, n_orders: int, n_images: int) -> Contrast:
    """With the verdict that the interval allows; ``n_images`` is of the order with the fewest."""
    lacks = "orders" if n_orders < ENOUGH_ORDERS else ""
    lacks = "images" if n_images < ENOUGH_IMAGES else lacks
    if lacks or interval.low <= 0 <= interval.high:
        return Contrast(label, interval, "", lacks)
    return Contrast(label, interval, "better" if interval.low > 0 else "worse")


def spread(values: Sequence[float | None]) -> Spread | None:
    """Mean and deviation over orders; None where one of them has no value.

    >>> spread([0.5, 0.5])
    Spread(mean=0.5, std=0.0, per_order=(0.5, 0.5))
    """
    known = tuple(float(value) for value in values if value is not None)
    if not known or len(known) < len(values):
        return None
    std = statistics.stdev(known) if len(known) > 1 else None
    return Spread(statistics.fmean(known), std, known)


@dataclass(frozen=True, eq=False)
class _Measured:
    """A run as the statistics need it."""

    run: Run
    line: int
    own: Metrics
    base: Metrics

    @property
    def n_scored(self) -> int:
        return self.run.n_samples if self.own.n_scored is None else self.own.n_scored


@dataclass(frozen=True, eq=False)
class _Judged:
    """A result with the answers behind it."""

    result: MethodResult
    answers: Answers | None = None
    base: Answers | None = None  # of zero-shot on the same streams; None for zero-shot itself
    options: Mapping[str, object] = field(default_factory=dict)  # all of them, defaults too


class _Reader:
    """One experiment of a results file: finds the runs by key and compares them."""

    def __init__(self, outline: Outline, ledger: results.Ledger, papers: Papers) -> None:
        self.outline, self.papers, self.n_orders = outline, papers, len(outline.seeds)
        wanted = {cell.key for cell in outline.cells if cell.key is not None}
        self.runs: dict[str, _Measured] = {}
        self.failures: dict[str, str] = {}
        self.gallery: dict[str, tuple[ShownImage, ...]] = {}
        for number, entry in ledger.entries.items():
            if isinstance(entry, Run) and entry.key in wanted:
                self.runs[entry.key] = _Measured(entry, number, entry.measured, entry.baseline)
            elif isinstance(entry, Failure) and entry.key in wanted:
                self.failures[entry.key] = entry.reason
            elif isinstance(entry, Gallery) and entry.experiment == outline.name:
                self.gallery[entry.source] = entry.images

    def experiment(self, file: str, left_out: tuple[str, ...]) -> Experiment:
        machine = _machine(each.run for each in self.runs.values())
        return Experiment(
            outline=self.outline,
            comparisons=tuple(self._comparisons()),
            missing=tuple(each for each in self.outline.sources if each.missing is not None),
            gallery={name: images for name, images in self.gallery.items() if images},
            machine=machine,
            notes=(*_notes(self.outline, machine), *left_out),
            path=file,
        )

    def _comparisons(self) -> Iterable[Comparison]:
        cells: dict[tuple[int, int], list[Cell]] = defaultdict(list)
        for cell in self.outline.cells:
            cells[cell.source, cell.setting].append(cell)
        for place, source in enumerate(self.outline.sources):
            first: list[_Judged] = []
            for number, setting in enumerate(self.outline.settings):
                mine = cells.get((place, number))
                if source.missing is not None or mine is None:
                    continue
                rows = self._with_rivals([self._row(source, n, mine) for n in self._numbers()])
                rows = [self._with_change(a, b) for a, b in zip(rows, first, strict=False)] or rows
                first = first or (rows if number == 0 else [])
                scored = [self.runs[c.key].n_scored for c in mine if c.key in self.runs]
                found = tuple(each.result for each in rows)
                yield Comparison(source, setting, found, min(scored, default=None))

    def _numbers(self) -> range:
        return range(len(self.outline.rows))

    def _row(self, source: Source, number: int, cells: Sequence[Cell]) -> _Judged:
        """One method with its figures, against zero-shot on the same streams."""
        row, mine = self.outline.rows[number], [cell for cell in cells if cell.row == number]
        keys = tuple(dict.fromkeys(cell.key for cell in mine if cell.key is not None))
        runs = [self.runs[key] for key in keys if key in self.runs]
        status, reason = self._status(mine, keys)
        reported = _printed(self.papers, self.outline, source, row)
        result = MethodResult(row, status, reason, reported=reported)
        if not runs:
            return _Judged(result)
        once = len(keys) == 1 and self.n_orders > 1  # its answers do not depend on the order
        answers = _answers(runs, lambda run: run.own, once)
        base = None if is_baseline(row) else _answers(runs, lambda run: run.base, once)
        label = next((each.label for each in self.outline.rows if is_baseline(each)), BASELINE)
        result = replace(
            _with_figures(result, runs, once),
            gain=contrast(answers, base, label, self.n_orders),
            first_gain={} if once or base is None else _first_gains(runs, label),
        )
        return _Judged(result, answers, base, runs[0].run.options)

    def _status(self, cells: Sequence[Cell], keys: Sequence[str]) -> tuple[str, str]:
        if not keys:
            reasons = dict.fromkeys(cell.reason for cell in cells if cell.reason)
            return "not run", " ".join(reasons) or "The experiment does not have it here."
        absent = [key for key in keys if key not in self.runs]
        if not absent:
            return "measured", ""
        failures = [self.failures[key] for key in absent if key in self.failures]
        why = failures[-1].strip().splitlines()[-1].strip() if failures and failures[-1] else ""
        if len(absent) < len(keys):
            count = f"{len(absent)} of {len(keys)} stream orders missing"
            return "incomplete", f"{count}: {why}" if why else f"{count}."
        return ("failed", why) if failures else ("not run", "Not reached: run crg bench again.")

    def _with_rivals(self, rows: Sequence[_Judged]) -> list[_Judged]:
        complete = [
            each.result.accuracy.mean
            for each in rows
            if each.result.status == "measured"
            and each.result.accuracy is not None
            and not each.result.row.uses_labels
        ]
        top, found = max(complete, default=None), []
        for place, mine in enumerate(rows):
            result, other, like = mine.result, _rival(mine, rows), _most_like(mine, rows[:place])
            if mine.answers is None or is_baseline(result.row):
                other = like = None
            counted = result.status == "measured" and not result.row.uses_labels
            mean = None if result.accuracy is None else result.accuracy.mean
            found.append(replace(mine, result=replace(
                result,
                best=counted and mean is not None and mean == top,
                rival=self._against(mine, other),
                step=self._against(mine, like),
            )))  # fmt: skip
        return found

    def _against(self, mine: _Judged, other: _Judged | None) -> Contrast | None:
        if other is None:
            return None
        return contrast(mine.answers, other.answers, other.result.row.label, self.n_orders)

    def _with_change(self, later: _Judged, earlier: _Judged) -> _Judged:
        """Against itself in the first setting; of streams, the gain: tasks may differ."""
        of_gains = self.outline.figure == "streams"
        now = later.answers.minus(later.base) if of_gains and later.answers else later.answers
        then = earlier.answers.minus(earlier.base) if of_gains and earlier.answers else (
            earlier.answers)  # fmt: skip
        moved = contrast(now, then, self.outline.settings[0].label, self.n_orders)
        return replace(later, result=replace(later.result, change=moved))


def _rival(mine: _Judged, rows: Iterable[_Judged]) -> _Judged | None:
    """The most accurate other method; those that use labels are rivals of each other only."""
    uses = mine.result.row.uses_labels
    known = [
        (each.result.accuracy.mean, each)
        for each in rows
        if each is not mine
        and each.result.accuracy is not None
        and each.result.row.method != BASELINE
        and each.result.row.uses_labels == uses
    ]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def _most_like(mine: _Judged, above: Sequence[_Judged]) -> _Judged | None:
    """Of the rows above with the same method, the last one whose options differ least."""
    same = [
        each for each in above if each.result.row.method == mine.result.row.method and each.options
    ]

    def differing(other: _Judged) -> int:
        names = {*other.options, *mine.options}
        return sum(other.options.get(name) != mine.options.get(name) for name in names)

    return min(reversed(same), key=differing) if same and mine.options else None


def _answers(
    runs: Sequence[_Measured], which: Callable[[_Measured], Metrics], once: bool
) -> Answers | None:
    """The answers of a method; None where there were no labels to judge them by."""
    texts = [which(run).correct for run in runs]
    known = [text for text in texts if text is not None]
    if len(known) < len(runs) or len(set(map(len, known))) != 1:
        return None  # or other images, as when a file was replaced between the runs
    width = 4 * len(known[0])  # four bits a digit; the last ones may mean nothing
    right = np.stack([unpacked_bits(text, width) for text in known])
    seen = np.stack([
        np.arange(width) < run.n_scored
        if run.own.streamed is None
        else unpacked_bits(run.own.streamed, width)
        for run in runs
    ])  # fmt: skip
    return Answers(tuple(run.run.seed for run in runs), right & seen, seen, once)


def _streams(runs: Sequence[_Measured], which: Callable[[_Measured], Metrics]) -> list[Numbers]:
    """Right or wrong in the order of the stream, per run; empty where one of them lacks it."""
    found = [
        unpacked_bits(text, run.n_scored)
        for run in runs
        if (text := which(run).right_in_order) is not None
    ]
    return found if len(found) == len(runs) else []


def _with_figures(result: MethodResult, runs: Sequence[_Measured], once: bool) -> MethodResult:
    own = [run.own for run in runs]
    counts = [each.mislabelled for each in own if each.mislabelled]
    insertions = sum(each.insertions for each in counts)
    wrong = sum(each.mislabelled for each in counts)
    return replace(
        result,
        run_once=once,
        accuracy=spread([each.accuracy for each in own]),
        ece=spread([each.ece for each in own]),
        nll=spread([each.nll for each in own]),
        worst_class=spread([each.worst_class_accuracy for each in own]),
        purity=spread([each.purity for each in own]),
        milliseconds=spread([each.ms_per_step_median for each in own]),
        peak_bytes=max((each.peak_bytes for each in own if each.peak_bytes), default=None),
        mislabelled=wrong / insertions if insertions else None,
        reliability=_reliability(own),
        learning=_learning(runs, once),
        purity_over_time=_purity_over_time(own),
        lines=tuple(run.line for run in runs),
    )


def _reliability(own: Iterable[Metrics]) -> tuple[tuple[int, float, float], ...]:
    """The bins of all orders together, without the empty ones."""
    tables = [each.reliability for each in own if each.reliability]
    if not tables:
        return ()
    rows = np.array(tables, dtype=float)  # (orders, bins, 3); None has become NaN
    counts = rows[:, :, 0]
    sums = np.nansum(rows[:, :, 1:] * counts[:, :, None], axis=0)
    return tuple(
        (int(total), float(confidence / total), float(right / total))
        for total, (confidence, right) in zip(counts.sum(axis=0), sums, strict=True)
        if total
    )


def _learning(runs: Sequence[_Measured], once: bool) -> Curve:
    """Running accuracy at about sixty places, from the twentieth image on.

    Of a method that is run once it is level: as far as the order is up to chance, any part of
    the stream is expected to have the accuracy of the whole.
    """
    streams = _streams(runs, lambda run: run.own)
    length = min(map(len, streams), default=0)
    if not length:
        return ()
    places = np.unique(np.linspace(min(_FIRST_PLACE, length), length, _N_PLACES).astype(int))
    if once:
        places, streams = places[[0, -1]], [np.full(length, stream.mean()) for stream in streams]
    return _curve(places, np.stack([np.cumsum(each)[places - 1] / places for each in streams]))


def _purity_over_time(own: Sequence[Metrics]) -> Curve:
    """Purity of the cache at the checkpoints that lie within every order's."""
    tracks = [np.array(each.purity_over_time, dtype=float) for each in own]
    if not tracks or not all(len(track) for track in tracks):
        return ()
    start, end = max(track[0, 0] for track in tracks), min(track[-1, 0] for track in tracks)
    places = np.array([x for x in tracks[0][:, 0] if start <= x <= end])
    if not len(places):
        return ()
    return _curve(places, np.stack([np.interp(places, *track.T) for track in tracks]))


def _curve(places: Numbers, values: Numbers) -> Curve:
    """The mean of ``values`` (orders, places) and its standard deviation."""
    means = values.mean(axis=0)
    stds = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(means)
    return tuple(zip(places.astype(float).tolist(), means.tolist(), stds.tolist(), strict=True))


def _first_gains(runs: Sequence[_Measured], label: str) -> Mapping[int, Contrast]:
    """The gain over zero-shot on the first n images, where every stream has so many.

    Orders begin with other images, but some come early in several: where the orders are known, an
    image is drawn in all of them at once, otherwise the bootstrap is nested.
    """
    mine, base = _streams(runs, lambda run: run.own), _streams(runs, lambda run: run.base)
    if not mine or not base:
        return {}
    orders, gains = _orders_of(runs), {}
    for n in [n for n in FIRST if n <= min(map(len, mine))]:
        if orders is None:
            right, wrong = (np.stack([each[:n] for each in some]) for some in (mine, base))
            interval = metrics.nested_interval(right, wrong, RESAMPLES)
        else:
            own, other, rows = orders
            seen = np.zeros_like(own.seen)
            for place, order in enumerate(rows):
                seen[place, order[:n]] = True
            interval = metrics.paired_interval(own.right, other.right, seen, RESAMPLES)
        gains[n] = judged(label, interval, len(runs), n)
    return gains


def _orders_of(runs: Sequence[_Measured]) -> tuple[Answers, Answers, list[Numbers]] | None:
    """Both answers and the rows as they came; None where the answers do not fit the orders."""
    own, base = _answers(runs, lambda run: run.own, False), _answers(runs, lambda run: run.base,
                                                                     False)  # fmt: skip
    if own is None or base is None:
        return None
    if any(run.run.scenario.get("order", SHUFFLED) != SHUFFLED for run in runs):
        return None
    orders = [shuffled(run.n_scored, run.run.seed) for run in runs]
    streams = _streams(runs, lambda run: run.own)
    fits = all(
        len(order) == len(stream) and np.array_equal(own.right[place, order], stream)
        for place, (order, stream) in enumerate(zip(orders, streams, strict=True))
    )
    return (own, base, orders) if fits else None


def _printed(papers: Papers, outline: Outline, source: Source, row: Row) -> Reported | None:
    """What papers print for this method on this dataset with this model.

    It may be named by its label or by its method with default options; papers print what they
    tuned per dataset, so a tuned row has the number of its method too.
    """
    if not outline.reported or source.model is None:
        return None
    names = [row.label, row.method] if not row.options or row.tuned else [row.label]
    if is_baseline(row) and len(source.prompts) == 1:
        names = [row.label] * (row.label != BASELINE) + [_ONE_PROMPT]
    found = (papers.number(outline.reported, source.model, source.dataset, name) for name in names)
    return next((each for each in found if each is not None), None)


def _machine(runs: Iterable[Run]) -> dict[str, str]:
    """When, and versions and machine; where runs differ, all that there are."""
    found: dict[str, dict[str, None]] = {}
    times = []
    for run in runs:
        times.append(run.time)
        for name, value in (*run.versions.items(), *run.machine.items()):
            if value is not None:
                found.setdefault(name, {})[str(value)] = None
    times = sorted(filter(None, times))
    when = {"measured": f"{times[0]} to {times[-1]}"} if times else {}
    return {**when, **{name: ", ".join(values) for name, values in found.items()}}


def _notes(outline: Outline, machine: Mapping[str, str]) -> list[str]:
    """What a reader must know before believing anything."""
    notes = ["Reduced form (--quick)."] if outline.quick else []
    count = len(outline.seeds)
    if count < ENOUGH_ORDERS:
        orders = "1 stream order" if count == 1 else f"{count} stream orders"
        notes.append(f"{orders}: nothing is called significant with fewer than {ENOUGH_ORDERS}.")
    if any(", " in machine.get(name, "") for name in ("host", "processor")):
        notes.append("Runs of several machines: their times cannot be compared.")
    if ", " in machine.get("crg", ""):
        notes.append(f"Runs of several versions of crg: {machine['crg']}.")
    return notes


def tally(contrasts: Iterable[Contrast | None]) -> tuple[int, int, int]:
    """Win, tie, loss: how many are significantly better, not significant, significantly worse."""
    verdicts = [each.verdict for each in contrasts if each is not None]
    return verdicts.count("better"), verdicts.count(""), verdicts.count("worse")


def is_usual(setting: Setting) -> bool:
    """Whether it is the plain task: a shuffled stream without label noise."""
    scenario = setting.scenario
    return scenario.order == Scenario().order and not scenario.mislabelled


def distinct(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Without what an earlier experiment has shown already: the same methods on the same images."""
    shown: dict[Any, str] = {}
    kept: list[Experiment] = []
    for experiment in experiments:
        own = []
        for each in experiment.comparisons:
            rows = [(row.method, sorted(map(str, row.options.items())))
                    for row in experiment.outline.rows]  # fmt: skip
            facts = (each.source.sha256 or each.source.name, str(each.setting.scenario), str(rows))
            if shown.setdefault(facts, experiment.outline.name) == experiment.outline.name:
                own.append(each)
        kept.append(replace(experiment, comparisons=tuple(own)))
    return [each for each in kept if each.comparisons or not any(e.comparisons for e in kept)]
