"""Answers on disk: a line per image as it is decided, as JSON lines or CSV, or Parquet at the end.

Every line has the same fields, and an image that could not be read has its ``error`` instead
of an answer. A file that was cut off is continued: its complete lines stay as they are. The folder
``OUT.resume`` beside it holds the settings, and the lines of a Parquet file, which cannot be
appended to.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, Self, TypeAlias

from crg.atomic import not_writable, replacing
from crg.extras import library
from crg.types import InputError, parsed_json

Layout: TypeAlias = Literal["jsonl", "csv", "parquet"]
Line: TypeAlias = dict[str, Any]

LAYOUTS: dict[str, Layout] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}
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
CORRECTED, UNSURE, TOP, SORTED_TO = "corrected", "unsure", "top", "sorted_to"  # added by options
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")  # how a formula may begin, or what marks one


class AnswerFile:
    """Writes lines and flushes each; closes what it opened at the end of a ``with`` block."""

    def __init__(
        self,
        target: Path | IO[str],
        layout: Layout,
        resume: bool = False,
        settings: Mapping[str, Any] | None = None,
        columns: Sequence[str] = FIELDS,
    ) -> None:
        """Open ``target``; a file that exists is only touched to ``resume`` it.

        ``settings`` are kept beside a file, and it is resumed with the same ones only;
        ``columns`` are those of a CSV file. A Parquet file is written when the ``with`` block
        ends without an exception.
        """
        self._layout, self._columns = layout, columns
        self._target = target if isinstance(target, Path) else None
        self.before: list[Line] = []  # the lines that were there
        if isinstance(target, Path):
            self._open(target, resume, settings)
        else:
            self._file = target
        try:
            if self._target is not None and settings is not None:
                _keep_settings(self._target, settings)
            if layout == "csv" and not (self._target and self._target.stat().st_size):
                self._write(csv_row(columns))
        except BaseException as error:
            self.__exit__(error)  # the caller has nothing to close
            raise

    def _open(self, target: Path, resume: bool, settings: Mapping[str, Any] | None) -> None:
        lines = lines_file(target, self._layout)
        if target.exists() and not resume:
            raise exists_already(target)
        if target.exists() and not lines.exists():
            raise InputError(
                f"{lines} is gone, without which {target} cannot be continued: replace it by "
                "--overwrite or choose another name."
            )
        try:
            if resume:
                check_settings(target, settings or {})
                self.before = appended(target, self._layout)
            if lines != target:
                lines.parent.mkdir(exist_ok=True)
            self._file = _opened(lines, self._layout, resume)
        except FileExistsError:
            raise exists_already(target) from None
        except OSError as error:
            raise not_writable(target, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._target is None:
            return
        try:
            self._file.close()  # which tries once more to write what a full disk refused
        except OSError as error:
            if kind is None:
                raise self._unwritable(error) from None
        if self._layout == "parquet" and kind is None:
            _write_parquet(self._target)

    def add(self, line: Mapping[str, Any]) -> None:
        """Write one line."""
        is_table = self._layout == "csv"
        self._write(csv_line(line, self._columns) if is_table else json_line(line))

    def sync(self) -> None:
        """Have the lines on the disk, whatever happens to the machine."""
        if self._target is not None:
            with contextlib.suppress(OSError):  # not every file system can
                os.fsync(self._file.fileno())

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except BrokenPipeError:  # the reader has closed the pipe, which is no fault
            raise
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> InputError:
        remedy = "make room and use --resume, for the lines before are kept"
        return InputError(
            f"{self._target or 'standard output'} cannot be written ({error.strerror}): "
            f"{remedy if self._target else 'make room there'}."
        )


def columns_for(top: int, unsure: bool, corrected: bool, is_sorted: bool) -> tuple[str, ...]:
    """The columns of a CSV file, with those that options add."""
    more = ((CORRECTED, corrected), (UNSURE, unsure))
    best = [name for place in range(1, top + 1) for name in _columns_of(place)]
    added = [name for name, is_there in more if is_there]
    return (*FIELDS, *added, *best, *([SORTED_TO] if is_sorted else []))


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


def resume_folder(path: Path) -> Path:
    """The folder that holds everything needed to continue a file of answers."""
    return path.with_name(f"{path.name}.resume")


def lines_file(path: Path, layout: Layout) -> Path:
    """The file that lines are appended to: the answers, or a companion of a Parquet file."""
    return resume_folder(path) / "answers.jsonl" if layout == "parquet" else path


def appended(path: Path, layout: Layout) -> list[Line]:
    """The complete lines that were appended so far; none if there is no file yet."""
    lines = lines_file(path, layout)
    return read_answers(lines, "csv" if layout == "csv" else "jsonl") if lines.exists() else []


def settings_file(path: Path) -> Path:
    """Where the settings of a file of answers are kept."""
    return resume_folder(path) / "settings.json"


def kept_settings(path: Path) -> dict[str, Any]:
    """The settings of a file of answers; empty if none are kept."""
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


def check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse to continue answers that were made with other settings."""
    kept = kept_settings(path)
    for name, value in json.loads(json.dumps(settings)).items():
        if kept.get(name, value) != value:
            raise InputError(
                f"{path} was made with another value of {name.replace('_', '-')} "
                f"({_brief(kept[name])}, not {_brief(value)}): use the same one or another --out."
            )


