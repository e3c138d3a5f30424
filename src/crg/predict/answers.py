"""Answers: a line of JSON per image as it is decided, or a table for people on standard output.

An image that could not be read has its ``error`` instead of an answer. A file that was cut off is
continued: its complete lines stay as they are. The folder ``OUT.resume`` beside it holds the
settings, and the lines that a CSV or Parquet file is written from whenever a run ends.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Required, Self, TypeAlias, TypedDict, get_type_hints

import msgspec
import numpy as np

from crg.answer import COLUMNS, NONE_OF_THESE, Answer
from crg.atomic import content_of, not_writable, replacing
from crg.extras import library
from crg.predict.journal import Journal, no_room
from crg.predict.lines import TOP, PrintedTable, columns_of, csv_line, csv_row, json_line, unmarked
from crg.predict.sorting import Sorter
from crg.types import InputError, counted, parsed_json, printable

Line: TypeAlias = dict[str, Any]  # of the form below

TABLES = (".csv", ".parquet")  # suffixes of what is written from the lines when a run ends
SUFFIXES = (".jsonl", ".ndjson", *TABLES)
CORRECTED, UNSURE, SORTED_TO = "corrected", "unsure", "sorted_to"  # added by options
NONE, CLASS_SET = "none_of_these", "class_set"  # likewise
_CLASSES_SHOWN = 20  # in the summary


class _Best(TypedDict):
    label: str
    probability: float


class _Form(TypedDict, total=False):
    path: Required[str]
    label: str
    probability: float
    zero_shot_label: str
    zero_shot_probability: float
    changed: bool
    outside: float
    step: int
    error: str
    corrected: bool
    unsure: bool
    none_of_these: bool
    class_set: list[str]
    top: list[_Best]
    sorted_to: str


@dataclass
class AnswerFile:
    """Writes a line for each image and flushes it, sorts the image, and counts the answers.

    A file that exists is only touched to ``resume`` it. A CSV or Parquet file is written when the
    ``with`` block ends, whatever ends it.
    """

    target: Path | None  # None: standard output
    resume: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)  # resumed with the same ones only
    top: int = 0  # classes to write with their probabilities
    unsure_below: float = 0.0  # labels are withheld below this probability
    sorter: Sorter | None = None
    table: PrintedTable | None = None  # for people, on standard output
    lines: list[Line] | None = None  # gets every line, if it is a list
    rows: Journal | None = None  # gets the probabilities (1, K) of every answer, before its line
    classes: Sequence[str] = ()  # in the order of the probabilities
    before: list[Line] = field(default_factory=list)  # the lines that were there
    counts: Counter[str] = field(default_factory=Counter)  # of the complete file
    per_class: Counter[str] = field(default_factory=Counter)  # "" for no label
    missing_labels: int = 0  # until sets of classes can be given
    errors: dict[str, str] = field(default_factory=dict)  # why an image is unreadable, by path
    _answered: set[str] = field(default_factory=set)  # paths
    _corrected: set[str] = field(default_factory=set)  # absolute paths

    def __post_init__(self) -> None:
        self.top = max(self.top, self.unsure_below > 0)  # an unsure line says what it leans to
        self._file = sys.stdout if self.target is None else self._opened(self.target)
        for line in self.before:
            self._register(line)
        n = self.counts["answered"]
        if self.rows is not None and self.rows.cut(n) < n:
            raise InputError(f"{self.rows.path} lacks probabilities: use --overwrite.")
        if self.sorter is not None:
            self.sorter.repair(self.before)
        if self.table is not None:
            self._file.write(self.table.header())

    def _opened(self, target: Path) -> IO[str]:
        lines = lines_file(target)
        if target.exists() and not lines.exists():
            raise InputError(
                f"{lines} is gone, without which {target} cannot be continued: replace it by "
                "--overwrite or choose another name."
            )
        if self.resume:
            _check_settings(target, self.settings)
            self.before = appended(target)
        try:
            if self.settings or lines != target:
                resume_folder(target).mkdir(exist_ok=True)
            if self.settings:
                with replacing(resume_folder(target) / "settings.json") as partial:
                    partial.write_text(json.dumps(self.settings, indent=1) + "\n", "utf-8")
            file = lines.open("a" if self.resume else "x", encoding="utf-8", newline="")
        except OSError as error:
            raise not_writable(target, error) from None
        file.truncate(len(_complete(lines)))  # a line that was cut off is decided again
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.target is None:
            return
        try:
            self._file.close()  # which tries once more to write what a full disk refused
        except OSError as error:
            if kind is None:
                raise no_room(self.target, error) from None
        if self.target.suffix.lower() in TABLES:
            with contextlib.suppress(*[InputError] if kind else ()):  # what comes first is reported
                _write_table(self.target, appended(self.target))

    def is_new(self, path: str | Path) -> bool:
        """Whether an image has no answer yet."""
        return str(path) not in self._answered and os.path.abspath(path) not in self._corrected

    def answer(self, path: str, answer: Answer) -> None:
        """Write the line of an image that was answered."""
        answer = replace(answer, unsure_below=self.unsure_below)
        self.missing_labels = answer.prediction.decision.missing_labels or 0
        self._add_row(answer.step, dict(answer.top(len(self.classes))))
        self.add({"path": path, **answer.as_dict(self.top)})

    def correct(self, path: str, label: str, step: int) -> None:
        """Write what a person said of an image, unless it was written before."""
        if self.is_new(path):
            self._add_row(step, {label: 1.0})
            line = {"path": path, "label": label, "probability": 1.0, "step": step}
            self.add({**line, CORRECTED: True})

    def unreadable(self, path: str, error: str) -> None:
        """Write the line of an image that cannot be read, unless it was written before."""
        if self.errors.get(path) != error:
            self.add({"path": path, "error": error})

    def _add_row(self, step: int, probs: Mapping[str, float]) -> None:
        if self.rows is not None:
            self.rows.add(step, np.array([[probs.get(name, 0) for name in self.classes]]))

    def write_probabilities(self, target: Path) -> None:
        """Write a NumPy file (N, K), a row per answer, at once or not at all."""
        rows = [row for _, row, _ in self.rows or ()] or [np.empty((0, len(self.classes)), "f4")]
        with replacing(target) as partial, partial.open("wb") as file:
            np.save(file, np.concatenate(rows))

    def add(self, line: Line) -> None:
        """Write one line, then put the image where it belongs."""
        path = Path(line["path"])
        if self.sorter is not None and "label" in line:
            label = None if line.get(NONE) else line["label"]
            line[SORTED_TO] = str(self.sorter.place_for(path, label))
        self._write(json_line(line) if self.table is None else self.table.row(line))
        self._register(line)
        if self.sorter is not None and SORTED_TO in line:
            self.sync()  # a file is never put where no line says
            self.sorter.put(path, Path(line[SORTED_TO]))

    def sync(self) -> None:
        """Have the lines on the disk, whatever happens to the machine."""
        if self.target is not None:
            with contextlib.suppress(OSError):  # not every file system can
                os.fsync(self._file.fileno())

    def summary(self) -> str:
        """How many images were answered, and how many of them changed or are unsure."""
        n = self.counts["answered"]
        kinds = [kind for kind in (UNSURE, NONE, CORRECTED, "unreadable") if self.counts[kind]]
        more = "".join(f", {self.counts[kind]} {kind.replace('_', ' ')}" for kind in kinds)
        if self.missing_labels:
            more += f". Sets need 20 corrected images: correct {self.missing_labels} more"
        changed = f"{self.counts['changed']} of them changed by adaptation"
        return f"{counted(n, 'image')} answered, {changed}{more}."

    def class_summary(self) -> Iterator[str]:
        """How many images each class has, the most frequent first; a long list is cut."""
        named = sorted((-n, name) for name, n in self.per_class.items() if name)
        rows = [(printable(name), -n) for n, name in named[:_CLASSES_SHOWN]]
        if rest := named[_CLASSES_SHOWN:]:
            rows.append((f"... and {len(rest)} more", -sum(n for n, _ in rest)))
        for kind, shown in ((UNSURE, UNSURE), (NONE, NONE_OF_THESE)):
            rows += [(f"({shown})", self.counts[kind])] if self.counts[kind] else []
        width = max((len(name) for name, _ in rows), default=0)
        return (f"  {name:{width}} {n:7}" for name, n in rows)

    def _register(self, line: Line) -> None:
        if self.lines is not None:
            self.lines.append(line)
        self.errors.pop(line["path"], None)  # it is read in the end, or fails for another reason
        self.errors |= {line["path"]: line["error"]} if "error" in line else {}
        self.counts["unreadable"] = len(self.errors)
        if "error" in line:
            return
        kinds = [kind for kind in ("changed", UNSURE, NONE, CORRECTED) if line.get(kind) is True]
        self.counts.update(["answered", *kinds])
        self.per_class[line["label"]] += 1
        self._answered.add(line["path"])
        if line.get(CORRECTED):
            self._corrected.add(os.path.abspath(line["path"]))

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except BrokenPipeError:  # the reader has closed the pipe, which is no fault
            raise
        except OSError as error:
            raise no_room(self.target, error) from None


def resume_folder(path: Path) -> Path:
    """The folder that holds everything needed to continue a file of answers."""
    return path.with_name(f"{path.name}.resume")


def lines_file(path: Path) -> Path:
    """The file that lines are appended to: the answers, or a companion of a CSV or Parquet file."""
    return resume_folder(path) / "answers.jsonl" if path.suffix.lower() in TABLES else path


def appended(path: Path) -> list[Line]:
    """The complete lines that were appended so far; none if there is no file yet."""
    return read_answers(path) if lines_file(path).exists() else []


def kept_settings(path: Path) -> dict[str, Any]:
    """The settings of a file of answers; empty if none are kept."""
    file = resume_folder(path) / "settings.json"
    try:
        return msgspec.convert(parsed_json(file.read_bytes()), dict[str, Any])
    except OSError:
        return {}
    except ValueError as error:
        raise InputError(
            f"{file} is damaged ({error}): restore it from a copy, or remove it if the settings of "
            "this command are those of the answers."
        ) from None


def _check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    kept = kept_settings(path)
    for name, value in json.loads(json.dumps(settings)).items():
        if kept.get(name, value) != value:
            raise InputError(
                f"{path} was made with another value of {name.replace('_', '-')} "
                f"({kept[name]!r:.60}, not {value!r:.60}): use the same one or another --out."
            )


def read_answers(path: Path) -> list[Line]:
    """The complete lines of a file of answers, or those that a CSV or Parquet file is made of.

    A CSV file that has lost its lines is read itself, without sets and further classes.
    """
    is_alone = path.suffix.lower() == ".csv" and path.exists() and not lines_file(path).exists()
    try:
        if is_alone:
            rows = _read_csv(path)
        else:
            kept = lines_file(path) if path.exists() or resume_folder(path).exists() else path
            rows = [parsed_json(line) for line in _complete(kept).splitlines()]
        lines = msgspec.convert(rows, list[_Form], strict=not is_alone)
        json.dumps(rows, ensure_ascii=False).encode("utf-8", "surrogateescape")  # no lone surrogate
        if not all("error" in line or {"label", "step"} <= line.keys() for line in lines):
            raise ValueError("a line is not an answer")
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        why = str(error).partition("\n")[0].rstrip(".")
        raise InputError(
            f"{path} holds no predictions ({why}): name a file that crg predict wrote."
        ) from None
    return [dict(line) for line in lines]


def _read_csv(path: Path) -> list[Line]:
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        rows = [{k: unmarked(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
    if not rows:
        raise ValueError("it has no lines")
    for row in rows:
        row.pop(CLASS_SET, None)
        if "step" in row:
            row.setdefault("label", "")
    return rows


def place_of(line: Line) -> Path:
    """Where the image of a line is now: it may have been moved when it was sorted."""
    path, moved = Path(line["path"]), Path(line.get(SORTED_TO) or line["path"])
    return moved if moved.exists() and not path.exists() else path


def _write_table(target: Path, lines: Sequence[Line]) -> None:
    """Write the lines as CSV or Parquet, completely or not at all."""
    with replacing(target) as partial:
        if target.suffix.lower() == ".csv":
            columns = _columns(lines)
            rows = (csv_line(line, columns) for line in lines)
            with partial.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.writelines([csv_row(columns), *rows])
        else:
            _write_parquet(partial, lines)


def _columns(lines: Sequence[Line]) -> list[str]:
    """The columns of a CSV file: those that are always there, and others that a line has."""
    n_top = max((len(line.get(TOP, ())) for line in lines), default=0)
    found = {*COLUMNS, *(name for line in lines for name in line)} - {TOP}
    columns = [name for name in get_type_hints(_Form) if name in found]
    return columns + [name for place in range(n_top) for name in columns_of(place + 1)]


def _write_parquet(target: Path, lines: Sequence[Line]) -> None:
    pyarrow, parquet = library("pyarrow", "parquet"), library("pyarrow.parquet", "parquet")
    kinds = {str: pyarrow.string(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    kinds |= {int: pyarrow.int64(), list[str]: pyarrow.list_(pyarrow.string())}
    best = pyarrow.struct([(name, kinds[kind]) for name, kind in get_type_hints(_Best).items()])
    kinds[list[_Best]] = pyarrow.list_(best)
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in get_type_hints(_Form).items()])
    rows = [{name: _as_utf_8(value) for name, value in line.items()} for line in lines]
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema), target)


def _as_utf_8(value: Any) -> Any:
    """A value whose bytes that are not UTF-8, as a path may have, are spelled out."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _complete(path: Path) -> bytes:
    """Read a file up to the end of its last complete line."""
    remedy = "put it back" if path.parent.suffix == ".resume" else "check the path"
    content = content_of(path, remedy)
    return content[: content.rfind(b"\n") + 1]
