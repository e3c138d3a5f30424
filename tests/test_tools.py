"""The archive of experiments, and the content of the wheel."""

from __future__ import annotations

import csv
import re
import zipfile
from pathlib import Path

import msgspec
import pytest

import keep_results
from crg.results import ledger
from crg.results.schema import Variant
from documents import ROOT
from made_results import Book, share


def test_page_tables_figures_and_archived_runs_are_kept(tmp_path: Path) -> None:
    """Each archived run has the line number of its full result; experiments are in order."""
    whole, out = tmp_path / "small.jsonl", tmp_path / "kept"
    for name in ("mine", "cold_start", "cross_datasets"):
        book = Book([Variant("crg", "crg")], name if name == "cold_start" else "table", name=name)
        book.add("crg", [share(120, first=seed) for seed in range(5)], share(100))
        for record in book.records:
            record |= {"key": f"{name} {record['key']}", "data": {"path": f"{tmp_path}/a.npz"}}
        book.cells = [msgspec.structs.replace(c, key=f"{name} {c.key}") for c in book.cells]
        book.write(whole)
    assert keep_results.main([str(whole), str(out)]) == 0
    kept = {path.name for path in out.iterdir()}
    assert kept == {"report.html", "tables.md", "figures.csv", "results.jsonl.gz"}
    short, full = ledger.read(out / "results.jsonl.gz").entries, ledger.read(whole)
    assert [*short] == [*full.entries] == list(range(1, 19))
    assert [each.key for each in short.values()] == [each.key for each in full.entries.values()]
    assert str(tmp_path) not in str(short)  # no path of this machine
    tables = (out / "tables.md").read_text()
    assert re.search(r"^\| (\*\*)?crg", tables, re.M)
    for text in (tables, (out / "report.html").read_text()):
        assert "results.jsonl.gz" in text and "small.jsonl" not in text
    lines = list(csv.DictReader((out / "figures.csv").read_text("utf-8").splitlines()))
    assert [each["experiment"] for each in lines] == ["cross_datasets", "cold_start", "mine"]
    first = lines[0]
    facts = ("dataset", "setting", "method", "n_images", "accuracy", "accuracy_std", "ece", "aurc")
    assert [first[name] for name in facts] == [
        "toy", "shuffled", "crg", "200", "0.6", "0.0", "0.1", "0.2"
    ]  # fmt: skip
    assert float(first["gain_low"]) < float(first["gain"]) == 0.1 < float(first["gain_high"])
    assert first["first_50"] == "" and float(lines[1]["first_200"]) == 0.1


def test_the_wheel_has_all_that_the_package_needs(tmp_path: Path) -> None:
    """Every file of the package is in the wheel, and nothing else is."""
    builders = pytest.importorskip("hatchling.builders.wheel")
    [wheel] = builders.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = (path for path in (ROOT / "src").rglob("*") if path.is_file())
    ours = {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert packed == {name for name in ours if "__pycache__" not in name}
