"""Predictions on disk."""

from __future__ import annotations

import errno
import io
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from crg.answer import COLUMNS
from crg.predict.answers import AnswerFile, Layout, layout_of, read_answers
from crg.predict.job import PredictJob
from crg.predict.lines import PrintedTable
from sentences import refused_in_one_sentence

LINE = {"path": 'a, "b"\nä.png', "label": "cat", "probability": 0.5, "zero_shot_label": "dog",
        "zero_shot_probability": 0.25, "changed": True, "step": 1}  # fmt: skip
BROKEN = {"path": "c.png", "error": "c.png is empty: leave it out."}
SETTINGS = {"views": 8, "classes": ["a", "b"]}
ODD = ["a\u0085b", "a\u2028b", "a\u2029b", "a\rb", "=1+1", "-x", "@y", "'=z", "\x1b[2J", 'q"q',
       "a\nb", "latin\udce9.png"]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where answers go."""
    return tmp_path / "answers.csv"


def write(path: Path, layout: Layout, *lines: dict[str, Any], resume: bool = False) -> None:
    """A file of these answers."""
    with AnswerFile(path, layout, resume, SETTINGS) as file:
        for line in lines:
            file.add(line)


@pytest.mark.parametrize("layout", get_args(Layout))
def test_lines_can_be_read_again(layout: Layout, path: Path) -> None:
    """Lines are read as they were written, with numbers and truth values in their types."""
    write(path, layout, LINE, BROKEN)
    assert read_answers(path, layout) == [LINE, BROKEN]


@pytest.mark.parametrize("layout", ["jsonl", "csv"])
def test_names_survive_a_resume(path: Path, layout: Layout) -> None:
    """Line separators, formulas, quotes and escapes are read back as they were written."""
    for resume, names in ((False, ODD[:6]), (True, ODD[6:])):
        lines = ({**LINE, "path": name, "label": "=cmd()"} for name in names)
        write(path, layout, *lines, resume=resume)
    assert [line["path"] for line in read_answers(path, layout)] == ODD
    text = path.read_bytes().decode(errors="surrogateescape" if layout == "csv" else "strict")
    if layout == "csv":
        assert text.count(",".join(COLUMNS)) == 1
        assert not any(
            cell[:1] in ("=", "@") for row in text.split("\n") for cell in row.split(",")
        )
    else:
        assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("layout", "rest"), [("jsonl", b'{"path": "half'), ("csv", b'half,"'), ("csv", b'"two\nli')]
)
def test_a_truncated_line_is_taken_off(layout: Layout, rest: bytes, path: Path) -> None:
    """A line without an end is dropped when the file is resumed; whole lines stay as they are."""
    write(path, layout, LINE, BROKEN)
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    with AnswerFile(path, layout, resume=True) as file:
        assert file.before == [LINE, BROKEN] and path.read_bytes() == whole


@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_quote_that_is_not_closed_loses_nothing(row: int, path: Path) -> None:
    """Whole lines behind it are neither passed over nor cut off, even if the header has it."""
    write(path, "csv", *({**LINE, "path": f"{step}.png", "step": step} for step in range(3)))
    lines = path.read_text().split("\n")
    lines[row] = lines[row].replace(",", ',"', 1)
    path.write_text("\n".join(lines))
    with refused_in_one_sentence("answers.csv", f"not closed in line {row + 1}"):
        AnswerFile(path, "csv", resume=True)
    assert path.read_text() == "\n".join(lines)


@pytest.mark.parametrize("text", ["not\nours\n", '{"path": "a", "step": "x"}\n', '{"step": 1}\n'])
def test_other_files_are_left_alone(text: str, path: Path) -> None:
    """A file that holds something else is refused and keeps its content."""
    path.write_text(text)
    with refused_in_one_sentence("crg predict wrote"):
        AnswerFile(path, "jsonl", resume=True)
    assert path.read_text() == text


class Full(io.StringIO):
    """A file on a disk without room, which says so at every flush and when it is closed."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    close = flush


