"""Sentences about who is better, and how often: plain tables and rows that use labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from crg.report.evidence.study import Contrast, Line, Study, Table
from crg.report.evidence.wording import (
    above_or_below,
    bracket,
    called,
    counted,
    listing,
    measured,
    named,
    number,
    per_cent,
    points,
    quoted,
)

Tables = Sequence[Table]


def table_on_source(study: Study, tables: Tables) -> list[str]:
    """Who is highest, by how much, and who is worse than zero-shot, in each setting."""
    return [sentence for table in tables for sentence in _on_table(table, len(tables) > 1)]


def table_overall(study: Study) -> list[str]:
    """How often each row was judged better and worse than zero-shot."""
    place = "table" if len(study.outline.settings) > 1 else "source"
    words = _per_row(study, lambda line: line.to_zero_shot, place)
    return [f"Against zero-shot: {'; '.join(words)}."] if words else []


def labels_on_source(study: Study, tables: Tables) -> list[str]:
    """What rows that use labels have over the best one that uses none."""
    said: list[str] = []
    for table in tables:
        lines = [(line, line.to_label_free) for line in measured(table.lines)]
        words = [f"{called(line.row)} is {above_or_below(c)}" for line, c in lines if c is not None]
        if words:
            where = f"On {named(table.source)}"
            said.append(f"{where}, rows that use labels: {'; '.join(words)}.")
    return said or table_on_source(study, tables)


def labels_overall(study: Study) -> list[str]:
    """How often rows that use labels were judged better than the best one that uses none."""
    pairs: dict[tuple[str, str], list[Contrast]] = {}
    for table in study.tables:
        for line in table.lines:
            if line.to_label_free is not None:
                pair = (line.row.label, line.to_label_free.against)
                pairs.setdefault(pair, []).append(line.to_label_free)
    words = [
        f"{quoted(row)} against {quoted(free)} {counted(found)}"
        for (row, free), found in pairs.items()
    ]
    return [f"Rows that use labels: {'; '.join(words)}."] if words else table_overall(study)


def worse_than_zero_shot(lines: Iterable[Line]) -> list[str]:
    """A sentence that names the rows that are, if any."""
    worse = [
        f"{called(line.row)} by {points(line.to_zero_shot.interval.mean)} "
        f"{bracket(line.to_zero_shot, turned=True)}"
        for line in lines
        if line.to_zero_shot is not None and line.to_zero_shot.verdict == "worse"
    ]
    return [f"Worse than zero-shot: {listing(worse)}."] if worse else []


def _on_table(table: Table, names_setting: bool) -> list[str]:
    lines = measured(table.lines)
    best = [line for line in lines if line.best]
    where = f"On {named(table.source)}" + (f", {table.setting.label}" if names_setting else "")
    if not best:
        return [f"{where}, no row without labels was measured in all orders."]
    printed = [
        f"For {called(line.row)} papers print {line.reported.value:.2f}%"
        f"{', with reservations that stand in the table' if line.reported.notes else ''}."
        for line in best
        if line.reported is not None
    ]
    return [highest(where, lines), *worse_than_zero_shot(lines), *printed]


def highest(where: str, lines: Sequence[Line]) -> str:
    """The rows that are best, of which there must be one, and what they have over others."""
    best = [line for line in lines if line.best]
    verb = "is" if len(best) == 1 else "are"
    among = " of the rows without labels" if any(line.row.uses_labels for line in lines) else ""
    names = listing(called(line.row) for line in best)
    accuracy = best[0].accuracy
    assert accuracy is not None
    if len(best) > 1:  # the spread is each row's own, and not named for all of them
        return f"{where}, {names} {verb} highest{among} with {number(accuracy.mean)}%."
    sentence = f"{where}, {names} {verb} highest{among} with {per_cent(accuracy)}"
    known = (best[0].to_zero_shot, best[0].to_best_rival)
    gains = [above_or_below(contrast) for contrast in known if contrast is not None]
    return f"{sentence}: {listing(gains)}." if gains else f"{sentence}."


def _per_row(study: Study, pick: Callable[[Line], Contrast | None], place: str) -> list[str]:
    words: list[str] = []
    for row in study.outline.rows:
        found = (pick(table.line(row.label)) for table in study.tables)
        known = [contrast for contrast in found if contrast is not None]
        if known:
            words.append(f"{called(row)} {counted(known, place)}")
    return words
