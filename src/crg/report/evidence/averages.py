"""Means over sources: plain ones, without interval or verdict, because sources are no sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crg.evaluate import BASELINE
from crg.report.evidence.stepping import shown_setting
from crg.report.evidence.study import Line, Study, Table
from crg.report.evidence.wording import called, listing, many, number, text_flag
from crg.results.outline import Setting

TITLE = "mean of sources"


@dataclass(frozen=True)
class Average:
    """The mean accuracy of a row over sources, or None where some of these lack the row."""

    mean: float | None
    n_complete: int
    n_sources: int


@dataclass(frozen=True)
class Group:
    """Tables that a mean is taken over, each of another source and all in the same setting."""

    title: str
    tables: tuple[Table, ...]

    def average(self, label: str) -> Average:
        """The mean of a row; one that lacks a source would be a mean of easier or harder ones."""
        lines = [table.line(label) for table in self.tables]
        known = [found for line in lines if (found := _complete(line)) is not None]
        is_whole = bool(lines) and len(known) == len(lines)
        mean = sum(known) / len(known) if is_whole else None
        return Average(mean, len(known), len(lines))


def _complete(line: Line) -> float | None:
    whole = line.status == "measured" and line.accuracy is not None
    return line.accuracy.mean if whole and line.accuracy is not None else None


def groups_of(study: Study) -> list[Group]:
    """Of an experiment with one setting: the sources of each model, then all of them."""
    tables = _averaged(study, study.outline.settings[0])
    if len(tables) < 2:
        return []
    models: dict[str, list[Table]] = {}
    for table in tables:
        if table.source.model:
            models.setdefault(table.source.model, []).append(table)
    parts = [
        Group(f"{TITLE}, {model}", tuple(own))
        for model, own in models.items()
        if 1 < len(own) < len(tables)
    ]
    return [*parts, Group(TITLE, tables)]


def settings_groups(study: Study) -> list[Group]:
    """Of an experiment with several settings: all sources of each, where there are two or more."""
    groups = (Group(each.label, _averaged(study, each)) for each in study.outline.settings)
    return [group for group in groups if len(group.tables) > 1]


def _averaged(study: Study, setting: Setting) -> tuple[Table, ...]:
    """Sequences of several files are left out: their images are those of other sources."""
    return tuple(
        table
        for table in study.tables
        if table.setting.label == setting.label and not table.source.then
    )


def average_text(average: Average) -> str:
    """The mean in %, or on how many sources the row is complete.

    >>> average_text(Average(0.5, 3, 3)), average_text(Average(None, 2, 3))
    ('50.00', 'on 2 of 3 sources')
    """
    if average.mean is not None:
        return number(average.mean)
    return f"on {average.n_complete} of {many(average.n_sources, 'source')}"


def average_note(study: Study, groups: Sequence[Group]) -> str:
    """What a mean over sources is, and what it is not."""
    sources = {table.source.name: table.source for group in groups for table in group.tables}
    if not sources:
        return ""
    flags = list(dict.fromkeys(filter(None, map(text_flag, sources.values()))))
    count = sum(bool(text_flag(source)) for source in sources.values())
    among = f"; among them {_are(count)} with {listing(flags)}" if flags else ""
    sequences = any(table.source.then for table in study.tables)
    return (
        f"Means over sources are of {many(len(sources), 'source')}, each counted once{among}. They "
        "are given for rows that are complete on every one of these, and have no interval and no "
        "verdict, because sources are no sample of anything."
        + (" Sequences of several files, which repeat others, are left out." if sequences else "")
    )


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"


def means_caption(study: Study, groups: Sequence[Group]) -> str:
    """Who ends highest and lowest on average, and how many end below zero-shot."""
    last = groups[-1]
    means = {row.label: last.average(row.label).mean for row in study.outline.rows}
    rows = [row for row in study.outline.rows if row.method != BASELINE]
    known = {called(row): mean for row in rows if (mean := means[row.label]) is not None}
    where = f"Mean of {many(len(last.tables), 'source')}, at {shown_setting(study.outline, -1)}"
    if not known:
        return f"{where}: no row but zero-shot is complete on every one."
    ranked = sorted(known, key=lambda name: known[name])
    said = f"{ranked[-1]} is highest with {number(known[ranked[-1]])}%"
    if len(ranked) > 1:
        said += f" and {ranked[0]} lowest with {number(known[ranked[0]])}%"
    base = next((means[row.label] for row in study.outline.rows if row.method == BASELINE), None)
    if base is None:
        return f"{where}: {said}."
    below = sum(mean < base for mean in known.values())
    verb = "is" if below == 1 else "are"
    return (
        f"{where}: {said}; {below} of {many(len(known), 'row')} {verb} below zero-shot "
        f"({number(base)}%). Sources are no sample, so there is no interval."
    )
