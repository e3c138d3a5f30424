"""Sentences about what changes from one row or setting to the next: ablations and noise."""

from __future__ import annotations

from collections.abc import Sequence

from crg.evaluate import BASELINE
from crg.report.evidence.study import Contrast, Line, Study, Table
from crg.report.evidence.wording import (
    above_or_below,
    bracket,
    called,
    counted,
    listing,
    many,
    mean_of,
    measured,
    named,
    per_cent,
    points,
    quoted,
    signed,
)
from crg.results.outline import Outline, Source

Tables = Sequence[Table]


def steps_on_source(study: Study, tables: Tables) -> list[str]:
    """Where the first row stands, and what each further one adds to the row most like it."""
    said: list[str] = []
    for table in tables:
        lines = [line for line in measured(table.lines) if line.row.method != BASELINE]
        where = f"On {named(table.source)}"
        said += [f"{where}, {_standing(line)}." for line in lines[:1]]
        words = [step(line, line.to_like) for line in lines if line.to_like is not None]
        said += [f"Then {'; '.join(words)}."] if words else []
    return said


def _standing(line: Line) -> str:
    assert line.accuracy is not None
    words = f"{called(line.row)} reaches {per_cent(line.accuracy)}"
    return words if line.to_zero_shot is None else f"{words}, {above_or_below(line.to_zero_shot)}"


def step(line: Line, contrast: Contrast) -> str:
    """What a row adds to the row most like it, or takes from it."""
    if len(line.unlike) > 1:  # another row rather than one step further
        return f"{called(line.row)} is {above_or_below(contrast)}"
    lower = contrast.interval.mean < 0
    size, interval = points(contrast.interval.mean), bracket(contrast, turned=lower)
    if lower:
        return f"{called(line.row)} takes {size} from {quoted(contrast.against)} {interval}"
    return f"{called(line.row)} adds {size} to {quoted(contrast.against)} {interval}"


def steps_overall(study: Study) -> list[str]:
    """What each row adds on average, and how often that was judged how."""
    steps: dict[tuple[str, str], list[Contrast]] = {}
    for table in study.tables:
        for line in table.lines:
            if line.to_like is not None:
                steps.setdefault((line.row.label, line.to_like.against), []).append(line.to_like)
    return [
        f"{quoted(label)} against {quoted(against)}: {signed(mean_of(found))} points on average; "
        f"it {counted(found)}."
        for (label, against), found in steps.items()
    ]


def noise_on_source(study: Study, tables: Tables) -> list[str]:
    """What each row loses from the first setting to the last, and who loses less than whom."""
    last = tables[-1]
    lines = [line for line in measured(last.lines) if line.to_first_setting is not None]
    moving = [line for line in lines if line.row.method != BASELINE]
    if not moving:
        return [f"On {named(last.source)} no row was measured in both the first and the last."]
    words = [moved_in_words(line) for line in moving]
    said = [f"On {named(last.source)}, {_span(study.outline)}, {', '.join(words)}."]
    pairs = [loss_against(line, other) for line, other in _pairs(moving)]
    said += [f"Against each other: {'; '.join(pairs)}."] if pairs else []
    below = [_below(line) for line in moving if line.to_zero_shot and _is_below(line)]
    end = shown_setting(study.outline, -1)
    return said + ([f"At {end}, below zero-shot: {listing(below)}."] if below else [])


def _span(outline: Outline) -> str:
    return f"from {shown_setting(outline, 0)} to {shown_setting(outline, -1)}"


def shown_setting(outline: Outline, place: int) -> str:
    """The label of a setting, with what it counts where it is a bare number."""
    label = outline.settings[place].label
    bare = label.replace(".", "", 1).rstrip("% ").isdigit()
    return f"{outline.x_title} = {label}" if bare and outline.x_title else label


def moved_in_words(line: Line) -> str:
    """What a row has lost or gained since the first setting, in which it must have been."""
    assert line.to_first_setting is not None
    return _loss(line, line.to_first_setting)


def _loss(line: Line, contrast: Contrast) -> str:
    lower = contrast.interval.mean < 0
    verb = "loses" if lower else "gains"
    return f"{called(line.row)} {verb} {points(contrast.interval.mean)} {bracket(contrast, lower)}"


def _is_below(line: Line) -> bool:
    return line.to_zero_shot is not None and line.to_zero_shot.interval.mean < 0


def _below(line: Line) -> str:
    assert line.to_zero_shot is not None
    size = points(line.to_zero_shot.interval.mean)
    return f"{called(line.row)} by {size} {bracket(line.to_zero_shot, turned=True)}"


def _pairs(lines: Sequence[Line]) -> list[tuple[Line, Contrast]]:
    """The row that loses least against the one that loses most, and each against its own kind."""
    ranked = sorted(lines, key=_moved)
    wanted = [(ranked[-1].row.label, ranked[0].row.label)] if len(ranked) > 1 else []
    wanted += [(line.row.label, other) for line in lines if (other := held_against(line))]
    once = {frozenset(pair): pair for pair in reversed(wanted)}
    known = {line.row.label: line for line in lines}
    return [
        (known[label], known[label].change_to[other])
        for label, other in reversed(once.values())
        if other in known[label].change_to
    ]


def held_against(line: Line) -> str:
    """The label of the row that its loss is held against: the one named, or the one most like."""
    like = "" if line.to_like is None else line.to_like.against
    return line.row.against or like


def _moved(line: Line) -> float:
    assert line.to_first_setting is not None
    return line.to_first_setting.interval.mean


def loss_against(line: Line, contrast: Contrast) -> str:
    """How much less or more a row loses than another."""
    more = contrast.interval.mean < 0
    word = "more" if more else "less"
    size = points(contrast.interval.mean)
    interval = bracket(contrast, turned=more)
    return f"{called(line.row)} loses {size} {word} than {quoted(contrast.against)} {interval}"


def noise_overall(study: Study) -> list[str]:
    """The mean loss of each row over sources, and how often it lost less than its own kind."""
    placed = [(t.source, line) for t in study.tables for line in t.lines if line.change_to]
    losses: dict[str, list[float]] = {}
    pairs: dict[tuple[str, str], list[tuple[Source, Contrast]]] = {}
    for source, line in placed:
        losses.setdefault(line.row.label, []).append(_moved(line))
        other = held_against(line)
        if other in line.change_to:
            pairs.setdefault((line.row.label, other), []).append((source, line.change_to[other]))
    words = [f"{quoted(label)} {signed(sum(each) / len(each))}" for label, each in losses.items()]
    if not words:
        return []
    n_sources = many(max(map(len, losses.values())), "source")
    mean = f"mean change in points over {n_sources}: {listing(words)}."
    return [
        f"{_span(study.outline).capitalize()}, {mean}",
        *(_held_against_all(*pair, found) for pair, found in pairs.items()),
    ]


def _held_against_all(label: str, other: str, placed: Sequence[tuple[Source, Contrast]]) -> str:
    """How often it was judged how, and the mean difference with the sources at both ends of it."""
    found = [contrast for _, contrast in placed]
    ranked = sorted(placed, key=lambda each: each[1].interval.mean)
    ends = [
        f"{signed(contrast.interval.mean)} on {named(source)}"
        for source, contrast in (ranked[0], ranked[-1])
    ]
    spread = f", from {' to '.join(ends)}" if len(ranked) > 1 else ""
    return (
        f"In what is lost, {quoted(label)} against {quoted(other)} {counted(found)}; "
        f"mean difference {signed(mean_of(found))} points{spread}."
    )
