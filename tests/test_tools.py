"""The archive of experiments, and the content of the wheel."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

import keep_results
from crg.results import ledger
from crg.results.schema import Variant
from documents import ROOT
from made_results import Book, share


def test_page_tables_and_archived_runs_are_kept(tmp_path: Path) -> None:
    """Each archived run has the line number of its full result."""
    book, whole = Book([Variant("crg", "crg")]), tmp_path / "results" / "small.jsonl"
    book.add("crg", share(120), share(100))
    book.records[0]["data"]["path"] = str(tmp_path / "a.npz")
    whole.parent.mkdir()
    book.write(whole)
    assert keep_results.main([str(whole.parent), str(tmp_path / "kept")]) == 0
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert kept == {"report.html", "tables.md", "small.jsonl.gz"}
    short, full = ledger.read(tmp_path / "kept" / "small.jsonl.gz").entries, ledger.read(whole)
    assert [*short] == [*full.entries] == list(range(1, 7))
    assert [each.key for each in short.values()] == [each.key for each in full.entries.values()]
    assert str(tmp_path) not in str(short)  # no path of this machine
    tables = (tmp_path / "kept" / "tables.md").read_text()
    assert re.search(r"^\| (\*\*)?crg", tables, re.M)
    for text in (tables, (tmp_path / "kept" / "report.html").read_text()):
        assert "small.jsonl.gz" in text and not re.search(r"small\.jsonl\b(?!\.gz)", text)


def test_the_wheel_has_all_that_the_package_needs(tmp_path: Path) -> None:
    """Every file of the package is in the wheel, and nothing else is."""
    builders = pytest.importorskip("hatchling.builders.wheel")
    [wheel] = builders.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = (path for path in (ROOT / "src").rglob("*") if path.is_file())
    ours = {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert packed == {name for name in ours if "__pycache__" not in name}
