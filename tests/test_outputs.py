"""Outputs: one writer at a time, and what is not ours is not overwritten."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from crg.atomic import locked, locked_folder
from crg.results import ledger
from made_files import save_raw
from processes import called
from sentences import check_refused

NOTES = "notes of mine\n"


@pytest.fixture
def results(here: Path) -> Path:
    """A results file of a small comparison, in the folder that is worked in."""
    save_raw(here / "a.npz")
    words = ("compare", "a.npz", "--methods", "tda", "--orders", "1", "--workers", "1")
    called(*words, "--results", "r.jsonl")
    return here / "r.jsonl"


def _refused(said: str, *words: str) -> None:
    assert said in called(*words, code=2).output


@pytest.mark.parametrize("suffix", [".html", ".md", ".tex"])
def test_a_report_replaces_reports_only(results: Path, suffix: str) -> None:
    """A file of somebody else is left alone; one of ours is written again; one writer at a time."""
    notes, ours = results.with_name(f"notes{suffix}"), f"ours{suffix}"
    notes.write_text(NOTES)
    words = ("report", str(results), "--out")
    _refused("is not ours", *words, str(notes))
    assert notes.read_text() == NOTES
    for _ in range(2):
        called(*words, ours)
    with locked(ours):
        _refused("another", *words, ours)
    _refused("choose .html, .md or .tex", *words, "ours.txt")


def test_figures_replace_figures_only(results: Path) -> None:
    """A PDF file of somebody else is left alone; results with a damaged line are still ours."""
    words = ("report", str(results), "--out", "figures")
    for _ in range(2):
        called(*words)
    with locked_folder("figures"):
        _refused("another process", *words)
    figure = next(results.with_name("figures").glob("*.pdf"))
    figure.write_text(NOTES)
    _refused("is not ours", *words)
    assert figure.read_text() == NOTES
    results.write_bytes(b'{"schema": 1, "ke\n' + results.read_bytes())
    ledger.read(results).check_writable()  # one whole line anywhere is enough


def test_a_demo_does_not_write_over_a_page_of_somebody_else(tmp_path: Path) -> None:
    """Nor over one that another process is writing; both are known before any work."""
    page = tmp_path / "index.html"
    page.write_text("<html></html>")
    _refused("--report", "demo", "--report", str(page))
    assert page.read_text() == "<html></html>"
    with locked(tmp_path / "new.html"):
        _refused("another process", "demo", "--report", str(tmp_path / "new.html"))


@pytest.mark.parametrize(
    ("name", "content"),
    [("photo.png", b"\x89PNG"), ("s.json", b'{\n "a": 1\n}\n'), ("a.json", b'{"schema": "x"}\n')],
)
def test_results_are_added_to_results_only(tmp_path: Path, name: str, content: bytes) -> None:
    """A JSON file of somebody else is no results file, although it begins like one."""
    path = tmp_path / name
    path.write_bytes(content)
    check_refused(("no results file", "--results"), ledger.read(path).check_writable)
    assert path.read_bytes() == content
    check_refused("--results", ledger.read(tmp_path / "new.jsonl.gz").check_writable)


def _count(place: Path) -> None:
    for _ in range(25):
        with locked_folder(place, wait=True):
            place.write_text(str(int(place.read_text()) + 1))


def test_a_lock_lets_one_in_and_leaves_no_file(tmp_path: Path) -> None:
    """Processes that remove and make the lock by turns never work at the same time."""
    place = tmp_path / "counted"
    place.write_text("0")
    workers = [
        multiprocessing.get_context("fork").Process(target=_count, args=[place]) for _ in "abc"
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert place.read_text() == "75" and list(tmp_path.iterdir()) == [place]


def test_an_export_has_one_writer(tmp_path: Path) -> None:
    """The second export of a model to the same folder is refused before it begins."""
    with locked_folder(tmp_path / "onnx"):
        words = ("encoders", "export", "ViT-B-16", "--out", str(tmp_path / "onnx"))
        _refused("another process", *words)
