"""Tables as text, cell by cell, before they become Markdown or LaTeX.

Shares are in per cent, differences in points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from crg.evidence.captions import caption
from crg.evidence.cells import (
    NOTHING,
    contrast_text,
    lines_text,
    memory_text,
    name_of,
    plain_text,
    reasons_in_short,
    rival_text,
    scored_text,
    share_text,
    spread_text,
)
from crg.evidence.leading import first_leading
from crg.evidence.streaming import left_out
from crg.evidence.study import Line, Study, Table
from crg.evidence.wording import many, number, text_flag
from crg.outline import Source

_SHOWN_PROMPTS = 8


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


def sheets_of(study: Study) -> list[Sheet]:
    """A table per source; with several settings these are its columns."""
    sheets: list[Sheet] = []
    for name in dict.fromkeys(table.source.name for table in study.tables):
        tables = study.tables_of(name)
        sheets.append(_wide(study, tables) if len(tables) > 1 else _full(study, tables[0]))
        if study.outline.figure == "cold_start":
            sheets += [_start(table) for table in tables if any(line.first for line in table.lines)]
    return [*sheets, _missing(study.missing)] if study.missing else sheets


def facts_of(source: Source) -> tuple[str, ...]:
    """What the pictures and texts are, for a reader who doubts."""
    classes = "1 class" if source.n_classes == 1 else f"{source.n_classes} classes"
    pictures = f"{many(source.n_samples, 'picture')}, {classes}"
    facts = [
        f"{pictures}, {many(source.n_views, 'view')} per picture.",
        f"Model: {source.model or 'the file does not tell'}.",
        _prompts(source),
    ]
    flag = text_flag(source)
    return (*facts, f"Beware: {flag}, not the model's own.") if flag else tuple(facts)


def _caption(study: Study, source: Source) -> tuple[str, ...]:
    """What it shows, unless it is the only source: then the head of the study has said it."""
    only = all(table.source.name == source.name for table in study.tables)
    return () if only else (caption(study, source.name),)


def _prompts(source: Source) -> str:
    if not source.prompts:
        return "Prompts: the file does not tell."
    shown = [f'"{prompt}"' for prompt in source.prompts[:_SHOWN_PROMPTS]]
    more = len(source.prompts) - len(shown)
    rest = f" and {more} more" if more else ""
    return f"Prompts ({len(source.prompts)}): {', '.join(shown)}{rest}."


def _full(study: Study, table: Table) -> Sheet:
    """All figures of the only setting."""
    marks = _marks(table.lines)
    columns = [column for column in _columns(marks) if column.always or
               any(column.text(line) != NOTHING for line in table.lines)]  # fmt: skip
    rows = tuple(_row(line, [column.text(line) for column in columns]) for line in table.lines)
    return Sheet(
        title=table.source.name,
        facts=(*facts_of(table.source), *_scored(table), *_caption(study, table.source)),
        columns=("row", *(column.title for column in columns)),
        rows=rows,
        notes=(*_mark_notes(marks), *_reasons([table]), *_trace_note(study)),
    )


def _scored(table: Table) -> tuple[str, ...]:
    """How many pictures an order has, where these are not all of the file."""
    if table.scored is None or table.scored.mean == table.source.n_samples:
        return ()
    return (f"Scored pictures per order: {scored_text(table.scored)}.",)


def _columns(marks: dict[str, int]) -> tuple[_Column, ...]:
    return (
        _Column("accuracy %", lambda line: spread_text(line.accuracy), always=True),
        _Column("to zero-shot", lambda line: contrast_text(line.to_zero_shot), always=True),
        _Column("to best rival", lambda line: rival_text(line.to_best_rival)),
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


def _reasons(tables: Iterable[Table]) -> tuple[str, ...]:
    """Why rows are incomplete; of the others the table itself says so."""
    return tuple(
        f"{line.row.label}, {table.setting.label}: {line.reason}"
        for table in tables
        for line in table.lines
        if line.status == "incomplete"
    )


def _trace_note(study: Study) -> tuple[str, ...]:
    return (f"Lines are those of {study.path}: crg rerun {study.path}:LINE repeats a run.",)


def _wide(study: Study, tables: Sequence[Table]) -> Sheet:
    """Accuracy and the difference to zero-shot in each setting, and where that is lowest."""
    labels = [line.row.label for line in tables[0].lines]
    counts = (scored_text(table.scored) for table in tables)
    rows = [SheetRow(("scored pictures", *counts, NOTHING, NOTHING))]
    rows += [_wide_row(tables, label) for label in labels]
    return Sheet(
        title=tables[0].source.name,
        facts=(*facts_of(tables[0].source), *_caption(study, tables[0].source)),
        columns=("row", *(table.setting.label for table in tables), "lowest to zero-shot", "lines"),
        rows=tuple(rows),
        notes=(
            *_mislabelled(tables),
            *left_out(tables, False),
            *_reasons(tables),
            *reasons_in_short(line for table in tables for line in table.lines),
            *_trace_note(study),
        ),
    )


def _wide_row(tables: Sequence[Table], label: str) -> SheetRow:
    lines = [table.line(label) for table in tables]
    name = name_of(next((line for line in lines if line.status == "incomplete"), lines[0]))
    if not any(line.traces for line in lines):
        return SheetRow((name,), message=f"{lines[0].status}: {lines[0].reason}")
    long = [table.line(label).to_zero_shot for table in tables if table.has_enough_pictures]
    gains = [contrast for contrast in long if contrast is not None]
    lowest = min(gains, key=lambda contrast: contrast.interval.mean, default=None)
    together = replace(lines[0], traces=tuple(trace for line in lines for trace in line.traces))
    cells = (*map(_in_setting, lines), contrast_text(lowest), lines_text(together))
    return SheetRow((name, *cells), tuple(n for n, line in enumerate(lines, 1) if line.best))


def _in_setting(line: Line) -> str:
    if not line.traces:
        return line.status
    gain = "" if line.to_zero_shot is None else f"; {contrast_text(line.to_zero_shot)}"
    return f"{spread_text(line.accuracy)}{gain}"


def _mislabelled(tables: Iterable[Table]) -> tuple[str, ...]:
    """How many insertions really got a wrong label, over the rows that have a cache."""
    words: list[str] = []
    for table in tables:
        shares = [line.mislabelled for line in table.lines if line.mislabelled is not None]
        if shares:
            words.append(f"{table.setting.label}: {number(min(shares))} to {number(max(shares))}%")
    return (f"Insertions with a wrong label, by row: {'; '.join(words)}.",) if words else ()


def _start(table: Table) -> Sheet:
    """Accuracy over the first pictures, and what that is against zero-shot."""
    sizes = sorted({n for line in table.lines for n in line.first})
    top = [first_leading(table.lines, n) for n in sizes]
    rows = tuple(
        SheetRow(
            (name_of(line), *(_first(line, n) for n in sizes)),
            tuple(n for n, labels in enumerate(top, 1) if line.row.label in labels),
        )
        for line in table.lines
        if line.first
    )
    columns = ("row", *(f"first {n}" for n in sizes))
    return Sheet(f"{table.source.name}, the first pictures", (), columns, rows)


def _first(line: Line, n: int) -> str:
    gain = f"; {contrast_text(line.first_gain[n])}" if n in line.first_gain else ""
    return f"{spread_text(line.first.get(n))}{gain}"


def _missing(sources: Iterable[Source]) -> Sheet:
    rows = tuple(SheetRow((source.name, source.missing or "")) for source in sources)
    return Sheet("Not there", (), ("source", "why, and what would bring it"), rows, is_prose=True)
