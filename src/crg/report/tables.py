"""The tables of experiments as Markdown, for people, and as LaTeX, for papers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from crg.report.evidence.cells import TIMES
from crg.report.evidence.full_sheets import Sheet, SheetRow
from crg.report.evidence.leading import BOLD, bold_among
from crg.report.evidence.sentences import once_note, sentences_of, verdicts_note
from crg.report.evidence.sheets import sheets_of
from crg.report.evidence.study import Study
from crg.report.evidence.unmeasured import printed_sheets
from crg.results.outline import ENOUGH_IMAGES, ENOUGH_ORDERS

_LATEX_HEAD = "% Made by crg report. Needs \\usepackage{booktabs} and \\usepackage{graphicx}."
_HOW_TO_READ = (
    "Mean ± standard deviation over stream orders; differences in points with 95% intervals of a "
    "paired bootstrap over images and orders. Better and worse stand only where the interval "
    f"excludes zero, there are at least {ENOUGH_ORDERS} orders, and each has at least "
    f"{ENOUGH_IMAGES} scored images. {BOLD} {TIMES}"
)
_LATEX = {
    "\\": r"\textbackslash{}",
    **{each: f"\\{each}" for each in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "λ": r"$\lambda$",
}


def markdown(studies: Sequence[Study]) -> str:
    """All studies, one section each."""
    blocks = (block for study in studies for block in _markdown_study(study))
    caveat = verdicts_note(studies)
    return "\n".join((f"{_marked_down(caveat)}\n", *blocks) if caveat else blocks)


def latex(studies: Sequence[Study]) -> str:
    r"""All studies, one section each, to be read in with ``\input``."""
    blocks = (block for study in studies for block in _latex_study(study))
    caveat = verdicts_note(studies)
    return "\n".join((_LATEX_HEAD, *((f"{escape_latex(caveat)}\n",) if caveat else ()), *blocks))


def _introduction(study: Study) -> list[str]:
    """What stands above the tables, as plain text."""
    orders = len(study.outline.seeds)
    counted = f"{orders} stream order{'' if orders == 1 else 's'}."
    machine = ", ".join(f"{name} {value}" for name, value in study.machine.items())
    reading = [_HOW_TO_READ, bold_among(study), once_note(study), counted]
    parts = [study.outline.about, *study.notes, *sentences_of(study), *reading]
    parts += [f"Made with: {machine}."] if machine else []
    return [" ".join(part.split()) for part in parts if part.strip()]


def _markdown_study(study: Study) -> Iterable[str]:
    yield f"## {_marked_down(study.outline.title)}\n"
    for part in _introduction(study):
        yield f"{_marked_down(part)}\n"
    for sheet in (*sheets_of(study), *printed_sheets(study)):
        yield f"### {_marked_down(sheet.title)}\n"
        yield from (f"{_marked_down(fact)}\n" for fact in sheet.facts if fact)
        yield from _markdown_table(sheet)
        yield ""
        yield from (f"{_marked_down(note)}\n" for note in sheet.notes)


def _markdown_table(sheet: Sheet) -> Iterable[str]:
    yield _piped(map(_marked_down, sheet.columns))
    ruler = "---" if sheet.is_prose else "---:"
    yield _piped(("---", *(ruler for _ in sheet.columns[1:])))
    for row in sheet.rows:
        cells = [_marked_down(cell) for cell in row.cells]
        cells = [_bold(cell, "**", "**") if n in row.bold else cell for n, cell in enumerate(cells)]
        if row.message:
            cells.append(f"*{_marked_down(row.message)}*")
        yield _piped((*cells, *("" for _ in sheet.columns[len(cells) :])))


def _bold(cell: str, before: str, after: str) -> str:
    """The accuracy of a cell in bold, and not what follows of differences."""
    accuracy, mark, gain = cell.partition("; ")
    return f"{before}{accuracy}{after}{mark}{gain}"


def _piped(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _marked_down(text: str) -> str:
    """Text whose characters stand for themselves, on one line."""
    escaped = re.sub(r"([\\|*`\[\]])", r"\\\1", " ".join(text.split()))
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"^([+#-])(?=[ #])", r"\\\1", escaped)  # or it would begin a list or a title


def _latex_study(study: Study) -> Iterable[str]:
    yield f"\\section*{{{escape_latex(study.outline.title)}}}"
    for part in _introduction(study):
        yield f"{escape_latex(part)}\n"
    for sheet in (*sheets_of(study), *printed_sheets(study)):
        yield from _latex_table(sheet)


def _latex_table(sheet: Sheet) -> Iterable[str]:
    width = len(sheet.columns)
    below = " ".join((*sheet.facts, *sheet.notes))
    yield "\\begin{table}[ht]\n\\centering"
    yield f"\\caption{{{escape_latex(sheet.title)}}}"
    yield "\\resizebox{\\textwidth}{!}{%"
    kinds = "p{0.7\\textwidth}" if sheet.is_prose else "r" * (width - 1)
    yield f"\\begin{{tabular}}{{l{kinds}}}\n\\toprule"
    yield _ampersands(escape_latex(column) for column in sheet.columns)
    yield "\\midrule"
    yield from (_latex_row(row, width) for row in sheet.rows)
    yield "\\bottomrule\n\\end{tabular}}"
    if below:
        yield f"\n\\smallskip\\footnotesize {escape_latex(below)}"
    yield "\\end{table}\n"


def _latex_row(row: SheetRow, width: int) -> str:
    cells = [escape_latex(cell) for cell in row.cells]
    cells = [
        _bold(cell, "\\textbf{", "}") if n in row.bold else cell for n, cell in enumerate(cells)
    ]
    if row.message:
        span = width - len(cells)
        cells.append(f"\\multicolumn{{{span}}}{{l}}{{\\emph{{{escape_latex(row.message)}}}}}")
    return _ampersands(cells)


def _ampersands(cells: Iterable[str]) -> str:
    known: Sequence[str] = list(cells)
    if known[0][:1] in ("[", "*"):  # after a line's end they would belong to that
        known = [f"{{{known[0]}}}", *known[1:]]
    return f"{' & '.join(known)} \\\\"


def escape_latex(text: str) -> str:
    r"""Text whose characters stand for themselves.

    >>> escape_latex("5% of zero_shot & more: -1.2")
    '5\\% of zero\\_shot \\& more: $-$1.2'
    """
    escaped = "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
    escaped = escaped.replace("--", "-{}-")  # or they would become a dash
    return re.sub(r"(?<![\w$}-])-(?=\d)", "$-$", escaped)
