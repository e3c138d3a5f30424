"""One answer as a line: of JSON, of CSV, or of a table for people."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.style import Style

from crg.types import printable

TOP = "top"  # the field of the most probable classes
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")  # how a formula may begin, or what marks one
_NARROWEST, _WIDEST_LABEL, _NUMBER = 16, 28, 7  # cells of the terminal
_MARKS = {"error": "red", "changed": "bold yellow", "unsure": "dim", "none_of_these": "dim",
          "corrected": "green"}  # fmt: skip


def json_line(line: Mapping[str, Any]) -> str:
    """One line of JSON; what is not UTF-8, or breaks lines or terminals, is spelled out."""
    known = {field: value for field, value in line.items() if value is not None}
    text = json.dumps(known, ensure_ascii=False)
    return (text if text.isprintable() else json.dumps(known)) + "\n"


def csv_line(line: Mapping[str, Any], columns: Sequence[str]) -> str:
    """One line of a table with these columns."""
    cells = {name: json.dumps(v) if name == "class_set" else v for name, v in line.items()}
    for place, best in enumerate(cells.pop(TOP, ()), 1):
        cells |= zip(columns_of(place), best.values(), strict=True)
    return csv_row("" if cells.get(name) is None else cells[name] for name in columns)


def csv_row(cells: Iterable[Any]) -> str:
    """The cells of one line; a cell that holds either kind of line break is quoted.

    A cell that a spreadsheet would take for a formula gets an apostrophe, as they show it.
    """
    text = io.StringIO()
    harmless = (
        f"'{cell}" if isinstance(cell, str) and cell[:1] in _FORMULA else cell for cell in cells
    )
    csv.writer(text, lineterminator="\r\n").writerow(harmless)
    return text.getvalue()[:-2] + "\n"


def unmarked(cell: str) -> str:
    """A cell without the apostrophe that keeps spreadsheets from taking it for a formula."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in _FORMULA else cell


def columns_of(place: int) -> tuple[str, str]:
    """The columns for the class at a place of the most probable ones, and its probability."""
    return f"top_{place}", f"top_{place}_probability"


class PrintedTable:
    """The header and the rows of a table with aligned columns, as wide as the terminal at most."""

    def __init__(self, paths: Iterable[str], classes: Sequence[str]) -> None:
        self._label = max(min(max(map(cell_len, classes)), _WIDEST_LABEL), len("zero-shot"))
        rest = 2 * (self._label + _NUMBER + 4) + len("corrected")
        most = max(shutil.get_terminal_size().columns - rest, _NARROWEST)
        self._path = min(max(map(cell_len, paths), default=most), most)

    def header(self) -> str:
        """The names of the columns."""
        names = {"path": "image", "label": "label", "zero_shot_label": "zero-shot"}
        return self.row(names)

    def row(self, line: Mapping[str, Any]) -> str:
        """One image; a path that is too long loses its beginning, and what is special is named."""
        cells = [_fitted(line["path"], self._path, -1)]
        if "error" in line:
            return f"{cells[0]}  {_styled('error', printable(line['error']))}\n"
        for kind in ("", "zero_shot_"):
            number = line.get(f"{kind}probability")
            cells.append(_fitted(line.get(f"{kind}label") or "", self._label))
            cells.append(f"{'' if number is None else format(number, '.1%'):>{_NUMBER}}")
        cells += [_styled(mark, mark.replace("_", " ")) for mark in _MARKS if line.get(mark)]
        best = [f"{each['label']} {each['probability']:.0%}" for each in line.get(TOP, ())]
        cells.append(printable(", ".join(best) or " | ".join(line.get("class_set", ()))))
        return "  ".join(cells).rstrip() + "\n"


def _styled(mark: str, text: str) -> str:
    return text if os.environ.get("NO_COLOR") else Style.parse(_MARKS[mark]).render(text)


def _fitted(text: str, width: int, step: int = 1) -> str:
    """Text in exactly ``width`` cells; its end, or with step -1 its beginning, is cut off."""
    text = printable(text)
    if cell_len(text) > width:
        text = (set_cell_size(text[::step], width - 1) + "…")[::step]
    return set_cell_size(text, width)
