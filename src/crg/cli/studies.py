"""Tables of an experiment for a terminal: accuracy, gain, and what was not run and why."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from crg.evidence import Study, watermark
from crg.evidence.study import Contrast, Line, Spread
from crg.evidence.study import Table as Figures

_NOTHING = "-"
_SHOWN_MISSING = 2  # datasets that are not there: on most machines that is nearly all of them


def study_tables(study: Study) -> Iterator[RenderableType]:
    """A table per source and setting, then what is missing."""
    several = len(study.outline.settings) > 1
    for figures in study.tables:
        setting = f", {figures.setting.label}" if several else ""
        source = figures.source
        title = f"{source.name}{setting}: {source.n_samples} images, {source.n_classes} classes"
        yield Group(Text(title), _table(figures))
    for source in study.missing[:_SHOWN_MISSING]:
        yield Text(f"{source.name}: {source.missing}", style="dim")
    more = len(study.missing) - _SHOWN_MISSING
    if more > 0:
        yield Text(f"{more} more are not there either; --list names them all.", style="dim")


def _table(figures: Figures) -> Table:
    table = Table()
    table.add_column("row", no_wrap=True)
    table.add_column("accuracy %", justify="right", no_wrap=True)
    table.add_column("gain over zero-shot (95% interval)", justify="right", no_wrap=True)
    has_remarks = any(map(_remark, figures.lines))
    if has_remarks:
        table.add_column("remarks")
    for line in figures.lines:
        style = {"failed": "red", "not run": "dim"}.get(line.status, "bold" if line.best else "")
        cells = [line.row.label, _accuracy(line.accuracy), _gain(line.to_zero_shot)]
        cells += [_remark(line)] if has_remarks else []
        table.add_row(*(Text(cell, style=style) for cell in cells))
    return table


def _remark(line: Line) -> str:
    marks = [watermark(line), line.status if line.status != "measured" else "", line.reason]
    return ": ".join(mark for mark in marks if mark)


def _accuracy(spread: Spread | None) -> str:
    if spread is None:
        return _NOTHING
    deviation = "" if spread.std is None else f" ± {100 * spread.std:.2f}"
    return f"{100 * spread.mean:.2f}{deviation}"


def _gain(contrast: Contrast | None) -> str:
    if contrast is None:
        return _NOTHING
    interval = contrast.interval
    low, high = f"{100 * interval.low:+.2f}", f"{100 * interval.high:+.2f}"
    verdict = f" {contrast.verdict}" if contrast.verdict else ""
    return f"{100 * interval.mean:+.2f} [{low}, {high}]{verdict}"
