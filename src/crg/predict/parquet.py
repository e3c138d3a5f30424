"""Answers as Parquet, which cannot be appended to: JSON lines until the end, then one table."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crg.atomic import replacing
from crg.encoders.base import library
from crg.predict.answers import (
    AnswerFile,
    check_settings,
    exists_already,
    keep_settings,
    read_answers,
    resume_folder,
)
from crg.predict.lines import Line
from crg.types import InputError

_ROWS = 10_000  # lines that are converted at once


class ParquetAnswers(AnswerFile):
    """Lines go to a file in the folder beside ``target``; leaving the block writes the table."""

    def __init__(self, target: Path, resume: bool, settings: Mapping[str, Any]) -> None:
        """Open the file of lines; a table that exists is only replaced to ``resume`` it."""
        self._target, working = target, resume_folder(target) / "answers.jsonl"
        if not resume and (target.exists() or working.exists()):
            raise exists_already(target)
        if target.exists() and not working.exists():
            raise InputError(
                f"{working} is gone, without which {target} cannot be continued: replace it by "
                "--overwrite or choose another name."
            )
        if resume:
            check_settings(target, settings)
        keep_settings(target, settings)
        super().__init__(working, "jsonl", resume)

    def __exit__(self, kind: object, *rest: object) -> None:
        super().__exit__(kind, *rest)
        with contextlib.suppress(*[InputError] if kind is not None else []):  # one is enough
            write_parquet(resume_folder(self._target) / "answers.jsonl", self._target)


def write_parquet(lines: Path, target: Path) -> None:
    """The answers of a file of JSON lines as a table, written whole or not at all."""
    pyarrow, parquet = library("pyarrow", "parquet"), library("pyarrow.parquet", "parquet")
    text, number = pyarrow.string(), pyarrow.float64()
    best = pyarrow.list_(pyarrow.struct([("label", text), ("probability", number)]))
    schema = pyarrow.schema(
        [("path", text), ("label", text), ("probability", number), ("zero_shot_label", text),
         ("zero_shot_probability", number), ("changed", pyarrow.bool_()),
         ("step", pyarrow.int64()), ("error", text), ("corrected", pyarrow.bool_()),
         ("unsure", pyarrow.bool_()), ("top", best), ("sorted_to", text)]
    )  # fmt: skip
    with replacing(target) as partial, parquet.ParquetWriter(partial, schema) as writer:
        known = read_answers(lines, "jsonl")
        for start in range(0, len(known), _ROWS):
            rows = [_row(line) for line in known[start : start + _ROWS]]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))


def read_parquet(path: Path) -> list[Line]:
    """The lines of a table that ``write_parquet`` wrote."""
    pyarrow, parquet = library("pyarrow", "parquet"), library("pyarrow.parquet", "parquet")
    try:
        rows = parquet.read_table(path, memory_map=False).to_pylist()
        lines = [{name: value for name, value in row.items() if value is not None} for row in rows]
        for line in lines:
            line["path"] = str(line["path"])
    except (OSError, KeyError, TypeError, pyarrow.ArrowException) as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise InputError(
            f"{path} holds no predictions ({why}): name a file that crg predict wrote."
        ) from None
    return lines


def _row(line: Line) -> dict[str, Any]:
    """The cells of a line; bytes of a path that are not UTF-8 are spelled out."""
    cells = {
        name: value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        if isinstance(value, str)
        else value
        for name, value in line.items()
    }
    return cells
