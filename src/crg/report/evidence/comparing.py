"""Sentences about who is better, about one method with different numbers, and about caches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from crg.evaluate import BASELINE
from crg.report.evidence.study import Contrast, Line, Study, Table
from crg.report.evidence.wording import (
    above_or_below,
    bracket,
    called,
    counted,
    listing,
    many,
    measured,
    named,
    number,
    per_cent,
    points,
    quoted,
    shortened,
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


@dataclass(frozen=True)
class _Range:
    """How far the numbers move accuracy, beside how far the order does; ends may be shared."""

    lowest: tuple[Line, ...]
    highest: tuple[Line, ...]
    size: float
    largest_std: float | None

    @property
    def exceeds_spread(self) -> bool:
        return self.largest_std is not None and self.size > self.largest_std


def range_on_source(study: Study, tables: Tables) -> list[str]:
    """The range of accuracy over the numbers, and whether it is more than the order makes."""
    said: list[str] = []
    for table in tables:
        found = _range(table)
        if found is None:
            said.append(f"On {named(table.source)} there are no two rows to compare.")
            continue
        if found.size == 0:
            words = f"{number(_accuracy(found.lowest[0]))}% for every value"
            said.append(f"On {named(table.source)}, accuracy is {words}.")
            continue
        said.append(f"On {named(table.source)}, accuracy goes from {_ends(found)}{_beside(found)}.")
        said += _between(found)
    return said


def _between(found: _Range) -> list[str]:
    """An interval of the range; of rows that share an end, the first one stands for all."""
    lowest, tops = found.lowest[0], {line.row.label: line for line in found.highest}
    contrast = lowest.to_best_rival
    if contrast is None or contrast.against not in tops:
        return []
    highest = tops[contrast.against]
    return [
        f"{called(highest.row)} against {called(lowest.row)}: "
        f"{points(contrast.interval.mean)} {bracket(contrast, turned=True)}."
    ]


def range_overall(study: Study) -> list[str]:
    """The widest range, how often it is more than the order makes, and which value is highest."""
    known = [(table, found) for table in study.tables if (found := _range(table)) is not None]
    if not known:
        return []
    table, widest = max(known, key=lambda each: each[1].size)
    wider = sum(found.exceeds_spread for _, found in known)
    return [
        f"Over the values accuracy moves by at most {points(widest.size)} "
        f"(on {named(table.source)}); it moves by more than the standard deviation over orders "
        f"on {wider} of {many(len(known), 'source')}.",
        _highest([found.highest for _, found in known]),
    ]


def _highest(tops: Sequence[Sequence[Line]]) -> str:
    """How often each value is highest; where several tie, it is counted for each of them."""
    counts = Counter(quoted(line.row.label) for top in tops for line in top)
    ties = " (ties are counted for each)" if any(len(top) > 1 for top in tops) else ""
    least = 2 if max(counts.values()) > 1 else 1
    often = {label: count for label, count in counts.most_common() if count >= least}
    said = f"Highest{ties}: {listing(f'{label} on {count}' for label, count in often.items())}"
    rest = len(counts) - len(often)
    each = " each" if rest > 1 else ""
    return f"{said}; {many(rest, 'other')} on 1{each}." if rest else f"{said}."


def _range(table: Table) -> _Range | None:
    lines = [line for line in measured(table.lines) if line.row.method != BASELINE]
    if not lines:
        return None
    method = Counter(line.row.method for line in lines).most_common(1)[0][0]
    ranked = sorted((line for line in lines if line.row.method == method), key=_accuracy)
    if len(ranked) < 2:
        return None
    stds = [line.accuracy.std for line in ranked if line.accuracy and line.accuracy.std is not None]
    low, high = _accuracy(ranked[0]), _accuracy(ranked[-1])
    lowest, highest = (
        tuple(line for line in ranked if math.isclose(_accuracy(line), end, abs_tol=1e-12))
        for end in (low, high)
    )
    size = high - low if len(lowest) < len(ranked) else 0.0
    return _Range(lowest, highest, size, max(stds, default=None))


def _accuracy(line: Line) -> float:
    assert line.accuracy is not None
    return line.accuracy.mean


def _ends(found: _Range) -> str:
    low, high = _accuracy(found.lowest[0]), _accuracy(found.highest[0])
    return (
        f"{number(low)}% ({_sharing(found.lowest)}) to {number(high)}% "
        f"({_sharing(found.highest)}), a range of {points(found.size)}"
    )


def _sharing(lines: Sequence[Line]) -> str:
    """The rows at one end of the range."""
    return shortened([called(line.row) for line in lines])


def _beside(found: _Range) -> str:
    if found.largest_std is None:
        return ", beside which a single order reports no spread"
    more = "more" if found.exceeds_spread else "no more"
    return (
        f", which is {more} than the spread over orders: "
        f"their standard deviation is at most {points(found.largest_std)}"
    )


def error_on_source(study: Study, tables: Tables) -> list[str]:
    """How much of each cache is wrong at the end, and where it was most."""
    said: list[str] = []
    for table in tables:
        words = [_error(line) for line in table.lines if line.purity is not None]
        if words:
            where = f"On {named(table.source)}"
            said.append(f"{where}, cached under a wrong class at the end: {'; '.join(words)}.")
    return said or [f"On {named(tables[0].source)} no row kept a cache."]


def _error(line: Line) -> str:
    assert line.purity is not None
    spread = "" if line.purity.std is None else f" ± {number(line.purity.std)}"
    words = f"{called(line.row)} {number(1 - line.purity.mean)}{spread}%"
    if not line.purity_over_time:
        return words
    peak = min(line.purity_over_time, key=lambda point: point.mean)
    if peak.x == line.purity_over_time[-1].x:
        return f"{words}, its highest"
    return f"{words}, at its highest {number(1 - peak.mean)}% after {peak.x:.0f} images"


def error_overall(study: Study) -> list[str]:
    """The least and the most that is wrong at the end, over all sources."""
    words: list[str] = []
    for row in study.outline.rows:
        found = (table.line(row.label).purity for table in study.tables)
        errors = sorted(1 - purity.mean for purity in found if purity is not None)
        if errors:
            ends = f"{number(errors[0])}% to {number(errors[-1])}%"
            words.append(f"{called(row)} {ends} on {many(len(errors), 'source')}")
    return [f"Cached under a wrong class at the end: {'; '.join(words)}."] if words else []
