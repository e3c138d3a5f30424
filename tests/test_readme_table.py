"""The README's tables are the stored results, and its excerpts are the code."""

from __future__ import annotations

from pathlib import Path

import pytest

import readme_table
from crg.report.layout import whole_text
from crg.report.tables import to_markdown
from crg.results.schema import Source, Variant
from documents import ROOT, code_blocks
from made_results import Book, share

README = ROOT / "README.md"
EMPTY = "# A title\n\n<!-- results:begin -->\nold\n<!-- results:end -->\n\nThe end.\n"
ROWS = [
    Variant("crg", "crg"),
    Variant("crg, no cache", "crg", {"positive": False}),
    Variant("crg, second pass", "crg", offline=True),
    Variant("gda", "gda", needs=("labelled images",)),
    Variant("anchored", "anchored"),
]
SOURCES = [Source("pets24"), Source("dtd", text_kind="simulated"), Source("shapes:night:3")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the tables of an experiment and a README to fill."""
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


def _readme(folder: Path) -> str:
    return (folder / "README.md").read_text()


def test_rows_are_plain_methods_and_columns_are_files(folder: Path) -> None:
    """No variants, labels or shapes; simulated text is marked; zero-shot has no gain."""
    lines = readme_table.tables((folder / "tables.md").read_text()).splitlines()
    assert lines[2:7] == [
        "| method | pets24 | dtd \\* |",
        "| --- | ---: | ---: |",
        "| zero_shot | 50.00 ± 0.00 | 50.00 ± 0.00 |",
        "| crg | 55.00 ± 0.00 | **55.00 ± 0.00** |",
        "| anchored | **75.00 ± 0.00** | - |",
    ]
    assert "| crg | 10.00 | 10.00 |" in lines
    [gain] = [line for line in lines if line.startswith("| crg | +5.00 [")]
    assert gain.count("▲") == 2
    assert sum(line.startswith("| zero_shot") for line in lines) == 2


def test_the_readme_is_filled_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """New tables replace the old ones, the rest stays; --check only compares."""
    assert _run(folder, "--check") == 1
    assert "out of date" in capsys.readouterr().err and _readme(folder) == EMPTY
    assert _run(folder) == 0
    once = _readme(folder)
    assert once.startswith("# A title\n\n<!-- results:begin -->\nAccuracy")
    assert once.endswith("|\n<!-- results:end -->\n\nThe end.\n") and "old" not in once
    assert _run(folder) == 0 == _run(folder, "--check")
    assert _readme(folder) == once


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("README.md", "no markers"),
        ("README.md", "<!-- results:begin -->"),
        ("README.md", "<!-- results:end --> <!-- results:begin -->"),
        ("tables.md", "## Ablation\n"),
        ("tables.md", None),
    ],
)
def test_a_file_that_does_not_fit_is_refused(folder: Path, file: str, text: str | None) -> None:
    """Without both markers in order, or without the tables, nothing is written."""
    (folder / file).write_text(text or "")
    if text is None:
        (folder / file).unlink()
    before = _readme(folder)
    assert _run(folder) == 2 and _readme(folder) == before


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
