"""The tables of docs/methods.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
import methods_table

ARGUMENTS = ("--shifts", "fog", "--images", "64", "--views", "2", "--orders", "2",
             "--methods", "zero_shot,tda", "--workers", "1")  # fmt: skip


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page with markers, in place of the real one."""
    page = tmp_path / "methods.md"
    page.write_text(f"above\n{methods_table.BEGIN}\nold\n{methods_table.END}\nbelow\n")
    monkeypatch.setattr(methods_table, "PAGE", page)
    monkeypatch.setattr(methods_table, "RESULTS", tmp_path / "methods.json")
    return page


def test_the_tables_hold_what_was_measured(page: Path, tmp_path: Path) -> None:
    """Each method has its accuracy, cost and needs between the markers, and the rest stays."""
    methods_table.main([*ARGUMENTS, "--folder", str(tmp_path / "build")])
    text = page.read_text()
    assert text.startswith("above") and text.endswith("below\n") and "old" not in text
    kept = json.loads((tmp_path / "methods.json").read_text())
    row = kept["shifts"]["fog"]["tda"]
    assert f"{100 * row['accuracy']['mean']:.2f} ± " in text
    assert row["peak_bytes"] > 10_000_000 and row["needs"] == []
    assert len(row["accuracy"]["per_order"]) == 2


def test_runs_that_are_done_are_not_repeated(page: Path, tmp_path: Path) -> None:
    """A second call takes finished runs from the folder."""
    for _ in range(2):
        methods_table.main([*ARGUMENTS, "--folder", str(tmp_path / "build")])
    assert len((tmp_path / "build" / "results.jsonl").read_text().splitlines()) == 5  # an outline
