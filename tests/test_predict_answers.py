"""Predictions on disk."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any, get_args

import pytest

from crg.predict import answers
from crg.predict.answers import FIELDS, AnswerFile, Layout, layout_of, read_answers
from sentences import refused_in_one_sentence

LINE = {"path": 'a, "b"\nä.png', "label": "cat", "probability": 0.5, "zero_shot_label": "dog",
        "zero_shot_probability": 0.25, "changed": True, "step": 1}  # fmt: skip
BROKEN = {"path": "c.png", "error": "c.png is empty: leave it out."}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where answers go."""
    return tmp_path / "answers.csv"


def write(path: Path, layout: Layout, *lines: dict[str, Any], **more: Any) -> None:
    """A file of these answers."""
    with AnswerFile(path, layout, **more) as file:
        for line in lines:
            file.add(line)


@pytest.mark.parametrize("layout", get_args(Layout))
def test_lines_can_be_read_again(layout: Layout, path: Path) -> None:
    """Lines are read as they were written, with numbers and truth values in their types."""
    write(path, layout, LINE, BROKEN)
    good, bad = read_answers(path, layout)
    assert good["path"] == LINE["path"] and good["step"] == 1 and good["changed"] is True
    assert bad == BROKEN


def test_csv_has_one_header(path: Path) -> None:
    """The names of the columns come first, once, also when a file is resumed."""
    write(path, "csv", LINE)
    write(path, "csv", BROKEN, resume=True)
    assert path.read_text().count(",".join(FIELDS)) == 1
    assert len(read_answers(path, "csv")) == 2


@pytest.mark.parametrize("layout", ["jsonl", "csv"])
def test_a_truncated_line_is_taken_off(layout: Layout, path: Path) -> None:
    """A line without an end is dropped when the file is resumed; whole lines stay as they are."""
    write(path, layout, BROKEN)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"path": "half')
    with AnswerFile(path, layout, resume=True) as file:
        assert file.before == [BROKEN] and path.read_bytes() == whole


@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_quote_that_is_not_closed_loses_nothing(row: int, path: Path) -> None:
    """Whole lines behind it are neither passed over nor cut off, even if the header has it."""
    write(path, "csv", *({**LINE, "path": f"{step}.png", "step": step} for step in range(3)))
    lines = path.read_text().split("\n")
    lines[row] = lines[row].replace(",", ',"', 1)
    path.write_text("\n".join(lines))
    with refused_in_one_sentence("answers.csv", f"not closed in line {row + 1}"):
        AnswerFile(path, "csv", resume=True)
    with refused_in_one_sentence("not closed"):
        read_answers(path, "csv")
    assert path.read_text() == "\n".join(lines)


@pytest.mark.parametrize("name", ['q"q.png', "latin\udce9.png"])
def test_odd_names_leave_json_readable(name: str, path: Path) -> None:
    """A quote cuts tables only, whatever the suffix; what is not UTF-8 is spelled out."""
    line = {"path": name, "error": "it is empty: leave it out."}
    for resume in (False, True):
        write(path, "jsonl", line, resume=resume)
    path.read_bytes().decode("utf-8")
    assert read_answers(path, "jsonl") == [line, line]


@pytest.mark.parametrize(("resume", "word"), [(False, "--resume"), (True, "crg predict wrote")])
def test_other_files_are_left_alone(resume: bool, word: str, path: Path) -> None:
    """A file that exists, or holds something else, is refused and keeps its content."""
    path.write_text("not\nours\n")
    with refused_in_one_sentence(word):
        AnswerFile(path, "jsonl", resume)
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


def test_a_full_disk_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says that the lines before are kept, unless they went to a stream."""
    monkeypatch.setattr(answers, "_opened", lambda *_: Full())
    with refused_in_one_sentence("No space left", "kept"):
        write(path, "jsonl", LINE)
    with refused_in_one_sentence("standard output", "make room there"):
        AnswerFile(Full(), "jsonl").add(LINE)


def test_settings_are_kept_and_checked(path: Path) -> None:
    """A file is not resumed with other settings, and the difference is named."""
    settings = {"views": 8, "classes": ["a", "b"]}
    write(path, "jsonl", BROKEN, settings=settings)
    with refused_in_one_sentence("views", "8, not 1"):
        AnswerFile(path, "jsonl", True, {**settings, "views": 1})
    with AnswerFile(path, "jsonl", True, settings) as file:
        assert file.before == [BROKEN]


@pytest.mark.parametrize("content", ["[]", "5", "{", "[" * 100_000])
def test_settings_that_are_damaged_are_refused(content: str, path: Path) -> None:
    """It is unknown then whether the answers would continue as they began."""
    write(path, "jsonl", BROKEN, settings={"views": 8})
    answers.settings_file(path).write_text(content)
    with refused_in_one_sentence("settings.json is damaged"):
        AnswerFile(path, "jsonl", True, {"views": 1})
    assert answers.settings_file(path).read_text() == content


def test_the_suffix_chooses_the_format() -> None:
    """CSV by suffix or by wish, JSON lines otherwise."""
    assert layout_of(Path("a.CSV"), None) == "csv"
    assert layout_of(Path("a.csv"), "jsonl") == "jsonl"
    assert layout_of(None, None) == "jsonl"
