"""Tables: one model, the same numbers and flags in HTML, Markdown, LaTeX and on a terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from crg.metrics import Interval
from crg.report.contrasts import Spread, judged, tally
from crg.report.layout import (
    comparison_table,
    first_table,
    main_tables,
    not_run_line,
    settings_table,
    short_table,
    tables_of,
    tally_table,
    whole_text,
)
from crg.report.tables import (
    Column,
    Table,
    escape_latex,
    gain_text,
    spread_text,
    to_latex,
    to_markdown,
    to_terminal,
)
from crg.results.schema import Setting, Source, Variant
from made_reports import NASTY, ablation, every_experiment, streams, table
from made_results import Book, share

ALL = every_experiment()


def on_screen(shown: Table, width: int = 200) -> str:
    """A table as a terminal shows it."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(to_terminal(shown, width))
    return console.export_text()


def test_a_value_reads_the_same_everywhere() -> None:
    """Accuracy and gain have two decimals, a sign and a mark, whatever renders them."""
    gain = judged("zero_shot", Interval(0.03, 0.01, 0.05), 5, 99)
    shown = Table(
        (Column("method", is_text=True), Column("a", spread_text), Column("g", gain_text)),
        (("crg", Spread(0.5, 0.01, ()), gain), ("tda", None, None)),
        best=frozenset({(0, 1)}),
    )
    for text in (on_screen(shown), to_markdown(shown), to_latex(shown).replace("$\\pm$", "±")):
        assert "50.00 ± 1.00" in text and "+3.00 [+1.00, +5.00]" in text
    assert "| crg | **50.00 ± 1.00** | +3.00 [+1.00, +5.00] ▲ |" in to_markdown(shown)
    assert "| tda | - | - |" in to_markdown(shown)


def test_wins_ties_and_losses_are_counted() -> None:
    """By hand: two better, one not significant, one worse; a missing contrast is no tie."""
    ends = ((0.01, 0.02), (-0.01, 0.01), (-0.02, -0.01))
    found = [judged("z", Interval(0.0, *each), 5, 30) for each in ends]
    assert [each.mark for each in found] == ["▲", "", "▼"]
    assert tally([*found, found[0], None]) == (2, 1, 1)


def test_the_main_table_keeps_shapes_and_files_apart() -> None:
    """A table each, simulated text flagged, the best without labels in bold, labels named."""
    files, shapes = main_tables(ALL)
    assert (files.title, shapes.title) == ("Feature files", "Rendered shapes")
    assert files.columns[1].title == "dtd (simulated text)"
    names = [row[0] for row in files.cells()]
    assert names[0] == "zero_shot" and names[-1] == "gda (uses labels)"
    assert [names[row] for row, _ in files.best] == ["crg"]
    cells = dict(zip(names, (row[1] for row in files.cells()), strict=True))
    assert cells["zero_shot"] == "accuracy 50.00"
    assert cells["crg"].startswith("+25.00 [") and cells["crg"].endswith("▲")
    assert cells["tda"].startswith("-20.00 [") and cells["tda"].endswith("▼")


def test_the_grid_counts_every_dataset_and_setting() -> None:
    """Default options only; by hand from the made answers."""
    shown = tally_table(ALL)
    row = next(row for row in shown.cells() if row[0] == "crg")
    columns = [column.title for column in shown.columns]
    assert columns[0] == "method" and columns[-1] == "all"
    assert row[1:5] == ["2 / 0 / 0", "1 / 0 / 0", "0 / 1 / 2", "1 / 0 / 1"]
    assert row[-1] == "4 / 1 / 3"


def test_tuned_methods_and_text_kinds_are_flagged_everywhere() -> None:
    """All formats show the flags."""
    comparison = ALL[0].comparisons[1]
    for shown in (comparison_table(comparison), short_table(comparison)):
        for text in (to_markdown(shown), to_latex(shown), on_screen(shown) + shown.title):
            assert "crg, tuned (tuned with labels)" in text and "simulated text" in text


