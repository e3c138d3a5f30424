"""The line of one row on one source in one setting: its runs, what became of them, its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crg import metrics
from crg.evaluate import BASELINE
from crg.metrics import Interval
from crg.report.evidence import runs as measured
from crg.report.evidence.pairing import RESAMPLES, Judged, contrast, judged
from crg.report.evidence.printed import printed_for, said_of
from crg.report.evidence.runs import Answers, Run, answers_of, spread, streams_of, zero_shot_answers
from crg.report.evidence.study import Contrast, Line, Spread
from crg.results.outline import Cell, Outline, Row, Source
from crg.results.papers import Papers, bundled_papers
from crg.streams.orders import shuffled
from crg.streams.scenario import SHUFFLED

Rows = np.ndarray[Any, Any]
FIRST = (50, 100, 200, 500)  # images of a cold start


def first_ones(runs: Sequence[Run]) -> Mapping[int, Spread]:
    """Accuracy over the first n images, where the stream has so many."""
    streams = streams_of(runs, lambda run: run.metrics)
    found = {n: spread([float(stream[:n].mean()) for stream in streams]) for n in _sizes(streams)}
    return {n: each for n, each in found.items() if each is not None}


def first_gains(runs: Sequence[Run], label: str, n_orders: int) -> Mapping[int, Contrast]:
    """The same against zero-shot."""
    mine = streams_of(runs, lambda run: run.metrics)
    base = streams_of(runs, lambda run: run.zero_shot)
    if not mine or not base:
        return {}
    orders = _orders_of(runs)
    gains: dict[int, Contrast] = {}
    for n in _sizes([*mine, *base]):
        # Orders begin with other images, but some of these come early in several: only where
        # it is known which ones can an image be drawn in all orders at once.
        interval = None if orders is None else _crossed(runs, orders, n)
        if interval is None:
            right, baseline = (np.stack([s[:n] for s in each]) for each in (mine, base))
            interval = metrics.nested_interval(right, baseline, RESAMPLES)
        gains[n] = judged(label, interval, n_orders, n)
    return gains


def _crossed(runs: Sequence[Run], orders: Sequence[Rows], n: int) -> Interval | None:
    """The paired interval over the images that come first, which differ from order to order."""
    mine, base = answers_of(runs, False), zero_shot_answers(runs, False)
    if mine is None or base is None:
        return None
    seen = np.zeros_like(mine.seen)
    for place, order in enumerate(orders):
        seen[place, order[:n]] = True
    return metrics.paired_interval(mine.right, base.right, seen, RESAMPLES)


def _orders_of(runs: Sequence[Run]) -> list[Rows] | None:
    """Rows of the file as they came, by the seed; None where the answers tell another story."""
    answers = answers_of(runs, False)
    if answers is None or any(_order_named(run) != SHUFFLED for run in runs):
        return None
    orders = [shuffled(run.n_scored, run.seed) for run in runs]
    streams = streams_of(runs, lambda run: run.metrics)
    fits = all(_fits(answers, place, order, streams[place]) for place, order in enumerate(orders))
    return orders if fits else None


def _fits(answers: Answers, place: int, order: Rows, stream: Rows) -> bool:
    return len(order) == len(stream) and np.array_equal(answers.right[place, order], stream)


def _order_named(run: Run) -> str:
    return str((run.record.get("scenario") or {}).get("order", SHUFFLED))


def _sizes(streams: Sequence[Rows]) -> list[int]:
    shortest = min((len(stream) for stream in streams), default=0)
    return [n for n in FIRST if n <= shortest]


_STARTS = ("cold_start", "learning")  # figures that tell of the first images


@dataclass(frozen=True, eq=False)
class Known:
    """What a results file knows of an experiment."""

    outline: Outline
    runs: Mapping[str, Run]  # by key
    failures: Mapping[str, str]  # reason by key
    papers: Papers = field(default_factory=bundled_papers)

    @property
    def n_orders(self) -> int:
        """How many orders the experiment asks for."""
        return len(self.outline.seeds)


def judged_row(known: Known, source: Source, row: Row, cells: Sequence[Cell]) -> Judged:
    """The row with its figures, against zero-shot on the same streams; rivals come later."""
    keys = tuple(dict.fromkeys(cell.key for cell in cells if cell.key is not None))
    runs = [known.runs[key] for key in keys if key in known.runs]
    status, reason = _status(known, cells, keys)
    about = (known.papers, known.outline, source, row)
    line = Line(row, status, reason, reported=printed_for(*about), said=said_of(*about))
    if not runs:
        return Judged(line, None, {})
    for_all_orders = len(keys) == 1 and known.n_orders > 1  # run once because it forgets
    line = _with_figures(line, runs)
    line = _without_start(line, known, cells) if for_all_orders else line
    answers = answers_of(runs, for_all_orders)
    base = None if is_baseline(row) else zero_shot_answers(runs, for_all_orders)
    if base is not None:
        label = _baseline_label(known.outline)
        shows_start = known.outline.figure in _STARTS and not for_all_orders
        line = replace(
            line,
            to_zero_shot=contrast(answers, base, label, known.n_orders),
            first_gain=first_gains(runs, label, len(runs)) if shows_start else {},
        )
    return Judged(line, answers, runs[0].record["options"], base)


def is_baseline(row: Row) -> bool:
    """Whether it is plain zero-shot, which the others are measured against."""
    return row.method == BASELINE and not row.options


def _baseline_label(outline: Outline) -> str:
    return next((row.label for row in outline.rows if is_baseline(row)), BASELINE)


def _status(known: Known, cells: Sequence[Cell], keys: Sequence[str]) -> tuple[str, str]:
    if not keys:
        reasons = dict.fromkeys(cell.reason for cell in cells if cell.reason)
        return "not run", " ".join(reasons) or "The experiment does not have it here."
    open_keys = [key for key in keys if key not in known.runs]
    if not open_keys:
        return "measured", ""
    failures = [known.failures[key] for key in open_keys if key in known.failures]
    if len(open_keys) < len(keys):
        why = f": {_last_line(failures[-1])}" if failures else "."
        verb = "is" if len(open_keys) == 1 else "are"
        return "incomplete", f"{len(open_keys)} of {len(keys)} stream orders {verb} missing{why}"
    if failures:
        return "failed", _last_line(failures[-1])
    return "not run", "It was not reached yet: run the experiment again to go on."


def _last_line(reason: str) -> str:
    """What a traceback ends with; the rest stays in the results file."""
    lines = reason.strip().splitlines()
    return lines[-1].strip() if lines else "No reason was given."


def _without_start(line: Line, known: Known, cells: Sequence[Cell]) -> Line:
    """One order says nothing of how it starts, as others would start with other images.

    As far as the order is up to chance, what is expected of any part of the stream is what the
    whole of it has; domains come in an order that is not.
    """
    by_chance = all(known.outline.settings[c.setting].scenario.order != "domains" for c in cells)
    level = measured.level(line.learning, line.accuracy) if by_chance else ()
    return replace(line, run_once=True, learning=level, first={})


def _with_figures(line: Line, runs: Sequence[Run]) -> Line:
    return replace(
        line,
        accuracy=measured.spread_of(runs, "accuracy"),
        ece=measured.spread_of(runs, "ece"),
        nll=measured.spread_of(runs, "nll"),
        worst_class=measured.spread_of(runs, "worst_class_accuracy"),
        purity=measured.spread_of(runs, "purity"),
        milliseconds=measured.spread_of(runs, "ms_per_step_median"),
        peak_bytes=measured.peak_bytes(runs),
        mislabelled=measured.mislabelled(runs),
        reliability=measured.reliability(runs),
        learning=measured.learning(runs),
        purity_over_time=measured.purity_over_time(runs),
        first=first_ones(runs),
        traces=tuple(run.trace for run in runs),
    )
