"""Tables: one model, the same numbers and flags in HTML, Markdown, LaTeX and on a terminal."""

from __future__ import annotations

import io
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from crg import metrics
from crg.metrics import Interval
from crg.report.contrasts import Contrast, Spread, judged, tally
from crg.report.experiment import Experiment, MethodResult
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
from crg.results.measurements import packed_bits
from crg.results.schema import Variant, Setting, Source
from crg.streams import Scenario
from crg.streams.orders import shuffled
from made_reports import NASTY, ablation, every_experiment, streams, table
from made_results import Bits, Book, share


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> list[Experiment]:
    """One experiment of each kind."""
    return every_experiment(tmp_path_factory.mktemp("made"))


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


def test_marks_stand_for_significance() -> None:
    """An upward mark for better, a downward one for worse, none where zero is not excluded."""
    ends = ((0.01, 0.02), (-0.02, -0.01), (-0.01, 0.01))
    marks = [judged("z", Interval(0.0, *each), 5, 30).mark for each in ends]
    assert marks == ["▲", "▼", ""]


def test_wins_ties_and_losses_are_counted() -> None:
    """By hand: two better, one not significant, one worse; what was not compared is no tie."""
    found = [Contrast("z", Interval(0, 0, 0), verdict) for verdict in ("better", "", "worse")]
    assert tally([*found, found[0], None]) == (2, 1, 1)


def test_the_main_table_keeps_shapes_and_files_apart(all_of_them: list[Experiment]) -> None:
    """A table each, simulated text flagged, the best without labels in bold, labels named."""
    files, shapes = main_tables(all_of_them)
    assert (files.title, shapes.title) == ("Feature files", "Rendered shapes")
    assert files.columns[1].title == "dtd (simulated text)"
    names = [row[0] for row in files.cells()]
    assert names[0] == "zero_shot" and names[-1] == "gda (uses labels)"
    assert [names[row] for row, _ in files.best] == ["crg"]
    cells = dict(zip(names, (row[1] for row in files.cells()), strict=True))
    assert cells["zero_shot"] == "accuracy 50.00"
    assert cells["crg"].startswith("+25.00 [") and cells["crg"].endswith("▲")
    assert cells["tda"].startswith("-20.00 [") and cells["tda"].endswith("▼")


def test_the_grid_counts_every_dataset_and_setting(all_of_them: list[Experiment]) -> None:
    """Default options only; by hand from the answers that were made up."""
    shown = tally_table(all_of_them)
    row = next(row for row in shown.cells() if row[0] == "crg")
    columns = [column.title for column in shown.columns]
    assert columns[0] == "method" and columns[-1] == "all"
    assert row[1:5] == ["2 / 0 / 0", "1 / 0 / 0", "0 / 1 / 2", "1 / 0 / 1"]
    assert row[-1] == "4 / 1 / 3"


def test_tuned_rows_and_text_kinds_are_flagged_everywhere(all_of_them: list[Experiment]) -> None:
    """What is flagged in one format is flagged in all of them."""
    comparison = all_of_them[0].comparisons[1]
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


def test_an_ablation_shows_what_was_added(tmp_path: Path) -> None:
    """Each row stands against the one that it extends."""
    shown = comparison_table(ablation().read(tmp_path).comparisons[0], "waterfall")
    place = [column.title for column in shown.columns].index("to the row it extends")
    assert shown.cells()[1][place].startswith("+20.00 [") and "(cache)" in shown.cells()[1][place]


def test_a_cold_start_has_its_first_images(all_of_them: list[Experiment]) -> None:
    """The gain over the first images, as many as the stream has."""
    shown = first_table(all_of_them[1].comparisons[0])
    assert shown is not None
    assert [each.title for each in shown.columns] == [
        "method",
        "first 50",
        "first 100",
        "first 200",
    ]
    assert first_table(all_of_them[0].comparisons[0]) is None


def test_what_was_not_run_is_one_line(tmp_path: Path) -> None:
    """Missing datasets and refused methods, each reason once."""
    line = not_run_line(table().read(tmp_path))
    assert line.count("\n") == 0 and "not found, RN50: sun397, eurosat, food101" in line
    assert "tpt (needs a text encoder)" in line


