"""Predictions on disk."""

from __future__ import annotations

import csv
import errno
import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crg.answer import COLUMNS
from crg.predict.answers import AnswerFile, read_answers
from crg.predict.lines import PrintedTable
from sentences import check_refused

LINE = {"path": 'a, "b"\nä.png', "label": "cat", "probability": 0.5, "zero_shot_label": "dog",
        "zero_shot_probability": 0.25, "changed": True, "step": 1}  # fmt: skip
BROKEN = {"path": "c.png", "error": "c.png is empty: leave it out."}
SETTINGS = {"views": 8, "classes": ["a", "b"]}
ODD = ["a\u0085b", "a\u2028b", "a\u2029b", "a\rb", "=1+1", "-x", "@y", "'=z", "\x1b[2J", 'q"q',
       "a\nb", "latin\udce9.png"]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where answers go."""
    return tmp_path / "answers.jsonl"


def write(path: Path, *lines: dict[str, Any], resume: bool = False) -> None:
    """A file of these answers."""
    with AnswerFile(path, resume, SETTINGS) as file:
        for line in lines:
            file.add(line)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_names_survive_a_resume(path: Path, suffix: str) -> None:
    """Line separators, formulas, quotes and escapes are read back as they were written."""
    path = path.with_suffix(suffix)
    for resume, names in ((False, ODD[:6]), (True, ODD[6:])):
        lines = ({**LINE, "path": name, "label": "=cmd()"} for name in names)
        write(path, *lines, resume=resume)
    assert [line["path"] for line in read_answers(path)] == ODD
    text = path.read_bytes().decode(errors="surrogateescape")
    if suffix == ".csv":
        head, *rows = csv.reader(io.StringIO(text, newline=""))
        assert head == list(COLUMNS)
        marked = [f"'{name}" if name[0] in "=-@'" else name for name in ODD]
        assert [row[:2] for row in rows] == [[name, "'=cmd()"] for name in marked]
    else:
        assert text.replace("\n", "").isprintable()


class Full(io.StringIO):
    """A file on a disk without room, which says so at every flush and when it is closed."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    close = flush


def test_a_full_disk_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says that the lines before are kept, unless they went to a stream."""
    monkeypatch.setattr("sys.stdout", Full())
    check_refused(("standard output", "make room"), AnswerFile(None).add, LINE)
    monkeypatch.setattr(AnswerFile, "_opened", lambda *_: Full())
    check_refused(("No space left", "kept"), write, path, LINE)


@pytest.mark.parametrize("content", ["[]", "5", "{", "[" * 100_000])
def test_settings_that_are_damaged_are_refused(content: str, path: Path) -> None:
    """It is unknown then whether the answers would continue as they began."""
    write(path, BROKEN)
    file = path.with_name("answers.jsonl.resume") / "settings.json"
    file.write_text(content)
    check_refused("settings.json is damaged", AnswerFile, path, True, {"views": 1})
    assert file.read_text() == content


def test_the_summary_of_many_classes_is_bounded() -> None:
    """The twenty most frequent classes are listed, and the others counted together."""
    output = AnswerFile(None)
    output.per_class = Counter({f"class {k:02}": 40 - k for k in range(30)})
    *shown, rest = output.class_summary()
    assert len(shown) == 20 and shown[0].split() == ["class", "00", "40"]
    assert rest.split() == ["...", "and", "10", "more", str(sum(40 - k for k in range(20, 30)))]


def test_a_table_is_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is too long loses its beginning, and what is special is named."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    paths = ["a.png", "a folder/with a name/图像.png"]
    table = PrintedTable(paths, ["red", "green"])
    line: dict[str, Any] = {"label": "red", "probability": 0.5, "zero_shot_label": "green"}
    line |= {"zero_shot_probability": 1.0, "top": [{"label": "green", "probability": 0.25}]}
    head, short = table.header(), table.row({"path": "a.png", **line, "changed": True})
    long = table.row({"path": paths[1], **line, "label": "", "unsure": True})
    assert head == "image             label               zero-shot\n"
    assert short.startswith("a.png             red          50.0%  green       100.0%  \x1b[1;33m")
    assert short.endswith("changed\x1b[0m  green 25%\n")
    assert long.startswith("…a name/图像.png             ") and "\x1b[2munsure" in long
    odd = table.row({"path": "b\x1b", "error": "empty"})
    assert odd == "b\\x1b             \x1b[31mempty\x1b[0m\n"
