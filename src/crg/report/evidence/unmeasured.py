"""Numbers of papers for sources that are not there: what is said above, in and below a table."""

from __future__ import annotations

from collections.abc import Sequence

from crg.report.evidence.cells import NOTHING
from crg.report.evidence.full_sheets import Sheet, SheetRow
from crg.report.evidence.study import PrintedCell, PrintedTable, Study


def title_of(table: PrintedTable) -> str:
    """What the table is called."""
    return f"What papers print, {table.model}"


def introduction(table: PrintedTable) -> str:
    """What must be known before it is read."""
    sources = _sources(table)
    read = f" The numbers are from {sources[0]}." if len(sources) == 1 else ""
    return f"Nothing here was measured: these datasets are not there.{read}"


def remarks_of(table: PrintedTable) -> list[str]:
    """What speaks against believing or comparing its numbers, each once."""
    found: dict[str, None] = {}
    for cell in table.cells:
        found |= dict.fromkeys(_remarks(cell, names_source=len(_sources(table)) > 1))
    return list(found)


def cell_text(cell: PrintedCell) -> str:
    """The number as printed."""
    if cell.reported is None:
        return "not at hand" if cell.said else NOTHING
    return f"{cell.reported.value:.2f}"


def marks_of(cell: PrintedCell, remarks: Sequence[str]) -> list[int]:
    """Which of the remarks below the table concern the number, in their order."""
    own = _remarks(cell, names_source=True)
    return [number for number, each in enumerate(remarks, start=1) if each in own]


def printed_sheets(study: Study) -> list[Sheet]:
    """The tables as text."""
    return [_sheet(table) for table in study.printed]


def _sheet(table: PrintedTable) -> Sheet:
    remarks = remarks_of(table)
    rows = (
        SheetRow((method, *(_marked(cell, remarks) for cell in cells)))
        for method, cells in table.rows.items()
    )
    return Sheet(
        title=title_of(table),
        facts=(introduction(table),),
        columns=("row", *table.datasets),
        rows=tuple(rows),
        notes=tuple(f"[{number}] {remark}" for number, remark in enumerate(remarks, start=1)),
    )


def _marked(cell: PrintedCell, remarks: Sequence[str]) -> str:
    marks = ", ".join(map(str, marks_of(cell, remarks)))
    return f"{cell_text(cell)} [{marks}]" if marks else cell_text(cell)


def _remarks(cell: PrintedCell, names_source: bool) -> tuple[str, ...]:
    if cell.reported is None:
        return cell.said
    source = (f"From {cell.reported.source}.",) if names_source else ()
    return (*source, *cell.reported.notes, *cell.said)


def _sources(table: PrintedTable) -> list[str]:
    return list(dict.fromkeys(cell.reported.source for cell in table.cells if cell.reported))
