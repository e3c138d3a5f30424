"""Tables over several settings or sources: who stands where, and how far from zero-shot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from crg.evidence.cells import scored_text
from crg.evidence.leading import first_leading
from crg.evidence.sentences import TUNED
from crg.evidence.study import Contrast, Line, Study, Table
from crg.outline import Source
from crg.report.markup import Cell, Column, Entry, Figure, data_link, folded, table
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

_BLUE, _VERMILION = "0,114,178", "213,94,0"
_STRONGEST = 0.5  # opacity at which text on it can still be read in both modes


def flags(source: Source) -> str:
    """What must stand beside the name of a source wherever it is shown."""
    kind = source.text_kind
    return f" <span class='flag'>{escape(kind)} text</span>" if kind else ""


def overview_table(study: Study) -> str:
    """A row per source, a column per row of the experiment; what is missing says so."""
    rows, tip = study.outline.rows, "accuracy % and points over zero-shot"
    columns = [Column("source", rises=True)]
    columns += [Column(row.label, tip, below=TUNED if row.tuned else "") for row in rows]
    entries = [_source_entry(each) for each in study.tables]
    entries += [missing_entry(source, len(rows)) for source in study.missing]
    return table(columns, entries) + short_reasons(_all_lines(study.tables))


def missing_table(study: Study) -> str:
    """The sources that are not there, and what would bring them."""
    if not study.missing:
        return ""
    columns = [Column("not there", rises=True), Column("why")]
    return table(columns, [missing_entry(source, 1) for source in study.missing], "missing")


def missing_entry(source: Source, columns: int) -> Entry:
    """A source that is not there, as a row."""
    why = Cell(folded("missing", escape(source.missing or "")), css="reason", span=columns)
    return Entry(Cell(escape(source.name), source.name), (why,), "absent")


def settings_table(study: Study, tables: Sequence[Table]) -> str:
    """Rows against settings: the difference to zero-shot in colour, with its interval."""
    strongest = max((abs(c.interval.mean) for t in tables for c in _gains(t)), default=0) or 1
    columns = [Column("row", rises=True)]
    columns += [
        Column(each.setting.label, "points over zero-shot", below=_pictures(each))
        for each in tables
    ]
    entries = []
    for place, line in enumerate(tables[0].lines):
        cells = tuple(_setting_cell(each.lines[place], strongest) for each in tables)
        entries.append(Entry(head_cell(line), cells))
    whole = table(columns, entries, "grid") + short_reasons(_all_lines(tables))
    return _with_caption(whole, _settings_data(study, tables))


def _pictures(shown: Table) -> str:
    """How many pictures were scored in an order of a setting."""
    return "" if shown.scored is None else f"{scored_text(shown.scored)} pictures"


def _all_lines(tables: Iterable[Table]) -> list[Line]:
    return [line for each in tables for line in each.lines]


def first_table(shown: Table) -> str:
    """Accuracy over the first n pictures, and against zero-shot over the same ones."""
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
    return _with_caption(table(heads, entries, "grid heat"), _heat_data(study, source, lines))


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


def _with_caption(markup: str, shown: Figure) -> str:
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
    more += f"<br><span class='flag'>{TUNED}</span>" if line.row.tuned else ""
    shade = f"background:rgba({_BLUE},{_STRONGEST * share:.2f})"
    assert cell is not None
    return Cell(cell.html + more, cell.value, "best" if line.best else "", shade)


def _source_entry(shown: Table) -> Entry:
    cells = []
    for line in shown.lines:
        spread, gain = spread_cell(line.accuracy, digits=2), line.to_zero_shot
        if spread is None:
            cells.append(missing_cell(line))
            continue
        more = "" if gain is None else f"<br><small>{_marked(gain)}</small>"
        more += incomplete_mark(line)
        cells.append(Cell(spread.html + more, spread.value, "best" if line.best else ""))
    name = escape(shown.source.name) + flags(shown.source)
    return Entry(Cell(name, shown.source.name), tuple(cells))


def _marked(gain: Contrast) -> str:
    return f"{points(gain.interval.mean)}{verdict_mark(gain)}"


def _setting_cell(line: Line, strongest: float) -> Cell:
    gain = line.to_zero_shot
    if line.accuracy is None:
        return missing_cell(line)
    css = "best" if line.best else ""
    if gain is None:  # zero-shot itself
        return Cell(f"{100 * line.accuracy.mean:.1f}%", 0.0, css)
    hue = _BLUE if gain.interval.mean >= 0 else _VERMILION
    share = _STRONGEST * min(1.0, abs(gain.interval.mean) / strongest)
    tip = f"{100 * line.accuracy.mean:.1f}% {gain.verdict}".strip()
    return Cell(
        f"<span title='{tip}'>{_marked(gain)}</span><br><small>{span(gain.interval)}</small>"
        f"{incomplete_mark(line)}",
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
