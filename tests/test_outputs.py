"""Outputs: one writer at a time, and what is not ours is not overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from crg.atomic import locked, locked_folder
from crg.cli import main
from crg.generation.variations import generate
from crg.parts.context import Context, check_replaceable, write_context
from crg.results import ledger
from encoding_fakes import dots
from made_files import save_raw
from sentences import refused_in_one_sentence

NOTES = "notes of mine\n"


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results file of a small comparison, in the folder that is worked in."""
    monkeypatch.chdir(tmp_path)
    save_raw(tmp_path / "a.npz")
    words = ["compare", "a.npz", "--methods", "tda", "--orders", "1", "--workers", "1"]
    done = CliRunner().invoke(main, [*words, "--results", "r.jsonl"])
    assert done.exit_code == 0, done.output
    return tmp_path / "r.jsonl"


def _refused(done: Result, *words: str) -> None:
    assert done.exit_code == 2, done.output
    assert all(word in done.output for word in words), done.output


@pytest.mark.parametrize("option", ["--out", "--markdown", "--latex"])
def test_a_report_replaces_reports_only(results: Path, option: str) -> None:
    """A file of somebody else is left alone; one of ours is written again; one writer at a time."""
    notes = results.with_name("notes.txt")
    notes.write_text(NOTES)
    _refused(CliRunner().invoke(main, ["report", str(results), option, str(notes)]), option)
    assert notes.read_text() == NOTES
    for _ in range(2):
        done = CliRunner().invoke(main, ["report", str(results), option, "ours"])
        assert done.exit_code == 0, done.output
    with locked("ours"):
        _refused(CliRunner().invoke(main, ["report", str(results), option, "ours"]), "another")


def test_figures_replace_figures_only(results: Path) -> None:
    """A PDF file of somebody else under the name of a figure is left alone."""
    words = ["report", str(results), "--figures", "figures"]
    for _ in range(2):
        assert CliRunner().invoke(main, words).exit_code == 0
    with locked_folder("figures"):
        _refused(CliRunner().invoke(main, words), "another process")
    figure = next(results.with_name("figures").glob("*.pdf"))
    figure.write_text(NOTES)
    _refused(CliRunner().invoke(main, words), "--figures")
    assert figure.read_text() == NOTES


def test_a_demo_does_not_write_over_a_page_of_somebody_else(tmp_path: Path) -> None:
    """Nor over one that another process is writing; both are known before any work."""
    page = tmp_path / "index.html"
    page.write_text("<html></html>")
    _refused(CliRunner().invoke(main, ["demo", "--report", str(page)]), "--report")
    with locked(tmp_path / "new.html"):
        words = ["demo", "--report", str(tmp_path / "new.html")]
        _refused(CliRunner().invoke(main, words), "another process")


@pytest.mark.parametrize(
    ("name", "content"),
    [("photo.png", b"\x89PNG"), ("s.json", b'{\n "a": 1\n}\n'), ("a.json", b'{"schema": "x"}\n')],
)
def test_results_are_added_to_results_only(tmp_path: Path, name: str, content: bytes) -> None:
    """A JSON file of somebody else is no results file, although it begins like one."""
    path = tmp_path / name
    path.write_bytes(content)
    with refused_in_one_sentence("no results file", "--results"):
        ledger.check_writable(path)
    assert path.read_bytes() == content
    with refused_in_one_sentence("--results"):
        ledger.check_writable(tmp_path / "new.jsonl.gz")


def test_results_with_a_damaged_first_line_are_still_ours(results: Path) -> None:
    """One whole line anywhere is enough."""
    results.write_bytes(b'{"schema": 1, "ke\n' + results.read_bytes())
    ledger.check_writable(results)


class _Looking:
    """A generator that tries to be the second writer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def describe(self) -> dict[str, Any]:
        return {}

    def generate(self, image: Any, *args: Any) -> Iterator[Any]:
        with refused_in_one_sentence("another process"):
            generate(dots(), self, 1, self.folder)
        yield image


def test_variations_have_one_writer(tmp_path: Path) -> None:
    """Whoever comes second is refused before anything is generated."""
    folder = tmp_path / "new" / "made"
    images = dots().part(range(2))
    assert generate(images, _Looking(folder), 1, folder).n_made == 2


def test_an_export_has_one_writer(tmp_path: Path) -> None:
    """The second export of a model to the same folder is refused before it begins."""
    with locked_folder(tmp_path / "onnx"):
        done = CliRunner().invoke(main, ["export", "ViT-B-16", "--out", str(tmp_path / "onnx")])
    _refused(done, "another process")


def test_a_context_replaces_contexts_only(tmp_path: Path) -> None:
    """What coop learnt is not written over a file of somebody else."""
    photo = tmp_path / "photo.png"
    photo.write_bytes(b"\x89PNG")
    with refused_in_one_sentence("photo.png", "another name"):
        check_replaceable(photo)
    context = Context(np.zeros((2, 3), np.float32), "mini", (), "a photo of a")
    write_context(tmp_path / "c", context)
    check_replaceable(tmp_path / "c")
