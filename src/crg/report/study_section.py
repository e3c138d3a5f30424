"""The section of one experiment: its figures, its tables, and numbers of papers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import PurePath

from crg.report.evidence.cells import scored_text
from crg.report.evidence.leading import bold_among
from crg.report.evidence.sentences import TUNED, once_note, sentences_of, watermark
from crg.report.evidence.study import Line, PrintedCell, PrintedTable, Shown, Study, Table
from crg.report.evidence.unmeasured import (
    cell_text,
    introduction,
    marks_of,
    remarks_of,
    title_of,
)
from crg.report.markup import (
    Cell,
    Column,
    Entry,
    Figure,
    figure,
    folded,
    footnotes,
    listing,
    paragraph,
    slug,
    table,
)
from crg.report.study_across import flags, means_table, missing_table, overview_table
from crg.report.study_contrasts import (
    forest_figure,
    reliability_figure,
    waterfall_figure,
    worst_figure,
)
from crg.report.study_curves import (
    cold_start_figure,
    learning_figure,
    noise_figures,
    purity_figure,
    shots_figure,
    sweep_figure,
)
from crg.report.study_grids import first_table, heat_table, settings_table
from crg.report.study_tables import rows_table
from crg.results.outline import Source

Maker = Callable[[Study, str], list[Figure]]

FIGURES: Mapping[str, tuple[Maker, ...]] = {
    "table": (forest_figure, learning_figure, reliability_figure),
    "learning": (cold_start_figure,),
    "cold_start": (cold_start_figure,),
    "purity": (purity_figure,),
    "waterfall": (waterfall_figure,),
    "sweep": (sweep_figure,),
    "heat": (),  # a table in colours
    "noise": (noise_figures,),
    "streams": (worst_figure,),
    "shots": (shots_figure,),
}


def figures_of(study: Study, source: str) -> list[Figure]:
    """The figures of one source; a name that is not known has those of a table."""
    makers = FIGURES.get(study.outline.figure, FIGURES["table"])
    return [each for make in makers for each in make(study, source)]


def printed_part(study: Study) -> str:
    """A table per model; nothing where papers print nothing for what is missing."""
    if not study.printed:
        return ""
    title = "<h3>What papers print for the datasets that are not there</h3>"
    return folded(title, "".join(map(_printed, study.printed)), "source")


def _printed(shown: PrintedTable) -> str:
    remarks = remarks_of(shown)
    columns = [Column("row", rises=True), *(Column(each) for each in shown.datasets)]
    entries = [
        Entry(Cell(escape(method), method), tuple(_cell(cell, remarks) for cell in cells))
        for method, cells in shown.rows.items()
    ]
    heading = f"<h4>{escape(title_of(shown))}</h4>{paragraph(introduction(shown), 'facts')}"
    return heading + table(columns, entries) + footnotes(remarks)


def _cell(cell: PrintedCell, remarks: Sequence[str]) -> Cell:
    marks = ", ".join(map(str, marks_of(cell, remarks)))
    value = None if cell.reported is None else cell.reported.value
    return Cell(cell_text(cell) + (f"<sup>{marks}</sup>" if marks else ""), value)


_OPEN = 1  # sources whose figures are open from the start
_SHOWN_PROMPTS = 3  # more are folded away
_MOST_IMAGES = 12  # of a gallery


def study_section(study: Study) -> str:
    """Everything about one experiment."""
    outline = study.outline
    parts = [
        f"<section id='{slug(outline.name)}'><h2>{escape(outline.title)}</h2>",
        paragraph(outline.about),
        listing(sentences_of(study), "findings"),
        "".join(paragraph(note, "note") for note in _notes(study)),
        _across(study),
        *(_source_part(study, source, n < _OPEN) for n, source in enumerate(_sources(study))),
        printed_part(study),
        "</section>",
    ]
    return "".join(parts)


def _notes(study: Study) -> list[str]:
    """What must be known before any table is read."""
    notes = list(study.notes)
    if any(watermark(line) for table in study.tables for line in table.lines):
        notes.append(f"Rows marked “{TUNED}” owe their options to labels or to one dataset.")
    return [*notes, bold_among(study), once_note(study)]


def _across(study: Study) -> str:
    """What can be said over all sources at once."""
    if len(study.outline.settings) == 1 and len(study.tables) + len(study.missing) > 1:
        return overview_table(study)
    means = means_table(study) if len(study.outline.settings) > 1 else ""
    return means + missing_table(study)


def _sources(study: Study) -> list[Source]:
    return list({table.source.name: table.source for table in study.tables}.values())


def _source_part(study: Study, source: Source, is_open: bool) -> str:
    tables = study.tables_of(source.name)
    drawn = "".join(figure(each) for each in figures_of(study, source.name))
    content = [_facts(source, tables), *_tables(study, tables, drawn)]
    content += [_gallery(study.gallery.get(source.name, ())), _traces(tables)]
    title = f"<h3>{escape(source.name)}{flags(source)}</h3>"
    return folded(title, "".join(content), "source", is_open)


def _tables(study: Study, tables: Sequence[Table], drawn: str) -> list[str]:
    """Tables and figures in the order in which they are best read."""
    figures = f"<div class='charts'>{drawn}</div>" if drawn else ""
    if len(tables) > 1:
        whole = "".join(f"<h4>{escape(_heading(t))}</h4>{rows_table(study, t)}" for t in tables)
        return [
            settings_table(study, tables),
            figures,
            folded("All columns for every setting", whole),
        ]
    if study.outline.figure == "table":
        return [rows_table(study, tables[0]), figures]
    first = first_table(tables[0]) if study.outline.figure == "cold_start" else ""
    heat = heat_table(study, tables[0].source.name) if study.outline.figure == "heat" else ""
    return [heat, first, figures, rows_table(study, tables[0])]


def _heading(table: Table) -> str:
    """The setting with the number of images that were scored in an order."""
    label = table.setting.label
    return label if table.scored is None else f"{label}: {_scored(table)}"


def _scored(table: Table) -> str:
    return f"{scored_text(table.scored)} scored images per order"


def _facts(source: Source, tables: Sequence[Table]) -> str:
    """Which images, which model, which prompts."""
    counts = [
        f"{number:,} {name if number != 1 else name.removesuffix('es').removesuffix('s')}"
        for number, name in (
            (source.n_samples, "images"),
            (source.n_classes, "classes"),
            (source.n_views, "views"),
        )
        if number
    ]
    said = [", ".join(counts)]
    if len(tables) == 1 and tables[0].scored and tables[0].scored.mean != source.n_samples:
        said.append(_scored(tables[0]))
    said += [f"model {source.model}" if source.model else "model unknown"]
    said.append(_prompts(source.prompts))
    if source.text_kind:
        said.append(f"text features are {source.text_kind}, not the model's own")
    if source.then:
        said.append(f"then {', '.join(PurePath(path).name for path in source.then)}")
    return paragraph("; ".join(filter(None, said)) + ".", "facts") + _more_prompts(source.prompts)


def _prompts(templates: Sequence[str]) -> str:
    if not templates:
        return "prompts not told by the file"
    if len(templates) > _SHOWN_PROMPTS:
        return f"{len(templates)} prompts"
    shown = ", ".join(f"“{each}”" for each in templates)
    return f"{'prompts' if len(templates) > 1 else 'prompt'} {shown}"


def _more_prompts(templates: Sequence[str]) -> str:
    """All prompts, behind a line with the first ones, where there are many."""
    if len(templates) <= _SHOWN_PROMPTS:
        return ""
    first = ", ".join(f"“{each}”" for each in templates[:_SHOWN_PROMPTS])
    more = f"{first} and {len(templates) - _SHOWN_PROMPTS} more"
    return folded(f"Prompts: {escape(more)}", listing(templates), "facts prompts")


def _gallery(images: Sequence[Shown]) -> str:
    """Images on which methods disagree, with their answers."""
    if not images:
        return ""
    cards = "".join(_card(each) for each in images[:_MOST_IMAGES])
    count = min(len(images), _MOST_IMAGES)
    return (
        f"<h4>Where methods disagree</h4><p>{count} of the images that not all rows answer "
        f"alike in the first order. {escape(_tally(images[:_MOST_IMAGES]))}</p>"
        f"<div class='gallery'>{cards}</div>"
    )


def _tally(images: Sequence[Shown]) -> str:
    """How many of the images that are shown each row gets right."""
    right: dict[str, int] = {}
    for each in images:
        for label, answer in each.answers.items():
            right[label] = right.get(label, 0) + (answer == each.truth)
    return "Right on these: " + ", ".join(f"{k} {v}" for k, v in right.items()) + "."


def _card(shown: Shown) -> str:
    data = base64.b64encode(shown.png).decode()
    answers = "".join(
        f"<li>{escape(label)}: {_judged(answer, shown.truth)}</li>"
        for label, answer in shown.answers.items()
    )
    name = escape(shown.truth, quote=True)
    return (
        f"<figure class='card'><img alt='{name}' "
        f"src='data:image/png;base64,{data}'><figcaption><b>{name}</b><ul>{answers}</ul>"
        "</figcaption></figure>"
    )


def _judged(answer: str, truth: str) -> str:
    kind, mark = ("right", "✓") if answer == truth else ("wrong", "✗")
    return f"<span class='{kind}'>{escape(answer)} {mark}</span>"


def _traces(tables: Sequence[Table]) -> str:
    """Where every run stands, so that each number can be had again."""
    items = [
        f"<li>{escape(_where(table, line, len(tables) > 1))}</li>"
        for table in tables
        for line in table.lines
        if line.traces
    ]
    if not items:
        return ""
    example = next(t for table in tables for line in table.lines for t in line.traces)
    told = (
        f"<p>Each run is a line of a results file; <code>crg rerun "
        f"{escape(f'{example.file}:{example.line}')}</code> gives it again.</p>"
    )
    return folded("Where these numbers come from", f"{told}<ul>{''.join(items)}</ul>", "traces")


def _where(table: Table, line: Line, several: bool) -> str:
    files: dict[str, list[str]] = {}
    for trace in line.traces:
        files.setdefault(trace.file, []).append(str(trace.line))
    places = "; ".join(f"{file}:{','.join(lines)}" for file, lines in files.items())
    setting = f", {table.setting.label}" if several else ""
    return f"{line.row.label}{setting}: {places}"
