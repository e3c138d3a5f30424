"""The line of one row on one source in one setting: its runs, what became of them, its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from crg.evaluate import BASELINE
from crg.report.evidence import measured
from crg.report.evidence.beginnings import first_gains, first_ones
from crg.report.evidence.pairing import Judged, contrast
from crg.report.evidence.printed import printed_for, said_of
from crg.report.evidence.runs import Run, answers_of, zero_shot_answers
from crg.report.evidence.study import Line
from crg.results.outline import Cell, Outline, Row, Source
from crg.results.papers import Papers, bundled_papers

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
