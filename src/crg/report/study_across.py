"""Tables over all sources of an experiment: the overview, the means, and what is not there."""

from __future__ import annotations

from html import escape

from crg.report.evidence.averages import (
    Average,
    Group,
    average_note,
    average_text,
    groups_of,
    settings_groups,
)
from crg.report.evidence.cells import row_mark
from crg.report.evidence.study import Study, Table
from crg.report.evidence.wording import many
from crg.report.markup import Cell, Column, Entry, figure, folded, paragraph, table
from crg.report.study_curves import mean_figures
from crg.report.study_grids import all_lines, marked_gain
from crg.report.study_tables import incomplete_mark, missing_cell, short_reasons, spread_cell
from crg.results.outline import Row, Source


def flags(source: Source) -> str:
    """What must stand beside the name of a source wherever it is shown."""
    kind = source.text_kind
    return f" <span class='flag'>{escape(kind)} text</span>" if kind else ""


def overview_table(study: Study) -> str:
    """A row per source, a column per row of the experiment; what is missing says so."""
    rows, tip = study.outline.rows, "accuracy % and points over zero-shot"
    groups = groups_of(study)
    columns = [Column("source", rises=True)]
    columns += [Column(row.label, tip, below=row_mark(row)) for row in rows]
    entries = [_source_entry(each) for each in study.tables]
    entries += [missing_entry(source, len(rows)) for source in study.missing]
    means = [_mean_entry(study, group) for group in groups]
    below = short_reasons(all_lines(study.tables)) + paragraph(average_note(study, groups), "facts")
    return table(columns, entries, "overview", means) + below


def means_table(study: Study) -> str:
    """Rows against settings: the mean accuracy over sources; nothing where there is but one."""
    groups = settings_groups(study)
    if not groups:
        return ""
    columns = [Column("row", rises=True)]
    columns += [
        Column(group.title, average_note(study, [group]), below=many(len(group.tables), "source"))
        for group in groups
    ]
    entries = [
        Entry(_titled(row), tuple(_mean_cell(group.average(row.label)) for group in groups))
        for row in study.outline.rows
    ]
    title = "<h3>Mean of sources, accuracy %</h3>"
    note = paragraph(average_note(study, groups), "facts")
    drawn = "".join(figure(each) for each in mean_figures(study, groups))
    return f"<div class='means'>{title}{table(columns, entries)}{note}{drawn}</div>"


def _titled(row: Row) -> Cell:
    mark = row_mark(row)
    flag = f" <span class='flag'>{mark}</span>" if mark else ""
    return Cell(f"{escape(row.label)}{flag}", row.label)


def _mean_entry(study: Study, group: Group) -> Entry:
    cells = tuple(_mean_cell(group.average(row.label)) for row in study.outline.rows)
    return Entry(Cell(escape(group.title), group.title), cells, "mean")


def _mean_cell(average: Average) -> Cell:
    if average.mean is None:
        return Cell(f"<small>{average_text(average)}</small>", css="reason")
    return Cell(average_text(average), average.mean)


def missing_table(study: Study) -> str:
    """The sources that are not there, and what would bring them."""
    if not study.missing:
        return ""
    columns = [Column("not there", rises=True), Column("why")]
    return table(columns, [missing_entry(source, 1) for source in study.missing], "missing")


def missing_entry(source: Source, columns: int) -> Entry:
    """A source that is not there, as a row."""
    why = Cell(folded("missing", escape(source.missing or "")), css="reason", span=columns)
    return Entry(Cell(escape(source.name), source.name), (why,), "absent")


def _source_entry(shown: Table) -> Entry:
    cells = []
    for line in shown.lines:
        spread, gain = spread_cell(line.accuracy, digits=2), line.to_zero_shot
        if spread is None:
            cells.append(missing_cell(line))
            continue
        more = "" if gain is None else f"<br><small>{marked_gain(gain)}</small>"
        more += incomplete_mark(line)
        cells.append(Cell(spread.html + more, spread.value, "best" if line.best else ""))
    name = escape(shown.source.name) + flags(shown.source)
    return Entry(Cell(name, shown.source.name), tuple(cells))
