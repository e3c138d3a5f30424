"""Captions: the two or three facts that tell most of a figure; the rest stands in its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from crg.evaluate import BASELINE
from crg.report.evidence import (
    comparing,
    streaming,
)
from crg.report.evidence.stepping import (
    held_against,
    loss_against,
    moved_in_words,
    shown_setting,
    step,
)
from crg.report.evidence.study import Contrast, Line, Study, Table
from crg.report.evidence.wording import (
    above_or_below,
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


def caption(study: Study, source_name: str) -> str:
    """What the figure of one source shows; plain text."""
    tables = study.tables_of(source_name)
    if not any(line.accuracy is not None for table in tables for line in table.lines):
        return f"On {quoted(source_name)} no accuracy was measured."
    return " ".join(_CAPTIONS.get(study.outline.figure, _gains)(study, tables))


def loss_caption(study: Study, source_name: str) -> str:
    """Who loses most and least from the first setting to the last, and one contrast of interest."""
    last = study.tables_of(source_name)[-1]
    lines = [line for line in _rows(last) if line.to_first_setting is not None]
    if not lines:
        return ""
    ranked = sorted(lines, key=lambda line: _mean(line.to_first_setting))
    said = f"At {shown_setting(study.outline, -1)}, {moved_in_words(ranked[0])}"
    if len(ranked) == 1:
        return f"{said}."
    said += f", the most; {moved_in_words(ranked[-1])}, the least."
    pairs = [(line, line.change_to.get(held_against(line))) for line in lines]
    pairs.sort(key=lambda pair: not pair[0].row.against)  # what the experiment asks for goes first
    told = [loss_against(line, contrast) for line, contrast in pairs if contrast is not None]
    return f"{said} {told[0]}." if told else said


def _gains(study: Study, tables: Tables) -> list[str]:
    """Who is highest, and how many are worse than zero-shot."""
    lines, where = measured(tables[0].lines), f"On {named(tables[0].source)}"
    if not any(line.best for line in lines):
        return [f"{where}, no row without labels was measured in all orders."]
    worse = [line for line in lines if line.to_zero_shot and line.to_zero_shot.verdict == "worse"]
    if not worse:
        return [comparing.highest(where, lines)]
    lowest = min(worse, key=lambda line: _mean(line.to_zero_shot))
    assert lowest.to_zero_shot is not None
    verb = "is" if len(worse) == 1 else "are"
    said = f"{many(len(worse), 'row')} {verb} worse than zero-shot, {called(lowest.row)} by "
    said += f"{points(_mean(lowest.to_zero_shot))} {bracket(lowest.to_zero_shot, turned=True)}"
    return [comparing.highest(where, lines), f"{said}{'' if len(worse) == 1 else ', the most'}."]


def _steps(study: Study, tables: Tables) -> list[str]:
    """The highest row, and the step that adds most and the one that adds least or takes most."""
    said = _gains(study, tables)[:1]
    rows = _rows(tables[0])
    steps = [(line, line.to_like) for line in rows if line.to_like and len(line.unlike) < 2]
    steps += [(line, line.to_zero_shot) for line in rows[:1] if line.to_zero_shot]
    ranked = sorted(steps, key=lambda each: _mean(each[1]))
    if len(ranked) < 2:
        return [*said, *(f"The one step: {step(*each)}." for each in ranked)]
    ends = f"{step(*ranked[-1])}; {step(*ranked[0])}"
    return [*said, f"Of {len(ranked)} steps, the highest and the lowest: {ends}."]


def _noise(study: Study, tables: Tables) -> list[str]:
    """Who ends highest and lowest, and how many end below zero-shot."""
    last, lines = tables[-1], _rows(tables[-1])
    if not lines:
        return [f"On {named(last.source)} no row but zero-shot was measured."]
    where = f"On {named(last.source)}, at {shown_setting(study.outline, -1)}"
    below = [line for line in lines if line.to_zero_shot and line.to_zero_shot.verdict == "worse"]
    end = f"{len(below)} of {many(len(lines), 'row')} {'is' if len(below) == 1 else 'are'}"
    return [f"{where}, {_ends(lines)}; {end} worse than zero-shot there."]


def _ends(lines: Sequence[Line]) -> str:
    ranked = sorted(lines, key=_accuracy)
    top = f"{called(ranked[-1].row)} is highest with {number(_accuracy(ranked[-1]))}%"
    low = f"{called(ranked[0].row)} lowest with {number(_accuracy(ranked[0]))}%"
    return f"{top} and {low}" if len(ranked) > 1 else top


def _worst(study: Study, tables: Tables) -> list[str]:
    """Who falls deepest, who least, and who never falls below zero-shot."""
    where = f"On {named(tables[0].source)}"
    worst: dict[str, tuple[Table, Contrast]] = {}
    for row in study.outline.rows:
        placed = streaming.placed_gains(tables, row.label)
        if placed:
            worst[called(row)] = min(placed, key=lambda each: _mean(each[1]))
    if not worst:
        return [f"{where} no stream can be judged.", *streaming.left_out(tables, False)]
    ranked = sorted(worst, key=lambda name: _mean(worst[name][1]))
    ends = dict.fromkeys((ranked[0], ranked[-1]))
    words = [f"{name} is {_placed(*worst[name])}" for name in ends]
    never = sum(_mean(contrast) >= 0 for _, contrast in worst.values())
    count = f"{never} of {many(len(worst), 'row')} never {'falls' if never == 1 else 'fall'}"
    said = f"{where}, at their worst, {' and '.join(words)}; {count} below zero-shot."
    return [said, *_shifted(study, tables), *streaming.left_out(tables, False)]


def _shifted(study: Study, tables: Tables) -> list[str]:
    """How many rows are worse than in the first setting, and which is the most."""
    rows = {called(row): streaming.placed_shifts(tables, row.label) for row in study.outline.rows}
    known = {name: placed for name, placed in rows.items() if placed}
    if not known:
        return []
    worse = [
        (name, *each) for name, placed in known.items() for each in placed
        if each[1].verdict == "worse"
    ]  # fmt: skip
    against = f"Against their gain over zero-shot in {quoted(study.outline.settings[0].label)}"
    if not worse:
        return [f"{against}, no row is judged worse in any stream."]
    name, table, contrast = min(worse, key=lambda each: _mean(each[2]))
    count, total = len({each[0] for each in worse}), many(len(known), "row")
    size = f"{points(_mean(contrast))} {bracket(contrast, turned=True)}"
    verb = "is" if count == 1 else "are"
    most = "" if len(worse) == 1 else ", the most"
    return [
        f"{against}, {count} of {total} {verb} worse in some stream: {name} by {size} in the "
        f"stream '{table.setting.label}'{most}."
    ]


def _placed(table: Table, contrast: Contrast) -> str:
    return f"{above_or_below(contrast)} in the stream '{table.setting.label}'"


def _start(study: Study, tables: Tables) -> list[str]:
    """Who is better than zero-shot soonest, and who is worse at first."""
    lines = [line for line in _rows(tables[0]) if line.first_gain]
    where = f"On {named(tables[0].source)}"
    if not lines:
        return [streaming.nothing_told(tables[0])]
    since = {called(line.row): streaming.better_from(line) for line in lines}
    known = {name: count for name, count in since.items() if count is not None}
    soonest = [name for name, count in known.items() if count == min(known.values())]
    if soonest:
        verb = "is" if len(soonest) == 1 else "are"
        said = f"{where}, {listing(soonest)} {verb} better than zero-shot soonest: from the first "
        said += f"{min(known.values())} images on."
    else:
        said = f"{where}, {_never_from_the_first(lines)}."
    first = min(min(line.first_gain) for line in lines)
    worse = [called(line.row) for line in lines
             if first in line.first_gain and line.first_gain[first].verdict == "worse"]  # fmt: skip
    return [said, f"Worse over the first {first}: {listing(worse)}."] if worse else [said]


def _never_from_the_first(lines: Sequence[Line]) -> str:
    """That no row is better from one of the numbers on, and which are over the whole stream."""
    numbers = sorted({n for line in lines for n in line.first_gain})
    sizes = listing(map(str, numbers)).replace(" and ", " or ")
    said = f"no row is judged better than zero-shot from the first {sizes} images on"
    whole = [called(line.row) for line in lines if streaming.is_better(line)]
    verb = "is" if len(whole) == 1 else "are"
    return f"{said}; over the whole stream {listing(whole)} {verb}" if whole else said


def _labels(study: Study, tables: Tables) -> list[str]:
    """Which row with labels has most over one without, and which least."""
    lines = [line for line in measured(tables[0].lines) if line.to_label_free is not None]
    if not lines:
        return _gains(study, tables)
    ranked = sorted(lines, key=lambda line: _mean(line.to_label_free))
    ends = dict.fromkeys((ranked[-1].row.label, ranked[0].row.label))
    by_label = {line.row.label: line for line in lines}
    words = [
        f"{called(by_label[label].row)} is {above_or_below(contrast)}"
        for label in ends
        if (contrast := by_label[label].to_label_free) is not None
    ]
    where = f"On {named(tables[0].source)}, of the rows that use labels"
    return [f"{where}, {' and '.join(words)}."]


def _errors(study: Study, tables: Tables) -> list[str]:
    """Which cache ends with the fewest wrong labels, and which with the most."""
    caches = [(called(line.row), line.purity) for line in tables[0].lines if line.purity]
    found = {name: number(1 - purity.mean) for name, purity in caches}
    where = f"On {named(tables[0].source)}"
    if not found:
        return [f"{where} no row kept a cache."]
    where += ", cached under a wrong class at the end"
    ranked = sorted(found.values(), key=float)
    if ranked[0] == ranked[-1]:
        which = "every cache" if len(found) > 1 else f"{next(iter(found))}, the only cache"
        return [f"{where}: {ranked[0]}% in {which}."]
    low, high = (
        f"{shortened([name for name, error in found.items() if error == end])} {end}%"
        for end in (ranked[0], ranked[-1])
    )
    return [f"{where}: fewest {low} and most {high}."]


def _rows(table: Table) -> list[Line]:
    return [line for line in measured(table.lines) if line.row.method != BASELINE]


def _accuracy(line: Line) -> float:
    assert line.accuracy is not None
    return line.accuracy.mean


def _mean(contrast: Contrast | None) -> float:
    assert contrast is not None
    return contrast.interval.mean


_CAPTIONS: Mapping[str, Callable[[Study, Tables], list[str]]] = {
    "purity": _errors,
    "waterfall": _steps,
    "sweep": comparing.range_on_source,
    "heat": comparing.range_on_source,
    "noise": _noise,
    "streams": _worst,
    "cold_start": _start,
    "learning": _start,
    "shots": _labels,
}
