"""Odd names and encodings: a sentence, not a traceback, and nothing a terminal would obey."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from crg.cli import main
from crg.predict.answers import AnswerFile, read_answers
from crg.predict.files import list_images
from sentences import refused_in_one_sentence

ODD = [
    "a\u0085b",
    "a\u2028b",
    "a\u2029b",
    "a\rb",
    "=1+1",
    "-x",
    "@y",
    "'=z",
    "\x1b[2J",
    'q"q',
    "a\nb",
]


@pytest.mark.parametrize("layout", ["jsonl", "csv"])
def test_names_survive_a_resume(tmp_path: Path, layout: str) -> None:
    """Line separators, formulas, quotes and escapes are read back as they were written."""
    out = tmp_path / f"answers.{layout}"
    for resume, names in ((False, ODD[:6]), (True, ODD[6:])):
        with AnswerFile(out, layout, resume) as file:  # type: ignore[arg-type]
            for name in names:
                file.add({"path": name, "label": "=cmd()", "step": 1, "changed": False})
    assert [line["path"] for line in read_answers(out, layout)] == ODD  # type: ignore[arg-type]
    if layout == "csv":
        cells = [row.split(",") for row in out.read_text().split("\n")]
        assert not any(cell[:1] in ("=", "@") for row in cells for cell in row)
    else:
        assert "\x1b" not in out.read_text() and "\u2028" not in out.read_text()


def test_a_cut_off_cell_is_decided_again(tmp_path: Path) -> None:
    """A CSV file that ends within a quoted cell keeps the lines before."""
    out = tmp_path / "answers.csv"
    with AnswerFile(out, "csv") as file:
        for name in ("one", "two\nlines"):
            file.add({"path": name, "label": "a", "step": 1, "changed": False})
    out.write_bytes(out.read_bytes()[: out.read_bytes().index(b"two") + 5])
    with AnswerFile(out, "csv", resume=True) as file:
        assert [line["path"] for line in file.before] == ["one"]


@pytest.mark.parametrize("text", ["a,b\nc", 'a,"b', "a\r\nb"])
def test_broken_lists_of_classes_are_refused(tmp_path: Path, text: str) -> None:
    """A line break or an open quote in --classes is said in one sentence."""
    done = CliRunner().invoke(main, ["predict", str(tmp_path), "--classes", text])
    assert done.exit_code == 2 and "--classes" in done.output and "Traceback" not in done.output


def test_names_that_are_too_long_are_refused() -> None:
    """A path that no file system has."""
    with refused_in_one_sentence("cannot be read"):
        list_images(["x" * 300 + ".png"])
    with refused_in_one_sentence("cannot be read"):
        list_images(["null\0byte.png"])


def test_folders_that_fail_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while a folder is listed is not swallowed."""
    original = os.scandir

    def failing(path: str) -> object:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return original(path)

    (tmp_path / "shut").mkdir()
    monkeypatch.setattr(os, "scandir", failing)
    with refused_in_one_sentence("shut", "Permission denied"):
        list_images([str(tmp_path)])


def test_escape_sequences_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """Whatever a file or an argument is called."""
    done = CliRunner().invoke(main, ["predict", "\x1b[2Jgone", "--classes", "a,b"])
    assert done.exit_code == 2 and "\x1b" not in done.output


def test_limits_are_settable_and_refuse_one_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file beyond a limit is one refused image, however sparse it is; variables move limits."""
    from crg.images import reading
    from crg.types import limit

    sparse = tmp_path / "huge.png"
    with sparse.open("wb") as file:
        file.truncate(6_000_000_000)
    with refused_in_one_sentence("CRG_MAX_BYTES"):
        reading.read_image(sparse)
    monkeypatch.setenv("CRG_MAX_PIXELS", "1000")
    assert limit("CRG_MAX_PIXELS", 5) == 1000 and limit("CRG_MAX_OTHER", 5) == 5
    monkeypatch.setenv("CRG_MAX_PIXELS", "many")
    with refused_in_one_sentence("CRG_MAX_PIXELS"):
        limit("CRG_MAX_PIXELS", 5)


def test_results_that_grow_beyond_the_limit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small compressed file does not become gigabytes in memory."""
    import gzip

    from crg.results import ledger

    monkeypatch.setattr(ledger, "MAX_BYTES", 100_000)
    (tmp_path / "bomb.jsonl.gz").write_bytes(gzip.compress(b"\n" * 1_000_000))
    with refused_in_one_sentence("CRG_MAX_RESULTS"):
        ledger.read(tmp_path / "bomb.jsonl.gz")
