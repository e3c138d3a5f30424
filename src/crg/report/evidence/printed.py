"""What papers print for a row, and what they say where the number is not available."""

from __future__ import annotations

from collections.abc import Iterable

from crg.evaluate import BASELINE
from crg.report.evidence.study import PrintedCell, PrintedTable
from crg.results.outline import Outline, Row, Source
from crg.results.papers import AVERAGE, Papers, Reported

_ONE_PROMPT = "zero_shot_one_prompt"


def printed_for(papers: Papers, outline: Outline, source: Source, row: Row) -> Reported | None:
    """The number in the papers for this row on these images with this model, if there is one."""
    if not outline.reported or source.model is None:
        return None
    found = (
        papers.number(outline.reported, source.model, source.dataset, name)
        for name in _names(source, row)
    )
    return next((each for each in found if each is not None), None)


def said_of(papers: Papers, outline: Outline, source: Source, row: Row) -> tuple[str, ...]:
    """Statements about this row on these images with this model."""
    if not outline.reported or source.model is None:
        return ()
    found = (
        statement
        for name in _names(source, row)
        for statement in papers.stated(outline.reported, source.model, source.dataset, name)
    )
    return tuple(dict.fromkeys(found))


def printed_tables(
    outline: Outline, missing: Iterable[Source], papers: Papers
) -> tuple[PrintedTable, ...]:
    """What papers print for sources that are not there, a table per model."""
    datasets: dict[str, list[str]] = {}
    for source in missing:
        if outline.reported and source.model is not None:
            datasets.setdefault(source.model, []).append(source.dataset)
    tables = (_printed_table(outline, model, each, papers) for model, each in datasets.items())
    return tuple(table for table in tables if table.rows)


def _printed_table(
    outline: Outline, model: str, datasets: list[str], papers: Papers
) -> PrintedTable:
    columns = (*datasets, AVERAGE)
    rows = {
        method: tuple(
            PrintedCell(papers.number(*entry, method), papers.stated(*entry, method))
            for entry in ((outline.reported, model, column) for column in columns)
        )
        for method in papers.methods(outline.reported, model)
    }
    told = {name: row for name, row in rows.items() if any(c.reported or c.said for c in row)}
    return PrintedTable(model, columns, told)


def _names(source: Source, row: Row) -> tuple[str, ...]:
    """What the row may be called there: by its label, or by its method as it comes.

    Papers print what they tuned per dataset, so a tuned row has the number of its method too.
    """
    if row.method == BASELINE and not row.options and len(source.prompts) == 1:
        return (row.label, _ONE_PROMPT) if row.label != BASELINE else (_ONE_PROMPT,)
    as_it_comes = not row.options or row.tuned
    return tuple(dict.fromkeys((row.label, row.method))) if as_it_comes else (row.label,)
