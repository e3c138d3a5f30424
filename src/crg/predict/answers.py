"""Predictions on disk: one line per image as it is decided, as JSON lines or CSV.

Every line has the same fields, and an image that could not be read has its ``error`` instead
of an answer. A file that was cut off is continued: its whole lines stay as they are.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal, Self, TypeAlias

from crg.atomic import not_writable, replacing
from crg.types import InputError

Format: TypeAlias = Literal["jsonl", "csv"]
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


class AnswerFile:
    """Writes lines and flushes each; closes what it opened at the end of a ``with`` block."""

    def __init__(
        self,
        target: Path | IO[str],
        layout: Format,
        resume: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Open ``target``; a file that exists is only touched to ``resume`` it.

        ``settings`` are kept beside a file, so that nobody resumes it with others.
        """
        self._layout = layout
        self._owned = isinstance(target, Path)
        self._name = str(target) if isinstance(target, Path) else "standard output"
        self.before: list[Line] = []  # the lines that were there
        if not isinstance(target, Path):
            self._file = target
        else:
            if resume and target.exists():
                check_settings(target, settings)
                self.before = read_answers(target, layout)
            self._file = _opened(target, resume)
        try:
            if isinstance(target, Path) and settings is not None:
                _keep_settings(target, settings)
            if layout == "csv" and not (isinstance(target, Path) and target.stat().st_size):
                self._write(_csv_line(FIELDS))
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
        whole = {field: line.get(field) for field in FIELDS}
        if self._layout == "csv":
            self._write(_csv_line(["" if value is None else value for value in whole.values()]))
        else:
            known = {field: value for field, value in whole.items() if value is not None}
            self._write(_json_line(known))

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
    try:
        kept = json.loads(settings_file(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return  # nothing is known of them
    if not isinstance(kept, dict):
        return
    for name, value in json.loads(json.dumps(settings or {})).items():
        if kept.get(name, value) != value:
            raise InputError(
                f"{path} was made with other {name} ({_brief(kept[name])}, not {_brief(value)}): "
                "use the same ones or another --out."
            )


def settings_file(path: Path) -> Path:
    """Where the settings of a file of answers are kept."""
    return resume_folder(path) / "settings.json"


def resume_folder(path: Path) -> Path:
    """Where all that is needed to continue with a file of answers is kept."""
    return path.with_name(f"{path.name}.resume")


def _keep_settings(path: Path, settings: Mapping[str, Any]) -> None:
    settings_file(path).parent.mkdir(exist_ok=True)
    with replacing(settings_file(path)) as partial:
        partial.write_text(json.dumps(settings, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_answers(path: Path, layout: Format) -> list[Line]:
    """The whole lines of a file; numbers and truth values in their types."""
    text = _whole_lines(path)
    try:
        if layout == "jsonl":
            lines = [json.loads(line) for line in text.split("\n")[:-1]]
        else:
            lines = [_typed(row) for row in csv.DictReader(io.StringIO(text, newline=""))]
        if not all(map(_is_answer, lines)):
            raise ValueError("a line is not an answer")
    except (ValueError, TypeError, KeyError, RecursionError, csv.Error) as error:
        raise InputError(
            f"{path} holds no predictions ({error}): name another file with --out."
        ) from None
    return lines


def _is_answer(line: Any) -> bool:
    """Whether it has a path, and a step or an error."""
    if not isinstance(line, dict) or not isinstance(line.get("path"), str):
        return False
    return type(line.get("step")) is int or isinstance(line.get("error"), str)


def layout_of(path: Path | None, asked: Format | None) -> Format:
    """The format that was asked for, or the one that the suffix names, or JSON lines."""
    if asked is not None:
        return asked
    return "csv" if path is not None and path.suffix.lower() == ".csv" else "jsonl"


def _opened(path: Path, resume: bool) -> IO[str]:
    try:
        if not resume:
            return path.open("x", encoding="utf-8", errors="surrogateescape", newline="")
        whole = len(_whole_lines(path).encode("utf-8", "surrogateescape")) if path.exists() else 0
        file = path.open("a", encoding="utf-8", errors="surrogateescape", newline="")
        file.truncate(whole)  # a line that a crash cut off is decided again
        return file
    except FileExistsError:
        raise InputError(
            f"{path} exists already: continue with it by --resume, replace it by --overwrite or "
            "choose another name."
        ) from None
    except OSError as error:
        raise not_writable(path, error) from None


def _whole_lines(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    data = data[: data.rfind(b"\n") + 1]
    while path.suffix.lower() == ".csv" and data.count(b'"') % 2:  # cut off within a cell
        data = data[: data.rfind(b"\n", 0, len(data) - 1) + 1]
    return data.decode("utf-8", "surrogateescape")


def _json_line(known: Mapping[str, Any]) -> str:
    line = json.dumps(known, ensure_ascii=False)
    if not line.isprintable():
        line = json.dumps(known)  # what is not UTF-8, or breaks lines or terminals, is spelled out
    return line + "\n"


def _csv_line(values: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(map(_harmless, values))
    return text.getvalue()[:-2] + "\n"  # cells that hold either of the two are quoted


def _harmless(value: Any) -> Any:
    """A cell that a spreadsheet would take for a formula gets an apostrophe, as they show it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value


def _typed(row: Mapping[str, str]) -> Line:
    if None in row:
        raise ValueError("a line has too many cells")
    line: Line = {
        name: value[1:] if value[0] == "'" and value[1:2] in _FORMULA else value
        for name, value in row.items()
        if value
    }
    if "step" in line:
        line["step"] = int(line["step"])
        line["changed"] = line["changed"] == "True"
    return line
