"""Lines: an answer as fields, and the fields as JSON or as the cells of a table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from crg.classifier import Answer
from crg.types import parsed_json

Line: TypeAlias = dict[str, Any]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")  # how a formula may begin, or what marks one
FIELDS = (
    "path",
    "label",
    "probability",
    "zero_shot_label",
    "zero_shot_probability",
    "changed",
    "step",
    "error",
)
UNSURE, TOP, SORTED_TO = "unsure", "top", "sorted_to"  # fields that options add
CORRECTED = "corrected"


@dataclass(frozen=True)
class Form:
    """What of an answer is written down."""

    top: int = 0  # how many classes with their probabilities
    unsure_below: float = 0.0  # no label is given below this probability
    sorted: bool = False  # whether it says where the image was put
    corrected: bool = False  # whether some labels are what a person said

    def line(self, path: Path, answer: Answer, classes: Sequence[str]) -> Line:
        """The fields of an answer that chose from ``classes``."""
        answer = replace(answer, unsure_below=self.unsure_below)
        return {"path": str(path), **answer.as_dict(self.top)}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the cells of a table."""
        places = range(1, self.top + 1)
        top = [name for place in places for name in _columns_of(place)]
        unsure = [UNSURE] if self.unsure_below else []
        corrected = [CORRECTED] if self.corrected else []
        return (*FIELDS, *corrected, *unsure, *top, *([SORTED_TO] if self.sorted else []))


def place_of(line: Mapping[str, Any]) -> Path:
    """Where the image of a line is now: it may have been moved when it was sorted."""
    path, moved = Path(line["path"]), Path(line.get(SORTED_TO) or line["path"])
    return moved if moved.exists() and not path.exists() else path


def json_line(line: Mapping[str, Any]) -> str:
    """One line of JSON; what is not UTF-8, or breaks lines or terminals, is spelled out."""
    known = {field: value for field, value in line.items() if value is not None}
    text = json.dumps(known, ensure_ascii=False)
    return (text if text.isprintable() else json.dumps(known)) + "\n"


def csv_line(line: Mapping[str, Any], columns: Sequence[str]) -> str:
    """One line of a table with these columns."""
    cells = dict(line)
    for place, best in enumerate(cells.pop(TOP, ()), 1):
        cells |= zip(_columns_of(place), best.values(), strict=True)
    return csv_row("" if cells.get(name) is None else cells[name] for name in columns)


def csv_row(cells: Iterable[Any]) -> str:
    """The cells of one line; a cell that holds either kind of line break is quoted."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(map(_harmless, cells))
    return text.getvalue()[:-2] + "\n"


def parse_json_lines(text: str) -> list[Line]:
    """What ``json_line`` wrote."""
    return [parsed_json(line) for line in text.split("\n")[:-1]]


def parse_csv(text: str) -> list[Line]:
    """What ``csv_line`` wrote, under a header; numbers and truth values in their types."""
    return [_typed(row) for row in csv.DictReader(io.StringIO(text, newline=""))]


def _columns_of(place: int) -> tuple[str, str]:
    return f"top_{place}", f"top_{place}_probability"


def _harmless(value: Any) -> Any:
    """A cell that a spreadsheet would take for a formula gets an apostrophe, as they show it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value


def unmarked(cell: str) -> str:
    """A cell without the apostrophe that keeps spreadsheets from taking it for a formula."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in _FORMULA else cell


def _typed(row: Mapping[str, str]) -> Line:
    if None in row:
        raise ValueError("a line has too many cells")
    line: Line = {name: unmarked(value) for name, value in row.items() if value}
    for name in ("changed", CORRECTED, UNSURE):
        if name in line:
            line[name] = line[name] == "True"
    if "step" in line:
        line["step"] = int(line["step"])
        line.setdefault("label", "")
    place, top = 1, []
    while _columns_of(place)[0] in line:
        label, probability = (line.pop(name) for name in _columns_of(place))
        top.append({"label": label, "probability": float(probability)})
        place += 1
    return {**line, TOP: top} if top else line
