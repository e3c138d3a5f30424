"""Tables: one model with one formatter per column, rendered as HTML, Markdown, LaTeX or text.

Cells hold values; a column formats them. Accuracy is in %, a gain in percentage points with
its 95% interval and a mark: ▲ significantly better, ▼ significantly worse. HTML is rendered by the
template of ``crg.report.page``, the rest here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crg.report.contrasts import Contrast, Spread
from crg.types import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

NOTHING = "-"


@dataclass(frozen=True)
class Column:
    """A heading and the formatter of the values below it."""

    title: str
    text: Callable[[Any], str] = str
    is_text: bool = False  # aligned left, may be wrapped
    is_optional: bool = False  # left out first where a terminal is narrow

    def format(self, value: Any) -> str:
        """A value as text; an unknown value is a dash."""
        return NOTHING if value is None else self.text(value)


@dataclass(frozen=True)
class Table:
    """Values by row and column; ``best`` are the cells (row, column) to be set in bold."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""
    best: frozenset[tuple[int, int]] = field(default_factory=frozenset)
    notes: tuple[str, ...] = ()

    def cells(self) -> list[list[str]]:
        """Every cell as text."""
        return [
            [column.format(value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    def without_empty_columns(self) -> Table:
        """Without the columns that have no values."""
        kept = [n for n in range(len(self.columns)) if any(row[n] is not None for row in self.rows)]
        return Table(
            tuple(self.columns[n] for n in kept),
            tuple(tuple(row[n] for n in kept) for row in self.rows),
            self.title,
            frozenset((row, kept.index(n)) for row, n in self.best if n in kept),
            self.notes,
        )


def percent(value: float) -> str:
    """A fraction in %."""
    return f"{100 * value:.2f}"


def points(value: float) -> str:
    """A difference of fractions in percentage points."""
    return f"{100 * value:+.2f}"


def spread_text(spread: Spread) -> str:
    """Mean and standard deviation over stream orders, in %."""
    return percent(spread.mean) + ("" if spread.std is None else f" ± {percent(spread.std)}")


def mean_percent(spread: Spread) -> str:
    """The mean in %."""
    return percent(spread.mean)


def gain_text(gain: Contrast) -> str:
    """A difference in percentage points with its 95% interval and mark."""
    ends = (gain.interval.mean, gain.interval.low, gain.interval.high)
    mean, low, high = (f"{100 * end:+.2f}" for end in ends)
    return f"{mean} [{low}, {high}] {gain.mark}".rstrip()


def rival_text(gain: Contrast) -> str:
    """A difference with the name of the other method."""
    return f"{gain_text(gain)} ({gain.against})"


def lines_text(numbers: Iterable[int]) -> str:
    """Lines of a results file as ranges.

    >>> lines_text([3, 4, 5, 9])
    '3-5, 9'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or NOTHING


METHOD = Column("method", is_text=True)


def _escaped(table: Table, escape: Callable[[str], str], bold: str) -> list[list[str]]:
    """Every cell in a form where nothing is markup but the ``bold`` of the best ones."""
    return [
        [bold.format(text) if (row, n) in table.best else text for n, text in enumerate(cells)]
        for row, cells in enumerate([*map(escape, each)] for each in table.cells())
    ]


def to_markdown(table: Table) -> str:
    """A GitHub table; the title above it, notes below."""
    lines = [f"**{_plain_markdown(table.title)}**\n"] if table.title else []
    heads = [_plain_markdown(column.title) for column in table.columns]
    lines.append(f"| {' | '.join(heads)} |")
    lines.append(f"| {' | '.join('---' if c.is_text else '---:' for c in table.columns)} |")
    lines += [f"| {' | '.join(row)} |" for row in _escaped(table, _plain_markdown, "**{}**")]
    lines += [f"\n{_plain_markdown(note)}" for note in table.notes]
    return "\n".join(lines)


def _plain_markdown(text: str) -> str:
    """Text in which nothing is markup."""
    escaped = re.sub(r"([\\|*_`\[\]<>#])", r"\\\1", text) if re.search(r"[<`|]", text) else text
    return " ".join(escaped.split())


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
          "±": r"$\pm$", "▲": r"$\blacktriangle$", "▼": r"$\blacktriangledown$",
          **{mark: f"\\{mark}" for mark in "&%$#_{}"}}  # fmt: skip


def escape_latex(text: str) -> str:
    """Text in which nothing is a command."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def to_latex(table: Table) -> str:
    """A table environment; it needs booktabs and amssymb."""
    layout = "".join("l" if column.is_text else "r" for column in table.columns)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{escape_latex(table.title)}}}",
             rf"\begin{{tabular}}{{{layout}}}", r"\toprule",
             " & ".join(escape_latex(column.title) for column in table.columns) + r" \\",
             r"\midrule"]  # fmt: skip
    lines += [" & ".join(row) + r" \\" for row in _escaped(table, escape_latex, r"\textbf{{{}}}")]
    lines += [r"\bottomrule", r"\end{tabular}", *(escape_latex(note) for note in table.notes)]
    return "\n".join([*lines, r"\end{table}"])


def to_terminal(table: Table, width: int = 200) -> RichTable:
    """A table for a terminal; optional columns that do not fit are left out, the last one first."""
    from rich.table import Table as RichTable
    from rich.text import Text

    cells = [[printable(cell) for cell in row] for row in table.cells()]
    kept = list(range(len(table.columns)))
    widths = [
        max([len(column.title), *(len(row[n]) for row in cells)]) + 3
        for n, column in enumerate(table.columns)
    ]
    for n in [n for n in reversed(kept) if table.columns[n].is_optional]:
        if sum(widths[each] for each in kept) + 1 > width:
            kept.remove(n)
    shown = RichTable()
    for n in kept:
        column = table.columns[n]
        shown.add_column(column.title, justify="left" if column.is_text else "right", no_wrap=True)
    for place, row in enumerate(cells):
        bold = any(each == place for each, _ in table.best)
        shown.add_row(*(Text(row[n], style="bold" if bold else "") for n in kept))
    return shown
