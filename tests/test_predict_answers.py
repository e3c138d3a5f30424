"""Predictions on disk."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import get_args

import pytest

from crg.predict import answers
from crg.predict.answers import FIELDS, AnswerFile, Layout, layout_of, read_answers
from sentences import refused_in_one_sentence

LINE = {"path": 'a, "b"\nä.png', "label": "cat", "probability": 0.5, "zero_shot_label": "dog",
        "zero_shot_probability": 0.25, "changed": True, "step": 1}  # fmt: skip
BROKEN = {"path": "c.png", "error": "c.png is empty: leave it out."}


@pytest.mark.parametrize("layout", get_args(Layout))
def test_lines_can_be_read_again(layout: Layout, tmp_path: Path) -> None:
    """Lines are read as they were written, with numbers and truth values in their types."""
    path = tmp_path / "answers"
    with AnswerFile(path, layout) as file:
        file.add(LINE)
        file.add(BROKEN)
    good, bad = read_answers(path, layout)
    assert good["path"] == LINE["path"] and good["step"] == 1 and good["changed"] is True
    assert bad == BROKEN


def test_csv_has_one_header(tmp_path: Path) -> None:
    """The names of the columns come first, once, also when a file is resumed."""
    path = tmp_path / "answers.csv"
    for resume, line in ((False, LINE), (True, BROKEN)):
        with AnswerFile(path, "csv", resume) as file:
            file.add(line)
    assert path.read_text().count(",".join(FIELDS)) == 1
    assert len(read_answers(path, "csv")) == 2


@pytest.mark.parametrize("layout", ["jsonl", "csv"])
def test_a_truncated_line_is_taken_off(layout: Layout, tmp_path: Path) -> None:
    """A line without an end is dropped when the file is resumed; whole lines stay as they are."""
    path = tmp_path / "answers"
    with AnswerFile(path, layout) as file:
        file.add(BROKEN)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"path": "half')
    with AnswerFile(path, layout, resume=True) as file:
        assert file.before == [BROKEN] and path.read_bytes() == whole


@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_quote_that_is_not_closed_loses_nothing(row: int, tmp_path: Path) -> None:
    """Whole lines behind it are neither passed over nor cut off, even if the header has it."""
    path = tmp_path / "answers.csv"
    with AnswerFile(path, "csv") as file:
        for step in range(3):
            file.add({**LINE, "path": f"{step}.png", "step": step})
    lines = path.read_text().split("\n")
    lines[row] = lines[row].replace(",", ',"', 1)
    path.write_text("\n".join(lines))
    with refused_in_one_sentence("answers.csv", f"not closed in line {row + 1}"):
        AnswerFile(path, "csv", resume=True)
    with refused_in_one_sentence("not closed"):
        read_answers(path, "csv")
    assert path.read_text() == "\n".join(lines)


def test_quotes_in_json_are_not_those_of_a_table(tmp_path: Path) -> None:
    """What cuts a table short is decided by the format, not by the suffix."""
    path = tmp_path / "answers.csv"
    line = {"path": 'q"q.png', "error": "it is empty: leave it out."}
    for resume in (False, True):
        with AnswerFile(path, "jsonl", resume) as file:
            file.add(line)
    assert read_answers(path, "jsonl") == [line, line]


def test_existing_files_are_left_alone(tmp_path: Path) -> None:
    """Without resume a file that exists is refused and keeps its content."""
    path = tmp_path / "answers.jsonl"
    path.write_text("mine")
    with refused_in_one_sentence("--resume"):
        AnswerFile(path, "jsonl")
    assert path.read_text() == "mine"


def test_other_files_are_not_resumed(tmp_path: Path) -> None:
    """A file that holds something else is refused and keeps its content."""
    path = tmp_path / "answers.jsonl"
    path.write_text("not\nours\n")
    with refused_in_one_sentence("crg predict wrote"):
        AnswerFile(path, "jsonl", resume=True)
    assert path.read_text() == "not\nours\n"


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    """A file in a folder that does not exist is refused in a sentence."""
    with refused_in_one_sentence("writable"):
        AnswerFile(tmp_path / "none" / "answers.jsonl", "jsonl")


class Full(io.StringIO):
    """A file on a disk without room, which says so at every flush and when it is closed."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        self.flush()


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When there is no room the sentence says that the lines before are kept."""
    monkeypatch.setattr(answers, "_opened", lambda *_: Full())
    with (
        refused_in_one_sentence("No space left", "kept"),
        AnswerFile(tmp_path / "answers.jsonl", "jsonl") as file,
    ):
        file.add(LINE)


def test_a_full_standard_output_is_reported() -> None:
    """What goes to a stream cannot be resumed, and the sentence does not say so."""
    with refused_in_one_sentence("standard output", "make room there"):
        AnswerFile(Full(), "jsonl").add(LINE)


def test_settings_are_kept_and_checked(tmp_path: Path) -> None:
    """A file is not resumed with other settings, and the difference is named."""
    path = tmp_path / "answers.jsonl"
    with AnswerFile(path, "jsonl", settings={"views": 8, "classes": ["a", "b"]}) as file:
        file.add(BROKEN)
    with refused_in_one_sentence("views", "8, not 1"):
        AnswerFile(path, "jsonl", True, {"views": 1, "classes": ["a", "b"]})
    with AnswerFile(path, "jsonl", True, {"views": 8, "classes": ["a", "b"]}) as file:
        assert file.before == [BROKEN]


@pytest.mark.parametrize("content", ["[]", "5", "{", "[" * 100_000])
def test_settings_that_are_damaged_are_refused(content: str, tmp_path: Path) -> None:
    """It is unknown then whether the answers would continue as they began."""
    path = tmp_path / "answers.jsonl"
    with AnswerFile(path, "jsonl", settings={"views": 8}) as file:
        file.add(BROKEN)
    answers.settings_file(path).write_text(content)
    with refused_in_one_sentence("settings.json is damaged"):
        AnswerFile(path, "jsonl", True, {"views": 1})
    assert answers.settings_file(path).read_text() == content


def test_names_that_are_not_utf_8_leave_the_file_readable(tmp_path: Path) -> None:
    """An undecodable name is spelled out in JSON and comes back as it was."""
    path = tmp_path / "answers.jsonl"
    with AnswerFile(path, "jsonl") as file:
        file.add({"path": "latin\udce9.png", "error": "x: y."})
    path.read_bytes().decode("utf-8")
    assert read_answers(path, "jsonl")[0]["path"] == "latin\udce9.png"


def test_the_suffix_chooses_the_format() -> None:
    """CSV by suffix or by wish, JSON lines otherwise."""
    assert layout_of(Path("a.CSV"), None) == "csv"
    assert layout_of(Path("a.csv"), "jsonl") == "jsonl"
    assert layout_of(None, None) == "jsonl"
