"""The report: one model of tables for all formats, and a page that is self-contained and small."""

from __future__ import annotations

import base64
import csv
import io
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from crg.methods.registry import get_method, list_methods
from crg.metrics import Interval
from crg.report import layout, page, tables
from crg.report.contrasts import Spread, judged, tally
from crg.report.figures import figure_of, overview, save_pdf, styles_of
from crg.report.tables import Column, Table, to_latex, to_markdown
from crg.results.schema import Setting, Source, Variant
from crg.types import InputError
from made_reports import NASTY, ablation, every_experiment, every_page, noise, streams, table
from made_results import Book, share
from processes import called

A = Variant("a", "tda")
ALL = every_experiment()


class Outline(HTMLParser):
    """Tags in the order in which they open, and whether they close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_but_itself() -> None:
    """No external address, a policy that allows its own script only, and all tags closed."""
    html = every_page()
    outline = Outline(html)
    assert outline.open == [] and html.startswith("<!doctype html>")
    assert [tag for tag, _ in outline.tags].count("script") == 1
    places = [value for _, each in outline.tags for name, value in each.items()
              if name in ("src", "href", "xlink:href") and value]  # fmt: skip
    own = ("#", "data:image/png;base64,", "data:text/csv;charset=utf-8;base64,")
    assert all(place.startswith(own) for place in places)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-"
    assert policy in html
    assert len(html) < 400_000
    assert "<script>alert" not in html and "&lt;script&gt;alert(1)" in html  # names are text
    assert "red <b>star" not in html and "red &lt;b&gt;star" in html


def test_the_page_says_what_was_compared_before_the_experiments() -> None:
    """Result, counts, figure and tables come first; an experiment opens with its figure."""
    html = every_page()
    first = html[: html.index('<section id="table">')]
    titles = ("<b>crg</b> is the best of 3 methods without labels", "<b>2</b> datasets",
              "<b>6</b> experiments", "Gain over zero-shot, feature files",
              "Gain over zero-shot, rendered shapes", "Win / tie", "mean over 1 dataset",
              "AUROC of outside")  # fmt: skip
    places = [first.index(word) for word in titles]
    assert places == sorted(places)
    assert "+25.00 points</b> over zero-shot" in first
    sections = re.findall(r'<section id="(\w+)">(.*?)</section>', html, re.S)
    names = [each.outline.name for each in ALL]
    assert [name for name, _ in sections] == ["gain", "quality", *names, "rules"]
    for _, text in sections[2:-1]:
        assert text.index("<svg") < text.index("Made up.") < text.index("<details>")
    assert html.count("Not run: ") == 1 and "<details open" not in html


def test_every_figure_can_be_downloaded_with_its_numbers() -> None:
    """A button for the SVG, and a link to a CSV file that holds every mark."""
    html = every_page()
    links = re.findall(r'download="([\w-]+)\.csv" href="data:[^,]+,([^"]+)"', html)
    names = [f"{each.outline.name}-{each.outline.figure}" for each in ALL]
    assert [name for name, _ in links] == ["overview", *names]
    assert html.count('class="svg" type="button"') == len(links)
    found = {name: list(csv.DictReader(base64.b64decode(data).decode().splitlines()))
             for name, data in links}  # fmt: skip
    marks = {(each["panel"], each["name"]): each for each in found["table-table"]}
    mine = marks["shapes:night:3", "crg"]
    assert float(mine["mean"]) == 25.0 and float(mine["low"]) < 25.0 < float(mine["high"])
    assert mine["verdict"] == "better" and len(found["noise-noise"]) == 9


def test_figures_are_valid_and_take_the_colour_of_the_page() -> None:
    """Every SVG parses, has text in the colour of the page, and shares no id with another."""
    figures = re.findall(r'<svg role="img".*?</svg>', every_page(), re.S)
    assert len(figures) >= len(ALL)
    ids = [name for svg in figures for name in set(re.findall(r' id="([^"]+)"', svg))]
    assert ids and len(set(ids)) == len(ids)
    for svg in figures:
        root = ElementTree.fromstring(svg)
        assert "width" not in root.attrib and "currentColor" in svg
        assert list(root.iter("{http://www.w3.org/2000/svg}text"))
        assert "DejaVu" not in svg and len(svg) < 40_000


def test_a_method_has_one_style_everywhere() -> None:
    """The colour belongs to the method; variants differ in line or marker."""
    crg, tda = Variant("crg", "crg"), Variant("tda", "tda")
    other, own = Variant("b", "crg", {"x": 1}), Variant("mine", "own_method")
    twice = Variant("crg, second pass", "crg", offline=True)
    alone, among = styles_of([crg]), styles_of([tda, other, crg, own, twice])
    assert alone["crg"] == among["crg"] != among["tda"]
    assert among["crg"].colour == among["b"].colour != among["mine"].colour
    assert len({among[label] for label in ("crg", "b", "crg, second pass")}) == 3
    names = [each for each in list_methods() if get_method(each).__module__.startswith("crg.")]
    builtin = styles_of(Variant(name, name) for name in names)
    assert len({style.colour for style in builtin.values()}) == len(names)


def test_one_panel_shows_a_dataset_with_two_sets_of_names(tmp_path: Path) -> None:
    """The names of further files make another source of the same dataset, whose text is flagged."""
    more = Source("pets, names of 2 files", "pets", then=("b.npz",), text_kind="simulated")
    settings = [Setting(label="own names"), Setting("many_names", "all names")]
    book = Book([A], "streams", sources=[Source("pets", "pets"), more], settings=settings)
    for place in range(2):
        book.add("zero_shot", share(100), share(100), source=place, setting=place)
        book.add("a", share(120), share(100), source=place, setting=place)
    experiment = book.read(tmp_path)
    figure, [table] = figure_of(experiment), layout.tables_of(experiment)
    assert figure is not None and {mark.panel for mark in figure.marks} == {"a"}
    [name] = {mark.name for mark in figure.marks}
    assert name == table.title == "pets; names of 2 files (simulated text)"
    assert [mark.place for mark in figure.marks] == ["own names", "all names"]
    assert [column.title for column in table.columns][1:3] == ["own names", "all names"]
    assert "<b>1</b> dataset<" in page.render([experiment])


def test_the_overview_ranks_methods_as_the_headline_does(tmp_path: Path) -> None:
    """By their mean on feature files, whatever they gain on rendered shapes."""
    book = Book([A, Variant("dpe", "dpe")], sources=ALL[0].outline.sources[:2])
    for label, place, n in (("a", 0, 190), ("a", 1, 120), ("dpe", 0, 100), ("dpe", 1, 130)):
        book.add(label, share(n), share(100), source=place)
    found = overview([book.read(tmp_path)])
    titles = list(dict.fromkeys(mark.panel for mark in found.marks)) if found else []
    assert titles == ["dpe: mean +15.00", "tda: mean +10.00"]


def test_settings_of_one_label_are_told_apart(tmp_path: Path) -> None:
    """Two sets of class names in the same setting have headings and marks of their own."""
    sources = [Source(f"pets, names of {n} files", "pets", then=("b.npz",) * n) for n in (2, 4)]
    settings = [Setting("many_names", "all names")]
    book = Book([A], "streams", sources=sources, settings=settings)
    for place in range(2):
        book.add("a", share(120), share(100), source=place)
    experiment = book.read(tmp_path)
    names = ["all names (names of 2 files)", "all names (names of 4 files)"]
    [table], figure = layout.tables_of(experiment), figure_of(experiment)
    assert [column.title for column in table.columns][1:3] == names
    assert figure is not None and [mark.place for mark in figure.marks] == names


def test_figures_show_the_made_accuracies_and_are_saved_as_pdf(tmp_path: Path) -> None:
    """Heights are accuracies; a PDF file is named after its experiment and dataset."""
    found = figure_of(noise().read(tmp_path))
    assert found is not None
    [(_, figure)] = found.drawn()
    axes = figure.axes[0]
    lines = {c.get_label(): c.lines[0].get_xydata().tolist() for c in axes.containers}
    assert lines["crg"] == [[0.0, 60.0], [0.3, 45.0], [0.6, 30.0]]
    assert axes.get_xlabel() == "wrong labels, %"
    paths = save_pdf(ALL[:1], tmp_path / "figures")
    assert sorted(path.name for path in paths) == [
        "table-dtd-simulated-text.pdf", "table-shapes-night-3.pdf",
    ]  # fmt: skip
    assert all(path.read_bytes().startswith(b"%PDF") for path in paths)


@pytest.mark.parametrize("library", ["jinja2", "matplotlib"])
def test_a_missing_library_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    """Without the extra, one sentence says how to install it."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"{library} is not installed: in the .*\[report\]"):
        page.render(ALL[:1])


