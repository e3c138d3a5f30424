"""The README's table is what the measurements say, and its excerpts are what the code says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import readme_table
from documents import ROOT, code_blocks

RESULTS, README = ROOT / "docs" / "results" / "features.json", ROOT / "README.md"
EMPTY = "# A title\n\n<!-- results:begin -->\nold\n<!-- results:end -->\n\nThe end.\n"


def _row(method: str, mean: float, std: float | None = 0.001, best: bool = False) -> dict[str, Any]:
    return {
        "method": method,
        "accuracy": {"mean": mean, "std": std},
        "gain": {"mean": mean - 0.5, "low": mean - 0.51, "high": mean - 0.49},
        "best": best,
    }


def _summary() -> dict[str, Any]:
    """What ``crg compare --json`` prints, as far as the table needs it."""
    return {
        "files": {
            "a/pets24.npz": {
                "zero_shot": _row("zero_shot", 0.5, 0.0),
                "crg": _row("crg", 0.61234, 0.00567, best=True),
                "no|gauss": _row("crg", 0.4),
            },
            "a/dtd.npz": {
                "zero_shot": _row("zero_shot", 0.5, None, best=True),
                "crg": _row("crg", 0.45, None),
                "no|gauss": _row("crg", 0.4, None),
            },
        },
        "seeds": [0, 1, 2, 3, 4],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with results and a README that waits for them."""
    (tmp_path / "features.json").write_text(json.dumps(_summary()))
    (tmp_path / "README.md").write_text(EMPTY)
    return tmp_path


def _run(folder: Path, *more: str) -> int:
    paths = ["--results", f"{folder}/features.json", "--readme", f"{folder}/README.md"]
    return int(readme_table.main([*paths, *more]))


def test_rows_are_methods_and_columns_are_files() -> None:
    """Shares in %, the best of a column in bold, simulated text features marked."""
    lines = readme_table.tables(_summary()).splitlines()
    assert "over 5 stream orders" in lines[0]
    assert lines[2:7] == [
        "| method | pets24 | dtd \\* |",
        "| --- | ---: | ---: |",
        "| zero_shot | 50.00 ± 0.00 | **50.00** |",
        "| crg | **61.23 ± 0.57** | 45.00 |",
        "| no\\|gauss | 40.00 ± 0.10 | 40.00 |",
    ]


def test_gains_leave_zero_shot_out() -> None:
    """The second table has the difference to zero-shot with its interval."""
    lines = readme_table.tables(_summary()).splitlines()
    assert lines[-2] == "| crg | +11.23 [+10.23, +12.23] | -5.00 [-6.00, -4.00] |"
    assert sum(line.startswith("| zero_shot") for line in lines) == 1


def test_missing_figures_are_dashes() -> None:
    """A file without labels has no accuracy and no gain."""
    summary = _summary()
    for row in summary["files"]["a/dtd.npz"].values():
        row.update(accuracy=None, gain=None, best=False)
    assert "| crg | **61.23 ± 0.57** | - |" in readme_table.tables(summary)


def test_files_of_one_name_are_told_apart() -> None:
    """Two files of the same name in different folders are named by their paths."""
    summary = _summary()
    rows = summary["files"]["a/dtd.npz"]
    summary["files"] = {"a/dtd.npz": rows, "b/dtd.npz": rows}
    assert "| method | a/dtd.npz | b/dtd.npz |" in readme_table.tables(summary)


def test_the_readme_is_filled_once(folder: Path) -> None:
    """The table takes the place of the old one, the rest stays, and a second time is no change."""
    assert _run(folder) == 0
    once = (folder / "README.md").read_text()
    assert once.startswith("# A title\n\n<!-- results:begin -->\nAccuracy")
    assert once.endswith("|\n<!-- results:end -->\n\nThe end.\n")
    assert "old" not in once
    assert _run(folder) == 0
    assert (folder / "README.md").read_text() == once


def test_check_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--check says by its exit code whether the README is up to date."""
    assert _run(folder, "--check") == 1
    assert "out of date" in capsys.readouterr().err
    assert (folder / "README.md").read_text() == EMPTY
    _run(folder)
    assert _run(folder, "--check") == 0


@pytest.mark.parametrize(
    "readme",
    ["no markers", "<!-- results:begin -->", "<!-- results:end --> <!-- results:begin -->"],
)
def test_a_readme_without_markers_is_refused(folder: Path, readme: str) -> None:
    """Without both markers in their order nothing is written."""
    (folder / "README.md").write_text(readme)
    assert _run(folder) == 2
    assert (folder / "README.md").read_text() == readme


def test_missing_and_truncated_results_are_refused(folder: Path) -> None:
    """No results, or half of them, leave the README as it is."""
    (folder / "features.json").write_text('{"files": ')
    assert _run(folder) == 2
    (folder / "features.json").unlink()
    assert _run(folder) == 2
    assert (folder / "README.md").read_text() == EMPTY


def test_the_readme_shows_the_measured_results() -> None:
    """The committed README is what the tool writes from the committed results."""
    assert RESULTS.exists(), "make docs/results/features.json with crg compare ... --json"
    assert readme_table.main(["--check"]) == 0


def test_the_readme_quotes_the_code() -> None:
    """Every excerpt of the walk through TDA occurs in its file, line for line."""
    source = (ROOT / "src/crg/methods/tda.py").read_text()
    excerpts = code_blocks(README, "py")
    assert excerpts
    for excerpt in excerpts:
        assert excerpt in source, excerpt