def test_nothing_in_a_name_is_markup(all_of_them: list[Experiment]) -> None:
    """A label full of special characters keeps Markdown and LaTeX tables in shape."""
    shown = comparison_table(all_of_them[0].comparisons[0])
    lines = to_markdown(shown).splitlines()
    pipes = {len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")}
    assert len(pipes) == 1 and "<script>" not in to_markdown(shown)
    row = next(line for line in to_latex(shown).splitlines() if "script" in line)
    assert row.count(" & ") == len(shown.columns) - 1
    assert escape_latex(NASTY) in row and r"\%" in row and r"\_" in row


def test_a_narrow_terminal_loses_what_is_least_needed() -> None:
    """Columns are left out whole, never cut."""
    columns = (Column("m", is_text=True), Column("b"), Column("c", is_optional=True))
    shown = Table(columns, (("x" * 20, "y" * 20, "z" * 20),))
    assert "z" in on_screen(shown, 80) and "z" not in on_screen(shown, 60)
    assert "y" * 20 in on_screen(shown, 60)


def test_columns_of_nothing_are_left_out() -> None:
    """A column in which nothing is known is not shown, and bold cells move along."""
    columns = (Column("m"), Column("none"), Column("b"))
    shown = Table(columns, (("x", None, 1),), best=frozenset({(0, 2)})).without_empty_columns()
    assert [each.title for each in shown.columns] == ["m", "b"] and shown.best == {(0, 1)}


def test_the_whole_text_has_every_experiment(all_of_them: list[Experiment]) -> None:
    """Markdown and LaTeX hold the main tables, the grid and all tables of each experiment."""
    count = len(main_tables(all_of_them)) + 1 + sum(len(tables_of(each)) for each in all_of_them)
    text = whole_text(all_of_them, to_latex, "% {}")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{table}") == count
    assert whole_text(all_of_them, to_markdown, "## {}").count("\n## ") == len(all_of_them)


A = Variant("a", "crg", {"x": 1})
MINE = [share(120, first=10 * seed) for seed in range(5)]
BASE = share(100)


def book_of(orders: list[Bits], figure: str = "cold_start") -> Book:
    """Five runs whose images came in these orders."""
    book = Book([A], figure)
    book.add("a", MINE, base=BASE)
    for record, right, order in zip(book.records, MINE, orders, strict=True):
        record["metrics"]["right_in_order"] = packed_bits(right[order])
        record["zero_shot"]["right_in_order"] = packed_bits(BASE[order])
    return book


def line_of(book: Book, folder: Path) -> MethodResult:
    """What was measured of the method."""
    return book.read(folder).comparisons[0].of("a")


def test_images_are_drawn_in_all_orders_at_once(tmp_path: Path) -> None:
    """In shuffled streams the seed says who came first, and the interval is the crossed one."""
    orders = [shuffled(200, seed) for seed in range(5)]
    gain = line_of(book_of(orders), tmp_path).first_gain[100]
    seen = np.zeros((5, 200), dtype=bool)
    for place, order in enumerate(orders):
        seen[place, order[:100]] = True
    base = np.broadcast_to(BASE, (5, 200))
    expected = metrics.paired_interval(np.stack(MINE), base, seen)
    assert gain.interval == expected


def test_orders_that_are_not_the_seeds_are_nested(tmp_path: Path) -> None:
    """Where the answers do not fit the order of the seed, each order has images of its own."""
    orders = [shuffled(200, seed + 50) for seed in range(5)]
    gain = line_of(book_of(orders), tmp_path).first_gain[100]
    mine = np.stack([right[order[:100]] for right, order in zip(MINE, orders, strict=True)])
    base = np.stack([BASE[order[:100]] for order in orders])
    assert gain.interval == metrics.nested_interval(mine, base)


def test_other_figures_do_without(tmp_path: Path) -> None:
    """Nobody else shows the first images, so their intervals are not computed."""
    orders = [shuffled(200, seed) for seed in range(5)]
    assert line_of(book_of(orders, "table"), tmp_path).first_gain == {}


def test_curves_and_first_images(tmp_path: Path) -> None:
    """Accuracy so far is counted in the order of the stream, with a band over orders."""
    book = Book([A], "cold_start", orders=2)
    book.add("a", [share(120), share(80)], base=share(10), purity=0.5,
             purity_over_time=[[50, 0.9], [200, 0.5]])  # fmt: skip
    line = book.read(tmp_path).comparisons[0].of("a")
    assert (line.learning[0][0], line.learning[-1][0]) == (20, 200)
    assert 50 <= len(line.learning) <= 60
    assert line.learning[-1][1:] == pytest.approx((0.5, statistics.stdev([0.6, 0.4])))
    orders = [np.random.default_rng(seed).permutation(200)[:50] for seed in (0, 1)]
    shares = [share(n)[rows].mean() for n, rows in zip((120, 80), orders, strict=True)]
    base = statistics.fmean(share(10)[rows].mean() for rows in orders)
    assert sorted(line.first_gain) == [50, 100, 200]
    gain = line.first_gain[50].interval.mean
    assert gain == pytest.approx(statistics.fmean(shares) - base)
    assert line.purity_over_time == ((50, 0.9, 0.0), (200, 0.5, 0.0))


def test_label_noise_has_a_table_of_means_over_the_datasets(tmp_path: Path) -> None:
    """Each cell is the plain mean of the datasets; what lacks one of them is left out."""
    settings = [Setting(f"q = {q}", Scenario(mislabelled=q)) for q in (0.0, 0.3)]
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
