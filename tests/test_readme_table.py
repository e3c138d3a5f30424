"""The README's tables are what was measured, and its excerpts are what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

import readme_table
from crg.report.layout import whole_text
from crg.report.tables import to_markdown
from crg.results.schema import Variant, Source
from documents import ROOT, code_blocks
from made_results import Book, share

README = ROOT / "README.md"
EMPTY = "# A title\n\n<!-- results:begin -->\nold\n<!-- results:end -->\n\nThe end.\n"
ROWS = [Variant("crg", "crg"), Variant("crg, no cache", "crg", {"positive": False}),
        Variant("crg, second pass", "crg", offline=True), Variant("gda", "gda", needs=("labelled images",)),
        Variant("anchored", "anchored")]  # fmt: skip
SOURCES = [Source("pets24"), Source("dtd", text_kind="simulated"), Source("shapes:night:3")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with tables, made as those of experiments are, and a README that waits for them."""
    book = Book(ROWS, sources=SOURCES, title=readme_table.SECTION)
    for place in range(len(SOURCES)):
        for n, row in enumerate(book.rows):
            if (place, row.label) != (1, "anchored"):  # not run there
                book.add(row.label, share(100 + 10 * n), share(100), source=place)
    experiments = [book.read(tmp_path)]
    text = whole_text(experiments, to_markdown, "## {}\n\nLines are those of {}.")
    (tmp_path / "tables.md").write_text(text)
    (tmp_path / "README.md").write_text(EMPTY)
    return tmp_path


def _run(folder: Path, *more: str) -> int:
    paths = ["--tables", f"{folder}/tables.md", "--readme", f"{folder}/README.md"]
    return int(readme_table.main([*paths, *more]))


def test_rows_are_plain_methods_and_columns_are_files(folder: Path) -> None:
    """No variants, no labels, no shapes; simulated text is marked, and what was not run a dash."""
    lines = readme_table.tables((folder / "tables.md").read_text()).splitlines()
    assert lines[2:7] == [
        "| method | pets24 | dtd \\* |",
        "| --- | ---: | ---: |",
        "| zero_shot | 50.00 ± 0.00 | 50.00 ± 0.00 |",
        "| crg | 55.00 ± 0.00 | **55.00 ± 0.00** |",
        "| anchored | **75.00 ± 0.00** | - |",
    ]
    assert "| crg | 10.00 | 10.00 |" in lines


def test_gains_leave_zero_shot_out(folder: Path) -> None:
    """The second table has the difference to zero-shot with its interval and mark."""
    lines = readme_table.tables((folder / "tables.md").read_text()).splitlines()
    [gain] = [line for line in lines if line.startswith("| crg | +5.00 [")]
    assert gain.count("▲") == 2
    assert sum(line.startswith("| zero_shot") for line in lines) == 2


def test_the_readme_is_filled_once(folder: Path) -> None:
    """The tables take the place of the old ones, the rest stays, and a second time is no change."""
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


def test_missing_and_other_tables_are_refused(folder: Path) -> None:
    """No tables, or those of other experiments, leave the README as it is."""
    (folder / "tables.md").write_text("## Ablation\n")
    assert _run(folder) == 2
    (folder / "tables.md").unlink()
    assert _run(folder) == 2
    assert (folder / "README.md").read_text() == EMPTY


def test_the_readme_shows_the_measured_results() -> None:
    """The committed README is what the tool writes from the committed tables."""
    assert readme_table.main(["--check"]) == 0


def test_the_readme_quotes_the_code() -> None:
    """Every excerpt of the walk through TDA occurs in its file, line for line."""
    source = (ROOT / "src/crg/methods/tda.py").read_text()
    excerpts = code_blocks(README, "py")
    assert excerpts
    for excerpt in excerpts:
        assert excerpt in source, excerpt