def test_settings_are_columns(tmp_path: Path) -> None:
    """Accuracy and gain of each setting, the best of each in bold, and the lines to repeat."""
    shown = settings_table(streams().read(tmp_path).comparisons)
    assert [column.title for column in shown.columns] == ["method", "shuffled", "by class", "lines"]
    assert shown.cells()[2][1].startswith("70.00; +20.00 [")
    assert {shown.rows[row][0] for row, column in shown.best if column == 2} == {"tda"}
    assert re.fullmatch(r"[\d, -]+", shown.cells()[2][3])


def test_an_ablation_shows_each_step(tmp_path: Path) -> None:
    """Each variant is compared with the one that it extends."""
    shown = comparison_table(ablation().read(tmp_path).comparisons[0], "waterfall")
    place = [column.title for column in shown.columns].index("to the variant it extends")
    assert shown.cells()[1][place].startswith("+20.00 [") and "(cache)" in shown.cells()[1][place]


def test_a_cold_start_has_its_first_images() -> None:
    """The gain over the first images, as many as the stream has."""
    shown = first_table(ALL[1].comparisons[0])
    assert shown is not None
    titles = [each.title for each in shown.columns]
    assert titles == ["method", "first 50", "first 100", "first 200"]
    assert first_table(ALL[0].comparisons[0]) is None


def test_missing_datasets_and_methods_are_one_line(tmp_path: Path) -> None:
    """Missing datasets and refused methods, each reason once."""
    line = not_run_line(table().read(tmp_path))
    assert line.count("\n") == 0 and "not found, RN50: sun397, eurosat, food101" in line
    assert "tpt (needs a text encoder)" in line


def test_nothing_in_a_name_is_markup() -> None:
    """A label full of special characters keeps Markdown and LaTeX tables in shape."""
    shown = comparison_table(ALL[0].comparisons[0])
    lines = to_markdown(shown).splitlines()
    pipes = {len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")}
    assert len(pipes) == 1 and "<script>" not in to_markdown(shown)
    row = next(line for line in to_latex(shown).splitlines() if "script" in line)
    assert row.count(" & ") == len(shown.columns) - 1
    assert escape_latex(NASTY) in row and r"\%" in row and r"\_" in row


def test_a_narrow_terminal_loses_optional_columns() -> None:
    """Columns are left out whole, never cut."""
    columns = (Column("m", is_text=True), Column("b"), Column("c", is_optional=True))
    shown = Table(columns, (("x" * 20, "y" * 20, "z" * 20),))
    assert "z" in on_screen(shown, 80) and "z" not in on_screen(shown, 60)
    assert "y" * 20 in on_screen(shown, 60)


def test_the_whole_text_has_every_experiment() -> None:
    """Markdown and LaTeX hold the main tables, the grid and all tables of each experiment."""
    count = len(main_tables(ALL)) + 1 + sum(len(tables_of(each)) for each in ALL)
    text = whole_text(ALL, to_latex, "% {}")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{table}") == count
    assert whole_text(ALL, to_markdown, "## {}").count("\n## ") == len(ALL)


def test_label_noise_has_a_table_of_means_over_the_datasets(tmp_path: Path) -> None:
    """Each cell is the plain mean of the datasets; a method that lacks one is left out."""
    settings = [Setting(label=f"q = {q}", mislabelled=q) for q in (0.0, 0.3)]
    rows, sources = [Variant("a", "tda"), Variant("b", "crg")], [Source("one"), Source("two")]
    book = Book(rows, "noise", sources=sources, settings=settings)
    for source in range(2):
        for setting in range(2):
            right = share(100 + 20 * source - 10 * setting)
            book.add("a", right, share(90), source=source, setting=setting)
    book.add("b", share(150), share(90))
    first = tables_of(book.read(tmp_path))[0]
    assert first.title == "Accuracy in %, mean over 2 datasets"
    assert first.cells() == [["a", "55.00", "50.00"]]
