"""The tables of an experiment as text, before they become Markdown or LaTeX.

Shares are in %, differences in points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from crg.report.evidence.averages import (
    TITLE,
    Group,
    average_note,
    average_text,
    groups_of,
    settings_groups,
)
from crg.report.evidence.captions import caption
from crg.report.evidence.cells import (
    NOTHING,
    contrast_text,
    lines_text,
    name_of,
    once_mark,
    realised_text,
    reasons_in_short,
    row_mark,
    scored_text,
    short_contrast_text,
    spread_text,
)
from crg.report.evidence.full_sheets import (
    Sheet,
    SheetRow,
    full_sheet,
    incomplete_reasons,
    trace_note,
)
from crg.report.evidence.leading import first_leading
from crg.report.evidence.streaming import left_out
from crg.report.evidence.study import Line, Study, Table
from crg.report.evidence.wording import many, number, text_flag
from crg.results.outline import Row, Source


def across_sheets(study: Study) -> list[Sheet]:
    """What can be said over all sources at once; nothing where there is only one."""
    if len(study.outline.settings) > 1:
        groups = settings_groups(study)
        return [_means(study, groups)] if groups else []
    return [_overview(study)] if len(study.tables) > 1 else []


def _overview(study: Study) -> Sheet:
    """A row per source, a column per row of the experiment, and the means below."""
    groups = groups_of(study)
    note = average_note(study, groups)
    lines = [line for table in study.tables for line in table.lines]
    return Sheet(
        title=f"{study.outline.title}: all sources",
        facts=("Accuracy in % and points over zero-shot.",),
        columns=("source", *map(_titled, study.outline.rows)),
        rows=(
            *map(_source_row, study.tables),
            *(_mean_row(study, group) for group in groups),
        ),
        notes=(*reasons_in_short(lines), *((note,) if note else ())),
    )


def _titled(row: Row) -> str:
    mark = row_mark(row)
    return f"{row.label} ({mark})" if mark else row.label


def _source_row(table: Table) -> SheetRow:
    bold = tuple(n for n, line in enumerate(table.lines, start=1) if line.best)
    return SheetRow((_named(table.source), *map(_overview_cell, table.lines)), bold)


def _named(source: Source) -> str:
    flag = text_flag(source)
    return f"{source.name} ({flag})" if flag else source.name


def _overview_cell(line: Line) -> str:
    if line.accuracy is None:
        return line.status
    gain = "" if line.to_zero_shot is None else f"; {short_contrast_text(line.to_zero_shot)}"
    lacks = " (incomplete)" if line.status == "incomplete" else ""
    return f"{spread_text(line.accuracy)}{gain}{lacks}"


def _mean_row(study: Study, group: Group) -> SheetRow:
    means = (average_text(group.average(row.label)) for row in study.outline.rows)
    return SheetRow((group.title, *means))


def _means(study: Study, groups: list[Group]) -> Sheet:
    """Rows against settings: the mean accuracy over sources."""
    columns = (f"{each.title} ({many(len(each.tables), 'source')})" for each in groups)
    rows = tuple(
        SheetRow(
            (_titled(row), *(average_text(group.average(row.label)) for group in groups)),
        )
        for row in study.outline.rows
    )
    title = f"{study.outline.title}: {TITLE}"
    return Sheet(title, ("Accuracy in %.",), ("row", *columns), rows,
                 (average_note(study, groups),))  # fmt: skip


def sheets_of(study: Study) -> list[Sheet]:
    """What holds over all sources, then each source; with several settings these are columns."""
    sheets = across_sheets(study)
    for name in dict.fromkeys(table.source.name for table in study.tables):
        tables = study.tables_of(name)
        sheets += _with_settings(study, tables) if len(tables) > 1 else [_only(study, tables[0])]
        if study.outline.figure == "cold_start":
            sheets += [_start(table) for table in tables if any(line.first for line in table.lines)]
    return [*sheets, _missing(study.missing)] if study.missing else sheets


def _with_settings(study: Study, tables: Sequence[Table]) -> list[Sheet]:
    """All settings beside each other, then every setting with all columns."""
    name = tables[0].source.name
    whole = (full_sheet(study, each, f"{name}, {each.setting.label}") for each in tables)
    return [_wide(study, tables), *whole]


def _only(study: Study, table: Table) -> Sheet:
    """All figures of the only setting."""
    facts = (*facts_of(table.source), *_caption(study, table.source))
    return full_sheet(study, table, table.source.name, facts)


def facts_of(source: Source) -> tuple[str, ...]:
    """What the images and texts are, for a reader who doubts."""
    classes = "1 class" if source.n_classes == 1 else f"{source.n_classes} classes"
    images = f"{many(source.n_samples, 'image')}, {classes}"
    facts = [
        f"{images}, {many(source.n_views, 'view')} per image.",
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
    shown = ", ".join(f'"{prompt}"' for prompt in source.prompts)
    return f"Prompts ({len(source.prompts)}): {shown}."


def _wide(study: Study, tables: Sequence[Table]) -> Sheet:
    """Accuracy and the difference to zero-shot in each setting, and where that is lowest."""
    labels = [line.row.label for line in tables[0].lines]
    counts = (scored_text(table.scored) for table in tables)
    rows = [SheetRow(("scored images", *counts, NOTHING, NOTHING))]
    rows += [_wide_row(tables, label) for label in labels]
    return Sheet(
        title=tables[0].source.name,
        facts=(*facts_of(tables[0].source), *_caption(study, tables[0].source)),
        columns=("row", *(table.setting.label for table in tables), "lowest to zero-shot", "lines"),
        rows=tuple(rows),
        notes=(
            *_mislabelled(tables),
            *left_out(tables, False),
            *incomplete_reasons(tables),
            *reasons_in_short(line for table in tables for line in table.lines),
            *trace_note(study),
        ),
    )


def _wide_row(tables: Sequence[Table], label: str) -> SheetRow:
    lines = [table.line(label) for table in tables]
    shown = next((line for line in lines if line.status == "incomplete"), lines[0])
    name = name_of(shown, once_mark(lines))
    if not any(line.traces for line in lines):
        return SheetRow((name,), message=f"{lines[0].status}: {lines[0].reason}")
    long = [table.line(label).to_zero_shot for table in tables if table.has_enough_images]
    gains = [contrast for contrast in long if contrast is not None]
    lowest = min(gains, key=lambda contrast: contrast.interval.mean, default=None)
    together = replace(lines[0], traces=tuple(trace for line in lines for trace in line.traces))
    figures = (_in_setting(table, label) for table in tables)
    cells = (*figures, contrast_text(lowest), lines_text(together))
    return SheetRow((name, *cells), tuple(n for n, line in enumerate(lines, 1) if line.best))


def _in_setting(table: Table, label: str) -> str:
    line = table.line(label)
    if not line.traces:
        return line.status
    gain = "" if line.to_zero_shot is None else f"; {contrast_text(line.to_zero_shot)}"
    realised = realised_text(line, table.setting)
    return f"{spread_text(line.accuracy)}{gain}{f'; {realised}' if realised else ''}"


def _mislabelled(tables: Iterable[Table]) -> tuple[str, ...]:
    """How many insertions really got a wrong label, over the rows that have a cache."""
    words: list[str] = []
    for table in tables:
        shares = [line.mislabelled for line in table.lines if line.mislabelled is not None]
        if shares:
            words.append(f"{table.setting.label}: {number(min(shares))} to {number(max(shares))}%")
    return (f"Insertions with a wrong label, by row: {'; '.join(words)}.",) if words else ()


def _start(table: Table) -> Sheet:
    """Accuracy over the first images, and what that is against zero-shot."""
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
    return Sheet(f"{table.source.name}, the first images", (), columns, rows)


def _first(line: Line, n: int) -> str:
    gain = f"; {contrast_text(line.first_gain[n])}" if n in line.first_gain else ""
    return f"{spread_text(line.first.get(n))}{gain}"


def _missing(sources: Iterable[Source]) -> Sheet:
    rows = tuple(SheetRow((source.name, source.missing or "")) for source in sources)
    return Sheet("Not there", (), ("source", "why, and what would bring it"), rows, is_prose=True)