def test_the_command_writes_what_is_asked_for(tmp_path: Path) -> None:
    """Tables and figures alone where only these are named, of the chosen methods."""
    results = noise().write(tmp_path / "noise.jsonl")
    out = [f"--out={tmp_path}/{name}" for name in ("t.md", "t.tex", "f")]
    called("report", str(results), "--methods", "crg", *out)
    shown = {each.name for each in tmp_path.iterdir()}
    assert shown == {"noise.jsonl", "t.md", "t.tex", "f"}
    assert "crg" in (tmp_path / "t.md").read_text() and "tda" not in (tmp_path / "t.md").read_text()


def on_screen(shown: Table, width: int = 200) -> str:
    """A table as a terminal shows it."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(tables.to_terminal(shown, width))
    return console.export_text()


def test_a_value_reads_the_same_everywhere() -> None:
    """Accuracy and gain have two decimals, a sign and a mark; a missing contrast is no tie."""
    gain = judged("zero_shot", Interval(0.03, 0.01, 0.05), 5, 99)
    shown = Table(
        (tables.METHOD, Column("a", tables.spread_text), Column("g", tables.gain_text)),
        (("crg", Spread(0.5, 0.01, ()), gain), ("tda", None, None)),
        best=frozenset({(0, 1)}),
    )
    for text in (on_screen(shown), to_markdown(shown), to_latex(shown).replace("$\\pm$", "±")):
        assert "50.00 ± 1.00" in text and "+3.00 [+1.00, +5.00]" in text
    assert "| crg | **50.00 ± 1.00** | +3.00 [+1.00, +5.00] ▲ |" in to_markdown(shown)
    assert "| tda | - | - |" in to_markdown(shown)
    ends = ((0.01, 0.02), (-0.01, 0.01), (-0.02, -0.01))
    found = [judged("z", Interval(0.0, *each), 5, 30) for each in ends]
    assert [each.mark for each in found] == ["▲", "", "▼"]
    assert tally([*found, found[0], None]) == (2, 1, 1)


def test_the_main_table_keeps_shapes_and_files_apart() -> None:
    """A table each, simulated text flagged, the best without labels in bold, labels named."""
    files, shapes = layout.main_tables(ALL)
    assert files.title.endswith("feature files") and shapes.title.endswith("rendered shapes")
    assert files.columns[1].title == "dtd (simulated text)"
    names = [row[0] for row in files.cells()]
    assert names[0] == "zero_shot" and names[-1] == "gda (uses labels)"
    assert [names[row] for row, _ in files.best] == ["crg"]
    cells = dict(zip(names, (row[1] for row in files.cells()), strict=True))
    assert cells["zero_shot"] == "50.00%"
    means = dict(zip(names, (row[-1] for row in files.cells()), strict=True))
    assert (means["crg"], means["gda (uses labels)"]) == ("+25.00", "-")
    assert cells["crg"].startswith("+25.00 [") and cells["crg"].endswith("▲")
    assert cells["tda"].startswith("-20.00 [") and cells["tda"].endswith("▼")


def test_the_grid_counts_every_dataset_and_setting() -> None:
    """Default options only; by hand from the made answers."""
    shown = layout.tally_table(ALL)
    row = next(row for row in shown.cells() if row[0] == "crg")
    columns = [column.title for column in shown.columns]
    assert columns[0] == "method" and columns[-1] == "all"
    assert row[1:5] == ["2 / 0 / 0", "1 / 0 / 0", "0 / 1 / 2", "1 / 0 / 1"]
    assert row[-1] == "4 / 1 / 3"


def test_tuned_methods_and_text_kinds_are_flagged_everywhere() -> None:
    """All formats show the flags."""
    comparison = ALL[0].comparisons[1]
    for shown in (layout.comparison_table(comparison), layout.short_table(comparison)):
        for text in (to_markdown(shown), to_latex(shown), on_screen(shown) + shown.title):
            assert "crg, tuned (tuned with labels)" in text and "simulated text" in text


def test_settings_are_columns(tmp_path: Path) -> None:
    """Accuracy and gain of each setting, the best of each in bold, and the lines to repeat."""
    shown = layout.settings_table(streams().read(tmp_path).comparisons)
    assert [column.title for column in shown.columns] == ["method", "shuffled", "by class", "lines"]
    assert shown.cells()[2][1].startswith("70.00; +20.00 [")
    assert {shown.rows[row][0] for row, column in shown.best if column == 2} == {"tda"}
    assert re.fullmatch(r"[\d, -]+", shown.cells()[2][3])


def test_ablations_and_cold_starts_have_columns_of_their_own(tmp_path: Path) -> None:
    """A variant is compared with the one that it extends; a cold start shows its first images."""
    shown = layout.comparison_table(ablation().read(tmp_path).comparisons[0])
    place = [column.title for column in shown.columns].index("to the method in brackets")
    assert shown.cells()[1][place].startswith("+20.00 [") and "(cache)" in shown.cells()[1][place]
    start = layout.first_table(ALL[1].comparisons[0])
    assert start is not None and layout.first_table(ALL[0].comparisons[0]) is None
    titles = [each.title for each in start.columns]
    assert titles == ["method", "first 50", "first 100", "first 200"]


def test_missing_datasets_and_methods_are_one_line(tmp_path: Path) -> None:
    """Missing datasets and refused methods, each reason once."""
    line = layout.not_run_line(table().read(tmp_path))
    assert line.count("\n") == 0 and "not found: sun397, RN50; eurosat, RN50; food101" in line
    assert "tpt (needs a text encoder)" in line


def test_nothing_in_a_name_is_markup() -> None:
    """A label full of special characters keeps Markdown and LaTeX tables in shape."""
    shown = layout.comparison_table(ALL[0].comparisons[0])
    lines = to_markdown(shown).splitlines()
    pipes = {len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")}
    assert len(pipes) == 1 and "<script>" not in to_markdown(shown)
    row = next(line for line in to_latex(shown).splitlines() if "script" in line)
    assert row.count(" & ") == len(shown.columns) - 1
    assert tables.escape_latex(NASTY) in row and r"\%" in row and r"\_" in row


def test_a_narrow_terminal_loses_optional_columns() -> None:
    """Columns are left out whole, never cut."""
    columns = (Column("m", is_text=True), Column("b"), Column("c", is_optional=True))
    shown = Table(columns, (("x" * 20, "y" * 20, "z" * 20),))
    assert "z" in on_screen(shown, 80) and "z" not in on_screen(shown, 60)
    assert "y" * 20 in on_screen(shown, 60)


def test_the_whole_text_has_every_experiment() -> None:
    """Markdown and LaTeX hold the main tables, the grid and all tables of each experiment."""
    opening = [*layout.main_tables(ALL), *layout.quality_tables(ALL)]
    count = len(opening) + 1 + sum(len(layout.tables_of(each)) for each in ALL)
    text = layout.whole_text(ALL, to_latex, "% {}")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{table}") == count
    assert layout.whole_text(ALL, to_markdown, "## {}").count("\n## ") == len(ALL)


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
    first = layout.tables_of(book.read(tmp_path))[0]
    assert first.title == "Accuracy in %, mean over 2 datasets"
    assert first.cells() == [["a", "55.00", "50.00"]]


def test_other_figures_than_accuracy_have_tables() -> None:
    """Calibration, risk and time are means over datasets; ``outside`` has a row per dataset."""
    shown = {each.title: each for each in layout.quality_tables(ALL)}
    files = shown["Feature files: mean over 1 dataset"]
    titles = [column.title for column in files.columns]
    assert titles[1:5] == ["accuracy %", "ECE %", "AURC %", "accuracy at 90% coverage"]
    row = next(row for row in files.cells() if row[0] == "crg")
    assert (row[1:4], row[titles.index("ms per image")]) == (["75.00", "10.00", "20.00"], "0.5")
    assert shown["Out-of-distribution images"].cells() == [["dtd (simulated text)", "90.00"]]


def test_a_cold_start_has_means_over_the_datasets(tmp_path: Path) -> None:
    """Only images that all datasets have count; a single dataset has no mean."""
    book = Book([A], "cold_start", sources=[Source("one"), Source("two")])
    for source in range(2):
        right = [share(100 + 20 * source, first=seed) for seed in range(5)]
        book.add("a", right, share(0), source=source)
    table = layout.mean_table(book.read(tmp_path))
    assert (
        table is not None and table.title == "Cold start: gain over zero-shot, mean over 2 datasets"
    )
    assert [column.title for column in table.columns][1:] == ["first 50", "first 100", "first 200"]
    assert table.cells()[0][0] == "a" and table.cells()[0][3] == "+55.00"
    assert layout.mean_table(ALL[1]) is None
