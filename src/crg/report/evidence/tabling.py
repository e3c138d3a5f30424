"""Tables of an experiment: every row against zero-shot, its best rival and its own kind."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from crg.evaluate import BASELINE
from crg.report.evidence import runs
from crg.report.evidence.leading import leading
from crg.report.evidence.lines import Known, judged_row
from crg.report.evidence.pairing import (
    Judged,
    best_rival,
    change,
    contrast,
    different,
    label_free,
    most_like,
    turned,
)
from crg.report.evidence.runs import Answers
from crg.report.evidence.study import Contrast, Line, Spread, Table
from crg.results.outline import Cell, Outline, Source

Tell = Callable[[str], None]
STREAMS = "streams"  # the figure of an experiment whose settings are kinds of stream


def tables_of(known: Known, tell: Tell = lambda what: None) -> tuple[Table, ...]:
    """A table per source that is there and setting that the experiment has there.

    ``tell`` hears what is being looked at.
    """
    outline = known.outline
    cells: dict[tuple[int, int], list[Cell]] = defaultdict(list)
    for cell in outline.cells:
        cells[cell.source, cell.setting].append(cell)
    tables: list[Table] = []
    for place, source in enumerate(outline.sources):
        if source.missing is None:
            tell(f"{outline.name}, {source.name}")
            settings = [each for each in range(len(outline.settings)) if (place, each) in cells]
            rows = [_table_rows(known, source, cells[place, each]) for each in settings]
            tables += [
                Table(
                    source,
                    outline.settings[setting],
                    tuple(each.line for each in table),
                    _scored(known, cells[place, setting]),
                )
                for setting, table in zip(
                    settings, _with_changes(known, rows, 0 in settings), strict=True
                )
            ]
    return tuple(tables)


def _scored(known: Known, cells: Sequence[Cell]) -> Spread | None:
    found = (known.runs.get(cell.key or "") for cell in cells)
    return runs.scored(run for run in found if run is not None)


def settings_are_numbers(outline: Outline) -> bool:
    """Whether settings stand for more and more of one thing, such as noise."""
    return len(outline.settings) > 1 and len(outline.x_values) == len(outline.settings)


def _table_rows(known: Known, source: Source, cells: Sequence[Cell]) -> list[Judged]:
    rows = [
        judged_row(known, source, row, [cell for cell in cells if cell.row == number])
        for number, row in enumerate(known.outline.rows)
    ]
    compared = [
        replace(each, line=_with_rivals(each, rows[:place], rows, known.n_orders))
        for place, each in enumerate(rows)
    ]
    return _with_best(compared)


def _with_rivals(
    mine: Judged, above: Sequence[Judged], rows: Sequence[Judged], n_orders: int
) -> Line:
    line = mine.line
    if mine.answers is None or line.row.method == BASELINE:
        return line

    def against(other: Judged | None) -> Contrast | None:
        if other is None:
            return None
        return contrast(mine.answers, other.answers, other.line.row.label, n_orders)

    like = most_like(mine, above)
    return replace(
        line,
        to_best_rival=against(best_rival(mine, rows)),
        to_like=against(like),
        unlike=() if like is None else different(like.options, mine.options),
        to_label_free=against(label_free(mine, rows)) if line.row.uses_labels else None,
    )


def _with_best(rows: Sequence[Judged]) -> list[Judged]:
    """Mark the highest mean accuracy of complete rows without labels; equal ones share it."""
    top = leading((each.line for each in rows), lambda line: line.accuracy)
    return [
        replace(each, line=replace(each.line, best=each.line.row.label in top)) for each in rows
    ]


def _with_changes(known: Known, tables: list[list[Judged]], has_first: bool) -> list[list[Judged]]:
    """Where settings are numbers or streams, each row against itself in the first of them."""
    are_numbers = settings_are_numbers(known.outline)
    if not (are_numbers or known.outline.figure == STREAMS) or not has_first or len(tables) < 2:
        return tables
    first, *others = tables
    moved = [
        [
            _with_change(later, earlier, known, of_gains=not are_numbers)
            for later, earlier in zip(table, first, strict=True)
        ]
        for table in others
    ]
    if are_numbers:
        moved[-1] = _with_changes_compared(moved[-1], first, known.n_orders)
    return [first, *moved]


def _with_change(later: Judged, earlier: Judged, known: Known, of_gains: bool) -> Judged:
    """``of_gains``: what it has over zero-shot, because another stream may be another task."""
    now, then = (each.gains if of_gains else each.answers for each in (later, earlier))
    moved = contrast(now, then, known.outline.settings[0].label, known.n_orders)
    return replace(later, line=replace(later.line, to_first_setting=moved))


def _with_changes_compared(
    last: Sequence[Judged], first: Sequence[Judged], n_orders: int
) -> list[Judged]:
    """The change of each row from the first setting to the last, against that of the others."""
    changes: dict[str, Answers | None] = {
        later.line.row.label: change(later.answers, earlier.answers)
        for later, earlier in zip(last, first, strict=True)
        if later.line.row.method != BASELINE  # it has nothing that could change
    }

    found: dict[str, dict[str, Contrast]] = {label: {} for label in changes}
    for one, other in itertools.combinations(changes, 2):
        moved = contrast(changes[one], changes[other], other, n_orders)
        if moved is not None:
            found[one][other], found[other][one] = moved, turned(moved, one)
    return [
        replace(each, line=replace(each.line, change_to=found.get(each.line.row.label, {})))
        for each in last
    ]
