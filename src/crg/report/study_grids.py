"""Tables over several settings or numbers: who stands where, and how far from zero-shot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from crg.report.evidence.cells import once_mark, realised_text, row_mark, scored_text
from crg.report.evidence.leading import first_leading
from crg.report.evidence.study import Contrast, Line, Study, Table
from crg.report.markup import Cell, Column, Entry, Figure, data_link, table
from crg.report.study_captions import heat_caption, settings_caption
from crg.report.study_tables import (
    EMPTY,
    contrast_cell,
    head_cell,
    incomplete_mark,
    missing_cell,
    row_css,
    short_reasons,
    spread_cell,
    state_cell,
    verdict_mark,
    whole_head,
)
from crg.report.wording import contrast_text, in_points, points, span
from crg.results.outline import Setting

_BLUE, _VERMILION = "0,114,178", "213,94,0"
_STRONGEST = 0.5  # opacity at which text on it can still be read in both modes


def settings_table(study: Study, tables: Sequence[Table]) -> str:
    """Rows against settings: the difference to zero-shot in colour, with its interval."""
    strongest = max((abs(c.interval.mean) for t in tables for c in _gains(t)), default=0) or 1
    columns = [Column("row", rises=True)]
    columns += [
        Column(each.setting.label, "points over zero-shot", below=_images(each)) for each in tables
    ]
    entries = []
    for place, line in enumerate(tables[0].lines):
        row = [each.lines[place] for each in tables]
        cells = tuple(_setting_cell(each.lines[place], each.setting, strongest) for each in tables)
        entries.append(Entry(head_cell(line, once=once_mark(row)), cells))
    whole = table(columns, entries, "grid") + short_reasons(all_lines(tables))
    return with_caption(whole, _settings_data(study, tables))


def _images(shown: Table) -> str:
    """How many images were scored in an order of a setting."""
    return "" if shown.scored is None else f"{scored_text(shown.scored)} images"


def all_lines(tables: Iterable[Table]) -> list[Line]:
    """Every line of some tables."""
    return [line for each in tables for line in each.lines]


def first_table(shown: Table) -> str:
    """Accuracy over the first n images, and against zero-shot over the same ones."""
    counts = sorted({count for line in shown.lines for count in line.first})
    if not counts:
        return ""
    columns = [Column("row", rises=True)]
    columns += [Column(f"first {n}", "accuracy %, then points over zero-shot") for n in counts]
    top = {n: first_leading(shown.lines, n) for n in counts}
    entries = []
    for line in shown.lines:
        state = state_cell(line, len(counts))
        cells = (state,) if state else tuple(
            _first_cell(line, n, line.row.label in top[n]) for n in counts
        )  # fmt: skip
        entries.append(Entry(whole_head(line), cells, row_css(line)))
    return table(columns, entries)


def heat_table(study: Study, source: str) -> str:
    """Accuracy for every pair of the two options that vary, darker where it is higher."""
    lines = [each for each in study.tables_of(source)[0].lines if each.row.method != "zero_shot"]
    names = _varying(lines)
    if len(names) != 2:
        return ""
    down, across = names
    at = {(each.row.options[down], each.row.options[across]): each for each in lines}
    means = [each.accuracy.mean for each in lines if each.accuracy is not None]
    rows, columns = (sorted({key[place] for key in at}) for place in (0, 1))
    heads = [Column(f"{down} ↓ {across} →"), *(Column(f"{value:g}") for value in columns)]
    entries = [
        Entry(
            Cell(f"{value:g}", value),
            tuple(_heat_cell(at.get((value, other)), means) for other in columns),
        )
        for value in rows
    ]
    return with_caption(table(heads, entries, "grid heat"), _heat_data(study, source, lines))


def _settings_data(study: Study, tables: Sequence[Table]) -> Figure:
    source = tables[0].source.name
    words = settings_caption([gain for each in tables for gain in _gains(each)])
    data = tuple(
        (line.row.label, each.setting.label, *in_points(gain.interval), gain.verdict)
        for each in tables
        for line in each.lines
        if (gain := line.to_zero_shot) is not None
    )
    header = ("row", "setting", "difference", "low", "high", "verdict")
    return Figure(f"{study.outline.name} {source} settings", (), words, header, data)


def _heat_data(study: Study, source: str, lines: Sequence[Line]) -> Figure:
    known = {line.row.label: line.accuracy.mean for line in lines if line.accuracy is not None}
    data = tuple((label, round(100 * mean, 4)) for label, mean in known.items())
    words = heat_caption(known) if known else "Nothing was measured."
    name = f"{study.outline.name} {source} heat"
    return Figure(name, (), words, ("row", "accuracy"), data)


def with_caption(markup: str, shown: Figure) -> str:
    """A table that is a figure: with what it shows and its data."""
    words = f"<figcaption>{escape(shown.caption)} {data_link(shown)}</figcaption>"
    return f"<figure class='chart'>{markup}{words}</figure>"


def _varying(lines: Sequence[Line]) -> list[str]:
    """The options that are not the same in all rows, in the order of the first row."""
    names = list(lines[0].row.options) if lines else []
    return [name for name in names if len({str(x.row.options.get(name)) for x in lines}) > 1]


def _heat_cell(line: Line | None, means: Sequence[float]) -> Cell:
    if line is None or line.accuracy is None:
        return EMPTY if line is None else missing_cell(line)
    low, high = min(means), max(means)
    share = (line.accuracy.mean - low) / (high - low) if high > low else 0.0
    cell = spread_cell(line.accuracy, digits=2)
    gain = line.to_zero_shot
    more = "" if gain is None else f"<br><small>{contrast_text(gain)}</small>"
    mark = row_mark(line.row)
    more += f"<br><span class='flag'>{mark}</span>" if mark else ""
    shade = f"background:rgba({_BLUE},{_STRONGEST * share:.2f})"
    assert cell is not None
    return Cell(cell.html + more, cell.value, "best" if line.best else "", shade)


def marked_gain(gain: Contrast) -> str:
    """A difference with the mark of its verdict."""
    return f"{points(gain.interval.mean)}{verdict_mark(gain)}"


def _setting_cell(line: Line, setting: Setting, strongest: float) -> Cell:
    gain, realised = line.to_zero_shot, realised_text(line, setting)
    if line.accuracy is None:
        return missing_cell(line)
    css = "best" if line.best else ""
    if gain is None:  # zero-shot itself
        return Cell(f"{100 * line.accuracy.mean:.1f}%", 0.0, css)
    hue = _BLUE if gain.interval.mean >= 0 else _VERMILION
    share = _STRONGEST * min(1.0, abs(gain.interval.mean) / strongest)
    tip = f"{100 * line.accuracy.mean:.1f}% {gain.verdict}".strip()
    return Cell(
        f"<span title='{tip}'>{marked_gain(gain)}</span><br><small>{span(gain.interval)}</small>"
        f"{f'<br><small>{realised}</small>' if realised else ''}{incomplete_mark(line)}",
        gain.interval.mean,
        css,
        style=f"background:rgba({hue},{share:.2f})",
    )


def _gains(shown: Table) -> list[Contrast]:
    return [line.to_zero_shot for line in shown.lines if line.to_zero_shot is not None]


def _first_cell(line: Line, count: int, is_bold: bool) -> Cell:
    cell, gain = (
        spread_cell(line.first.get(count), digits=2),
        contrast_cell(line.first_gain.get(count)),
    )
    if cell is None:
        return EMPTY
    value = f"<span class='best'>{cell.html}</span>" if is_bold else cell.html
    return Cell(value + ("" if gain is None else f"<br>{gain.html}"), cell.value)
