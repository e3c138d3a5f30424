"""Predictions on disk: one line per image as it is decided, as JSON lines or CSV.

Every line has the same fields, and an image that could not be read has its ``error`` instead
of an answer. A file that was cut off is continued: its whole lines stay as they are.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, Self, TypeAlias

from crg.atomic import not_writable, replacing
from crg.predict.lines import (
    FIELDS,
    SORTED_TO,
    Line,
    csv_line,
    csv_row,
    json_line,
    parse_csv,
    parse_json_lines,
)
from crg.types import InputError, parsed_json

Format: TypeAlias = Literal["jsonl", "csv"]
Layout: TypeAlias = Literal["jsonl", "csv", "parquet"]
LAYOUTS: dict[str, Layout] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}


class AnswerFile:
    """Writes lines and flushes each; closes what it opened at the end of a ``with`` block."""

    def __init__(
        self,
        target: Path | IO[str],
        layout: Format,
        resume: bool = False,
        settings: Mapping[str, Any] | None = None,
        columns: Sequence[str] = FIELDS,
    ) -> None:
        """Open ``target``; a file that exists is only touched to ``resume`` it.

        ``settings`` are kept beside a file, so that nobody resumes it with others; ``columns``
        are those of a table.
        """
        self._layout, self._columns = layout, columns
        self._owned = isinstance(target, Path)
        self._name = str(target) if isinstance(target, Path) else "standard output"
        self.before: list[Line] = []  # the lines that were there
        if not isinstance(target, Path):
            self._file = target
        else:
            if resume and target.exists():
                check_settings(target, settings)
                self.before = read_answers(target, layout)
            self._file = _opened(target, layout, resume)
        try:
            if isinstance(target, Path) and settings is not None:
                keep_settings(target, settings)
            if layout == "csv" and not (isinstance(target, Path) and target.stat().st_size):
                self._write(csv_row(columns))
        except BaseException as error:
            self.__exit__(error)  # nobody else will close it
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if not self._owned:
            return
        try:
            self._file.close()  # which tries once more to write what a full disk refused
        except OSError as error:
            if kind is None:
                raise self._unwritable(error) from None

    def add(self, line: Mapping[str, Any]) -> None:
        """Write one line."""
        is_table = self._layout == "csv"
        self._write(csv_line(line, self._columns) if is_table else json_line(line))

    def sync(self) -> None:
        """Have the lines on the disk, whatever happens to the machine."""
        if self._owned:
            with contextlib.suppress(OSError):  # not every file system can
                os.fsync(self._file.fileno())

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except BrokenPipeError:  # whoever read us has gone, which is no fault
            raise
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> InputError:
        remedy = "make room and use --resume, for the lines before are kept"
        return InputError(
            f"{self._name} cannot be written ({error.strerror}): "
            f"{remedy if self._owned else 'make room there'}."
        )


def check_settings(path: Path, settings: Mapping[str, Any] | None) -> None:
    """Refuse to continue with answers that were made with other settings."""
    kept = kept_settings(path)
    for name, value in json.loads(json.dumps(settings or {})).items():
        if kept.get(name, value) != value:
            raise InputError(
                f"{path} was made with another value of {name.replace('_', '-')} "
                f"({_brief(kept[name])}, not {_brief(value)}): use the same one or another --out."
            )


def kept_settings(path: Path) -> dict[str, Any]:
    """The settings of a file of answers; empty if nothing is known of them."""
    file = settings_file(path)
    try:
        kept = parsed_json(file.read_bytes())
        if not isinstance(kept, dict):
            raise ValueError("it holds no settings")
    except OSError:
        return {}
    except ValueError as error:
        raise InputError(
            f"{file} is damaged ({error}): restore it from a copy, or remove it if the settings of "
            "this command are those of the answers."
        ) from None
    return kept


def settings_file(path: Path) -> Path:
    """Where the settings of a file of answers are kept."""
    return resume_folder(path) / "settings.json"


def resume_folder(path: Path) -> Path:
    """Where all that is needed to continue with a file of answers is kept."""
    return path.with_name(f"{path.name}.resume")


def keep_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Write down the settings of a file of answers."""
    settings_file(path).parent.mkdir(exist_ok=True)
    with replacing(settings_file(path)) as partial:
        partial.write_text(json.dumps(settings, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _brief(value: Any) -> str:
    text = "none" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_answers(path: Path, layout: Format) -> list[Line]:
    """The whole lines of a file; numbers and truth values in their types."""
    text = _whole_lines(path, layout)
    try:
        lines = parse_json_lines(text) if layout == "jsonl" else parse_csv(text)
        if not all(map(_is_answer, lines)):
            raise ValueError("a line is not an answer")
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise InputError(
            f"{path} holds no predictions ({error}): name a file that crg predict wrote."
        ) from None
    return lines


def _is_answer(line: Any) -> bool:
    """Whether it has a path, and a step or an error."""
    if not isinstance(line, dict) or not isinstance(line.get("path"), str):
        return False
    if not all(isinstance(line.get(name, ""), str) for name in ("label", SORTED_TO)):
        return False
    return type(line.get("step")) is int or isinstance(line.get("error"), str)


def layout_of(path: Path | None, asked: Layout | None) -> Layout:
    """The format that was asked for, or the one that the suffix names; JSON lines without a file.

    >>> layout_of(Path("answers.csv"), None)
    'csv'
    """
    if asked is not None or path is None:
        return asked or "jsonl"
    if str(path) == "-":
        raise InputError("- is no file: leave --out out for standard output.")
    if path.suffix.lower() not in LAYOUTS:
        raise InputError(
            f"The suffix of {path} names no format: end it with {', '.join(LAYOUTS)}, or say "
            "which one with --format."
        )
    return LAYOUTS[path.suffix.lower()]


def exists_already(path: Path) -> InputError:
    """The sentence for a file of answers that is there."""
    return InputError(
        f"{path} exists already: continue with it by --resume, replace it by --overwrite or "
        "choose another name."
    )


def _opened(path: Path, layout: Format, resume: bool) -> IO[str]:
    try:
        if not resume:
            return path.open("x", encoding="utf-8", errors="surrogateescape", newline="")
        text = _whole_lines(path, layout) if path.exists() else ""
        whole = len(text.encode("utf-8", "surrogateescape"))
        file = path.open("a", encoding="utf-8", errors="surrogateescape", newline="")
        file.truncate(whole)  # a line that a crash cut off is decided again
        return file
    except FileExistsError:
        raise exists_already(path) from None
    except OSError as error:
        raise not_writable(path, error) from None


def _whole_lines(path: Path, layout: Format) -> str:
    """The text up to the last whole line; a quote that whole lines follow must be closed."""
    try:
        data = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    whole = data[: data.rfind("\n") + 1]
    while layout == "csv" and whole.count('"') % 2:  # cut off within a cell
        whole = whole[: whole.rfind("\n", 0, len(whole) - 1) + 1]
    n_commas, later = data.partition("\n")[0].count(","), data[len(whole) :].split("\n")[1:-1]
    if any(each.count(",") >= n_commas for each in later):
        raise InputError(
            f"{path} has a quote that is not closed in line {whole.count(chr(10)) + 1}: "
            "correct that line, or restore the file from a copy."
        )
    return whole