def test_a_full_disk_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says that the lines before are kept, unless they went to a stream."""
    monkeypatch.setattr("sys.stdout", Full())
    with refused_in_one_sentence("standard output", "make room"):
        AnswerFile(None, "jsonl").add(LINE)
    monkeypatch.setattr(AnswerFile, "_opened", lambda *_: Full())
    with refused_in_one_sentence("No space left", "kept"):
        write(path, "jsonl", LINE)


def test_lines_of_a_parquet_file_that_are_gone_are_reported(path: Path) -> None:
    """The table cannot be appended to, so without its lines it is not touched."""
    write(path, "parquet", LINE)
    (path.with_name("answers.csv.resume") / "answers.jsonl").unlink()
    with refused_in_one_sentence("is gone", "--overwrite"):
        write(path, "parquet", BROKEN, resume=True)
    assert read_answers(path, "parquet") == [LINE]


def test_settings_are_kept_and_checked(path: Path) -> None:
    """A file is not resumed with other settings, and the difference is named."""
    write(path, "jsonl", BROKEN)
    with refused_in_one_sentence("views", "8, not 1"):
        AnswerFile(path, "jsonl", True, {**SETTINGS, "views": 1})
    with AnswerFile(path, "jsonl", True, SETTINGS) as file:
        assert file.before == [BROKEN]


@pytest.mark.parametrize("content", ["[]", "5", "{", "[" * 100_000])
def test_settings_that_are_damaged_are_refused(content: str, path: Path) -> None:
    """It is unknown then whether the answers would continue as they began."""
    write(path, "jsonl", BROKEN)
    file = path.with_name("answers.csv.resume") / "settings.json"
    file.write_text(content)
    with refused_in_one_sentence("settings.json is damaged"):
        AnswerFile(path, "jsonl", True, {"views": 1})
    assert file.read_text() == content


def test_the_summary_of_many_classes_is_bounded() -> None:
    """The twenty most frequent classes are listed, and the others counted together."""
    output = AnswerFile(None, "jsonl")
    output.per_class = Counter({f"class {k:02}": 40 - k for k in range(30)})
    *shown, rest = output.class_summary()
    assert len(shown) == 20 and shown[0].split() == ["class", "00", "40"]
    assert rest.split() == ["10", "more", "classes", str(sum(40 - k for k in range(20, 30)))]


def test_a_table_is_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is too long loses its beginning; what is special is named; files go by suffix."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    paths = ["a.png", "a folder/with a name/图像.png"]
    table = PrintedTable(paths, ["red", "green"], is_coloured=True)
    line: dict[str, Any] = {"label": "red", "probability": 0.5, "zero_shot_label": "green"}
    line |= {"zero_shot_probability": 1.0, "top": [{"label": "green", "probability": 0.25}]}
    head, short = table.header(), table.row({"path": "a.png", **line, "changed": True})
    long = table.row({"path": paths[1], **line, "label": "", "unsure": True})
    assert head == "image             label               zero-shot\n"
    assert short.startswith("a.png             red          50.0%  green       100.0%  \x1b[1;33m")
    assert short.endswith("changed\x1b[0m  green 25%\n")
    assert long.startswith("…a name/图像.png  (unsure) ") and "\x1b[2munsure" in long
    alone = line | {"top": [{"label": "red", "probability": 0.5}]}
    assert table.row({"path": "a.png", **alone}).endswith("green       100.0%\n")  # said already
    odd = table.row({"path": "b\x1b", "error": "empty"})
    assert odd == "b\\x1b             \x1b[31mempty\x1b[0m\n"
    assert layout_of(None, None) == "jsonl"  # in a pipe
    assert (layout_of(Path("a.CSV"), None), layout_of(Path("a.csv"), "jsonl")) == ("csv", "jsonl")
    with refused_in_one_sentence("--format csv"):
        PredictJob(images=("in",), out=Path("a.txt"), layout="table")
