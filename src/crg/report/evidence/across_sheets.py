"""Tables over all sources of an experiment, as text: the overview and the means."""

from __future__ import annotations

from crg.report.evidence.averages import (
    TITLE,
    Group,
    average_note,
    average_text,
    groups_of,
    settings_groups,
)
from crg.report.evidence.cells import (
    reasons_in_short,
    row_mark,
    short_contrast_text,
    spread_text,
)
from crg.report.evidence.sheet import Sheet, SheetRow
from crg.report.evidence.study import Line, Study, Table
from crg.report.evidence.wording import many, text_flag
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
