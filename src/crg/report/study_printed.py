"""Numbers of papers for sources that are not there, folded away below an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from crg.report.evidence.study import PrintedCell, PrintedTable, Study
from crg.report.evidence.unmeasured import (
    cell_text,
    introduction,
    marks_of,
    remarks_of,
    title_of,
)
from crg.report.markup import Cell, Column, Entry, folded, footnotes, paragraph, table


def printed_part(study: Study) -> str:
    """A table per model; nothing where papers print nothing for what is missing."""
    if not study.printed:
        return ""
    title = "<h3>What papers print for the datasets that are not there</h3>"
    return folded(title, "".join(map(_printed, study.printed)), "source")


def _printed(shown: PrintedTable) -> str:
    remarks = remarks_of(shown)
    columns = [Column("row", rises=True), *(Column(each) for each in shown.datasets)]
    entries = [
        Entry(Cell(escape(method), method), tuple(_cell(cell, remarks) for cell in cells))
        for method, cells in shown.rows.items()
    ]
    heading = f"<h4>{escape(title_of(shown))}</h4>{paragraph(introduction(shown), 'facts')}"
    return heading + table(columns, entries) + footnotes(remarks)


def _cell(cell: PrintedCell, remarks: Sequence[str]) -> Cell:
    marks = ", ".join(map(str, marks_of(cell, remarks)))
    value = None if cell.reported is None else cell.reported.value
    return Cell(cell_text(cell) + (f"<sup>{marks}</sup>" if marks else ""), value)