def _keep_settings(path: Path, settings: Mapping[str, Any]) -> None:
    settings_file(path).parent.mkdir(exist_ok=True)
    with replacing(settings_file(path)) as partial:
        partial.write_text(json.dumps(settings, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _brief(value: Any) -> str:
    text = "none" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_answers(path: Path, layout: Layout | None = None) -> list[Line]:
    """The complete lines of a file; numbers and truth values in their types."""
    layout = layout or LAYOUTS.get(path.suffix.lower(), "jsonl")
    try:
        lines = _READERS[layout](path)
        if not all(map(_is_answer, lines)):
            raise ValueError("a line is not an answer")
    except InputError:
        raise
    except (OSError, ValueError, TypeError, KeyError, NotImplementedError, csv.Error) as error:
        why = str(error).partition("\n")[0].rstrip(".")
        raise InputError(
            f"{path} holds no predictions ({why}): name a file that crg predict wrote."
        ) from None
    return lines


def _is_answer(line: Any) -> bool:
    """Whether it has a path, and a step or an error."""
    if not isinstance(line, dict) or not isinstance(line.get("path"), str):
        return False
    if not all(isinstance(line.get(name, ""), str) for name in ("label", SORTED_TO)):
        return False
    return type(line.get("step")) is int or isinstance(line.get("error"), str)


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


def _columns_of(place: int) -> tuple[str, str]:
    return f"top_{place}", f"top_{place}_probability"


def _harmless(value: Any) -> Any:
    """A cell that a spreadsheet would take for a formula gets an apostrophe, as they show it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value


def unmarked(cell: str) -> str:
    """A cell without the apostrophe that keeps spreadsheets from taking it for a formula."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in _FORMULA else cell


def _read_json(path: Path) -> list[Line]:
    return [parsed_json(line) for line in _complete_lines(path, "jsonl").split("\n")[:-1]]


def _read_csv(path: Path) -> list[Line]:
    rows = csv.DictReader(io.StringIO(_complete_lines(path, "csv"), newline=""))
    return [_typed(row) for row in rows]


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


def _read_parquet(path: Path) -> list[Line]:
    rows = library("pyarrow.parquet", "parquet").read_table(path, memory_map=False).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _write_parquet(target: Path) -> None:
    """Write the lines kept for a Parquet file as one table, completely or not at all."""
    pyarrow, parquet = library("pyarrow", "parquet"), library("pyarrow.parquet", "parquet")
    text, number, truth = pyarrow.string(), pyarrow.float64(), pyarrow.bool_()
    best = pyarrow.struct([("label", text), ("probability", number)])
    kinds = {"step": pyarrow.int64(), TOP: pyarrow.list_(best)}
    kinds |= {"probability": number, "zero_shot_probability": number}
    kinds |= {"changed": truth, CORRECTED: truth, UNSURE: truth}
    names = (*FIELDS, CORRECTED, UNSURE, TOP, SORTED_TO)
    schema = pyarrow.schema([(name, kinds.get(name, text)) for name in names])
    rows = [
        {name: _as_utf_8(value) for name, value in line.items()}
        for line in read_answers(lines_file(target, "parquet"))
    ]
    with replacing(target) as partial:
        parquet.write_table(pyarrow.Table.from_pylist(rows, schema), partial)


def _as_utf_8(value: Any) -> Any:
    """A value whose bytes that are not UTF-8, as a path may have, are spelled out."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


_READERS = {"jsonl": _read_json, "csv": _read_csv, "parquet": _read_parquet}


def _opened(path: Path, layout: Layout, resume: bool) -> IO[str]:
    if not resume:
        return path.open("x", encoding="utf-8", errors="surrogateescape", newline="")
    text = _complete_lines(path, layout) if path.exists() else ""
    file = path.open("a", encoding="utf-8", errors="surrogateescape", newline="")
    file.truncate(len(text.encode("utf-8", "surrogateescape")))  # a cut line is decided again
    return file


def _complete_lines(path: Path, layout: Layout) -> str:
    """The text up to the last complete line; a quote that complete lines follow must be closed."""
    try:
        data = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    complete = data[: data.rfind("\n") + 1]
    while layout == "csv" and complete.count('"') % 2:  # cut off within a cell
        complete = complete[: complete.rfind("\n", 0, len(complete) - 1) + 1]
    n_commas, later = data.partition("\n")[0].count(","), data[len(complete) :].split("\n")[1:-1]
    if any(each.count(",") >= n_commas for each in later):
        raise InputError(
            f"{path} has a quote that is not closed in line {complete.count(chr(10)) + 1}: "
            "correct that line, or restore the file from a copy."
        )
    return complete
