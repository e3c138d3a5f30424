"""Sentences about rows that are one method with different numbers, and about what caches hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from crg.evaluate import BASELINE
from crg.report.evidence.study import Line, Study, Table
from crg.report.evidence.wording import (
    bracket,
    called,
    listing,
    many,
    measured,
    named,
    number,
    points,
    quoted,
    shortened,
)

Tables = Sequence[Table]


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
