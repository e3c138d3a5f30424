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

    def __init__(self, paths: Iterable[str], classes: Sequence[str], is_coloured: bool) -> None:
        self._is_coloured = is_coloured and not os.environ.get("NO_COLOR")
        self._label = min(max(cell_len(printable(name)) for name in classes), _WIDEST_LABEL)
        self._label = max(self._label, len("zero-shot"))
        rest = 2 * (self._label + _NUMBER + 4) + len("corrected")
        most = max(shutil.get_terminal_size().columns - rest, _NARROWEST)
        longest = max((cell_len(printable(path)) for path in paths), default=most)
        self._path = min(max(longest, len("image")), most)

    def header(self) -> str:
        """The names of the columns."""
        names = {"path": "image", "label": "label", "zero_shot_label": "zero-shot"}
        return self.row(names).rstrip() + "\n"

    def row(self, line: Mapping[str, Any]) -> str:
        """One image; a path that is too long loses its beginning, and what is special is named."""
        path, marks = _fitted(line["path"], self._path, -1), [m for m in _MARKS if line.get(m)]
        if "error" in line:
            return f"{path}  {self._styled('error', printable(line['error']))}\n"
        cells = [path]
        for kind in ("", "zero_shot_"):
            probability = line.get(f"{kind}probability")
            no_label = "" if kind else "(none)" if line.get("none_of_these") else "(unsure)"
            label = line.get(f"{kind}label", "") or no_label
            cells.append(_fitted(label, self._label))
            cells.append(f"{'' if probability is None else format(probability, '.1%'):>{_NUMBER}}")
        top = line.get(TOP, ())
        is_repeated = [each["label"] for each in top] == [line.get("label")]
        best = (f"{each['label']} {each['probability']:.0%}" for each in top if not is_repeated)
        sets = " | ".join(line.get("class_set", ()))
        cells += [self._styled(mark, mark.replace("_", " ")) for mark in marks]
        cells.append(printable(", ".join(best) or sets))
        return "  ".join(cells).rstrip() + "\n"

    def _styled(self, mark: str, text: str) -> str:
        return Style.parse(_MARKS[mark]).render(text) if self._is_coloured else text


def _fitted(text: str, width: int, step: int = 1) -> str:
    """Text in exactly ``width`` cells; its end, or with step -1 its beginning, is cut off."""
    text = printable(text)
    if cell_len(text) > width:
        text = (set_cell_size(text[::step], width - 1) + "…")[::step]
    return set_cell_size(text, width)
