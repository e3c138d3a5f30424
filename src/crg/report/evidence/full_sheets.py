"""Tables as text, and that of one source in one setting: every row with all that was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from crg.report.evidence.cells import (
    NOTHING,
    contrast_text,
    lines_text,
    memory_text,
    name_of,
    plain_text,
    rival_text,
    scored_text,
    share_text,
    spread_text,
)
from crg.report.evidence.study import Line, Study, Table
from crg.report.evidence.tabling import STREAMS


@dataclass(frozen=True)
class SheetRow:
    """``message`` stands in place of the cells after the first, where nothing was measured."""

    cells: tuple[str, ...]
    bold: tuple[int, ...] = ()  # places of the cells that tell of the highest accuracy
    message: str = ""


@dataclass(frozen=True)
class Sheet:
    """One table with what stands above and below it."""

    title: str
    facts: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[SheetRow, ...]
    notes: tuple[str, ...] = ()
    is_prose: bool = False  # sentences rather than figures


@dataclass(frozen=True)
class _Column:
    title: str
    text: Callable[[Line], str]
    always: bool = False  # shown even if no row has anything to say


def full_sheet(study: Study, table: Table, title: str, facts: tuple[str, ...] = ()) -> Sheet:
    """Every row with all columns that have anything in them."""
    marks = _marks(table.lines)
    columns = [column for column in _columns(table, marks) if column.always or
               any(column.text(line) != NOTHING for line in table.lines)]  # fmt: skip
    rows = tuple(_row(line, [column.text(line) for column in columns]) for line in table.lines)
    return Sheet(
        title=title,
        facts=(*facts, *_scored(table)),
        columns=("row", *(column.title for column in columns)),
        rows=rows,
        notes=(
            *_change_note(study, table),
            *_mark_notes(marks),
            *incomplete_reasons([table]),
            *trace_note(study),
        ),
    )


def _scored(table: Table) -> tuple[str, ...]:
    """How many images an order has, where these are not all of the file."""
    if table.scored is None or table.scored.mean == table.source.n_samples:
        return ()
    return (f"Scored images per order: {scored_text(table.scored)}.",)


def _columns(table: Table, marks: dict[str, int]) -> tuple[_Column, ...]:
    return (
        _Column("accuracy %", lambda line: spread_text(line.accuracy), always=True),
        _Column("to zero-shot", lambda line: contrast_text(line.to_zero_shot), always=True),
        _Column("to best rival", lambda line: rival_text(line.to_best_rival)),
        _Column(change_title(table), lambda line: contrast_text(line.to_first_setting)),
        _Column("ECE %", lambda line: spread_text(line.ece), always=True),
        _Column("NLL", lambda line: plain_text(line.nll, 3), always=True),
        _Column("worst class %", lambda line: spread_text(line.worst_class)),
        _Column("purity %", lambda line: spread_text(line.purity)),
        _Column("mislabelled %", lambda line: share_text(line.mislabelled)),
        _Column("ms", lambda line: plain_text(line.milliseconds, 3), always=True),
        _Column("peak MB", memory_text),
        _Column("papers print %", lambda line: _printed(line, marks)),
        _Column("lines", lambda line: lines_text(line)),
    )


def change_title(table: Table) -> str:
    """What the column is called that holds a row against itself in the first setting."""
    found = (line.to_first_setting for line in table.lines)
    return next((f"against {each.against}" for each in found if each is not None), "change")


def change_words(study: Study) -> str:
    """What that column holds: another stream may be another task, so gains are compared there."""
    what = "gain over zero-shot" if study.outline.figure == STREAMS else "accuracy"
    return f"the row's {what} less what it has there, in points"


def _change_note(study: Study, table: Table) -> tuple[str, ...]:
    if all(line.to_first_setting is None for line in table.lines):
        return ()
    return (f"The column '{change_title(table)}': {change_words(study)}.",)


def _row(line: Line, texts: Sequence[str]) -> SheetRow:
    if not line.traces:
        return SheetRow((name_of(line),), message=f"{line.status}: {line.reason}")
    return SheetRow((name_of(line), *texts), (0, 1) if line.best else ())


def _marks(lines: Iterable[Line]) -> dict[str, int]:
    """A number for each different remark on what papers print or say."""
    texts = dict.fromkeys(_remark(line) for line in lines if line.reported or line.said)
    return {text: number for number, text in enumerate(texts, start=1)}


def _remark(line: Line) -> str:
    parts = [] if line.reported is None else [f"{line.reported.source}.", *line.reported.notes]
    return " ".join((*parts, *line.said))


def _printed(line: Line, marks: dict[str, int]) -> str:
    if line.reported is None and not line.said:
        return NOTHING
    value = "not at hand" if line.reported is None else f"{line.reported.value:.2f}"
    return f"{value} [{marks[_remark(line)]}]"


def _mark_notes(marks: dict[str, int]) -> tuple[str, ...]:
    return tuple(f"[{number}] {text}" for text, number in marks.items())


def incomplete_reasons(tables: Iterable[Table]) -> tuple[str, ...]:
    """Why rows are incomplete; of the others the table itself says so."""
    return tuple(
        f"{line.row.label}, {table.setting.label}: {line.reason}"
        for table in tables
        for line in table.lines
        if line.status == "incomplete"
    )


def trace_note(study: Study) -> tuple[str, ...]:
    """How a figure can be had again."""
    return (f"Lines are those of {study.path}: crg rerun {study.path}:LINE repeats a run.",)
