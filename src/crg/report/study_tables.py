"""The table of one source in one setting: every row with all that was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape

from crg.report.evidence.cells import TIMES, memory_text, once_mark, reasons_in_short
from crg.report.evidence.full_sheets import change_title, change_words
from crg.report.evidence.sentences import watermark
from crg.report.evidence.study import Contrast, Line, Spread, Study, Table
from crg.report.markup import Cell, Column, Entry, folded, footnotes, table
from crg.report.wording import NOTHING, points, span, spread_text

EMPTY = Cell(NOTHING)
_SHOWN_REASONS = 3  # below a table; more are folded away
STATES = {"failed": "failed", "not run": "absent", "incomplete": "incomplete"}


@dataclass(frozen=True)
class Measure:
    """A column and how a line fills it; None where there is nothing to say."""

    column: Column
    cell: Callable[[Line], Cell | None]


def rows_table(study: Study, shown: Table) -> str:
    """All rows with all columns that have anything in them, and what speaks against comparing."""
    notes = _notes(shown.lines)
    change = Column(change_title(shown), change_words(study))
    measures = [m for m in _measures(notes, change) if any(m.cell(line) for line in shown.lines)]
    entries = [_entry(line, measures) for line in shown.lines]
    columns = [Column("row", rises=True), *(measure.column for measure in measures)]
    return table(columns, entries) + footnotes(notes)


def head_cell(line: Line, is_bold: bool = False, once: str | None = None) -> Cell:
    """The name of a row with what must be known about it; ``once`` reports several settings."""
    flags = [watermark(line)] if watermark(line) else []
    needs = f"<br><small>{escape('needs ' + ', '.join(line.row.needs))}</small>"
    small = (needs if line.row.needs else "") + _once(once_mark([line]) if once is None else once)
    marks = "".join(f" <span class='flag'>{escape(flag)}</span>" for flag in flags)
    tip = f"<span title='{escape(line.row.about, quote=True)}'>" if line.row.about else "<span>"
    name = f"{tip}{escape(line.row.label)}</span>"
    css = "best" if is_bold else ""
    return Cell(f"{name}{marks}{small}", line.row.label, css)


def _once(mark: str) -> str:
    """That one run stands for all orders, in small letters."""
    return f"<br><small title='No answer depends on the order.'>{mark}</small>" if mark else ""


def whole_head(line: Line, is_bold: bool = False) -> Cell:
    """The same of a row in one setting, with what it lacks."""
    head = head_cell(line, is_bold)
    if line.status != "incomplete":
        return head
    why = f"<br><small class='reason'>{escape(line.reason)}</small>"
    return replace(head, html=head.html + why)


def state_cell(line: Line, columns: int) -> Cell | None:
    """Why there is nothing to show, across all columns; None where something was measured."""
    if line.accuracy is not None:
        return None
    return reason_cell(f"{line.status}: {line.reason}" if line.reason else line.status, columns)


def reason_cell(words: str, columns: int) -> Cell:
    """A sentence across several columns."""
    return Cell(f"<span class='why'>{escape(words)}</span>", css="reason", span=columns)


def row_css(line: Line) -> str:
    """How the row looks: its state."""
    return STATES.get(line.status, "")


def verdict_mark(contrast: Contrast, says_word: bool = False) -> str:
    """A mark that points up or down where the interval allows a verdict; nothing elsewhere."""
    word = contrast.verdict
    mark = {"better": "▲", "worse": "▼"}.get(word, "")
    if not mark:
        return ""
    shown = f"{mark} {word}" if says_word else mark
    return f" <span class='{word}' title='{word}'>{shown}</span>"


def incomplete_mark(line: Line) -> str:
    """What must stand beside a number that comes from some of the orders only."""
    if line.status != "incomplete":
        return ""
    return f"<br><small title='{escape(line.reason, quote=True)}'>incomplete</small>"


def missing_cell(line: Line) -> Cell:
    """One cell of a row that failed; its title says why."""
    why = f" title='{escape(line.reason, quote=True)}'" if line.reason else ""
    return Cell(f"<span{why}>{escape(line.status)}</span>", css="reason")


def short_reasons(lines: Iterable[Line]) -> str:
    """Below a table: why some of its cells are empty."""
    reasons = [f"<p class='facts'>{escape(each)}</p>" for each in reasons_in_short(lines)]
    if len(reasons) > _SHOWN_REASONS:
        return folded("What was not run, and why", "".join(reasons))
    return "".join(reasons)


def contrast_cell(contrast: Contrast | None, digits: int = 1) -> Cell | None:
    """A difference in points over its interval, and the verdict where there is one."""
    if contrast is None:
        return None
    return Cell(
        f"{points(contrast.interval.mean, digits)}{verdict_mark(contrast, says_word=True)}"
        f"<br><small>{span(contrast.interval, digits)}</small>",
        contrast.interval.mean,
    )


def spread_cell(
    spread: Spread | None, factor: float = 100, digits: int = 1, is_bold: bool = False
) -> Cell | None:
    """A mean with its standard deviation."""
    if spread is None:
        return None
    mean, _, deviation = spread_text(spread, factor, digits).partition(" ± ")
    small = f" <small>± {deviation}</small>" if deviation else ""
    return Cell(f"{mean}{small}", spread.mean, "best" if is_bold else "")


def _entry(line: Line, measures: Sequence[Measure]) -> Entry:
    state = state_cell(line, len(measures))
    cells = (state,) if state else tuple(m.cell(line) or EMPTY for m in measures)
    return Entry(whole_head(line, line.best), cells, row_css(line))


def _measures(notes: Sequence[str], change: Column) -> list[Measure]:
    return [
        Measure(Column("accuracy %", "mean and standard deviation over stream orders"),
                lambda line: spread_cell(line.accuracy, digits=2, is_bold=line.best)),
        Measure(Column("against zero-shot", "points of accuracy with a paired 95% interval"),
                lambda line: contrast_cell(line.to_zero_shot)),
        Measure(Column("against the best rival", "points of accuracy with a paired 95% interval"),
                _rival_cell),
        Measure(change, lambda line: contrast_cell(line.to_first_setting)),
        Measure(Column("papers report %", "see the notes below the table"),
                lambda line: _reported_cell(line, notes)),
        Measure(Column("calibration error %", "how far confidence is from accuracy", rises=True),
                lambda line: spread_cell(line.ece)),
        Measure(Column("NLL", "mean of -ln p of the true class", rises=True),
                lambda line: spread_cell(line.nll, 1, 3)),
        Measure(Column("worst class %", "accuracy of the class that fares worst"),
                lambda line: spread_cell(line.worst_class)),
        Measure(Column("cache purity %", "cached images under their own class, at the end"),
                lambda line: spread_cell(line.purity)),
        Measure(Column("mislabelled %", "cache insertions that got a wrong label on purpose"),
                _mislabelled_cell),
        Measure(Column("ms per image", f"The method without the encoder. {TIMES}", rises=True),
                lambda line: spread_cell(line.milliseconds, 1, 2)),
        Measure(Column("peak MB", "most that a run held at a time, in 10⁶ bytes", rises=True),
                _memory_cell),
    ]  # fmt: skip


def _rival_cell(line: Line) -> Cell | None:
    cell = contrast_cell(line.to_best_rival)
    if cell is None or line.to_best_rival is None:
        return None
    return Cell(
        f"{cell.html}<br><small class='name'>{escape(line.to_best_rival.against)}</small>",
        cell.value,
    )


def _memory_cell(line: Line) -> Cell | None:
    return None if line.peak_bytes is None else Cell(memory_text(line), line.peak_bytes)


def _mislabelled_cell(line: Line) -> Cell | None:
    share = line.mislabelled
    return None if share is None else Cell(f"{100 * share:.1f}", share)


def _reported_cell(line: Line, notes: Sequence[str]) -> Cell | None:
    """The number as printed, with the notes that concern it."""
    marks = ", ".join(str(notes.index(note) + 1) for note in _notes([line]))
    if not marks:
        return None
    number = NOTHING if line.reported is None else f"{line.reported.value:.2f}"
    value = None if line.reported is None else line.reported.value
    return Cell(f"{number}<sup>{marks}</sup>", value)


def _notes(lines: Sequence[Line]) -> list[str]:
    """What is said about reported numbers, each once, in the order in which it comes up."""
    found: dict[str, None] = {}
    for line in lines:
        if line.reported is not None:
            found |= dict.fromkeys((f"From {line.reported.source}.", *line.reported.notes))
        found |= dict.fromkeys(line.said)
    return list(found)
