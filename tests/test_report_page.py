"""The report page and its figures: self-contained, escaped, small, and one colour per method."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from crg.cli import main
from crg.methods.registry import get_method, list_methods
from crg.report import page
from crg.report.figures import CAPTIONS, drawings_of, save_pdf, styles_of
from crg.report.layout import tables_of
from crg.results.schema import Setting, Source, Variant
from crg.types import InputError
from made_reports import every_experiment, every_page, noise
from made_results import Book, share

A = Variant("a", "tda")


ALL = every_experiment()


@pytest.fixture(scope="module")
def html() -> str:
    """The page of all of them."""
    return every_page()


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


def test_the_page_needs_nothing_but_itself(html: str) -> None:
    """No script, no external address, a policy that forbids both, and all tags closed."""
    outline = Outline(html)
    assert outline.open == [] and html.startswith("<!doctype html>")
    assert "script" not in {tag for tag, _ in outline.tags}
    places = [value for _, each in outline.tags for name, value in each.items()
              if name in ("src", "href", "xlink:href") and value]  # fmt: skip
    assert all(place.startswith(("#", "data:image/png;base64,")) for place in places)
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in html
    assert len(html) < 400_000
    assert "<script>alert" not in html and "&lt;script&gt;alert(1)" in html  # names are text
    assert "red <b>star" not in html and "red &lt;b&gt;star" in html


def test_the_first_screen_says_what_was_compared(html: str) -> None:
    """Counts, the main tables and the grid come before the first experiment."""
    first = html[: html.index("<section")]
    assert "<b>2</b> datasets" in first and "<b>7</b> experiments" in first
    places = [
        first.index(word) for word in ("Feature files", "Rendered shapes", "Win / tie / loss")
    ]
    assert places == sorted(places)


def test_a_section_opens_with_its_figure(html: str) -> None:
    """Each experiment has one fixed caption, folded details, and one line on what was not run."""
    sections = re.findall(r'<section id="(\w+)">(.*?)</section>', html, re.S)
    kinds = {each.outline.name: each.outline.figure for each in ALL}
    assert [name for name, _ in sections] == [*kinds, "rules"]
    for name, text in sections[:-1]:
        assert text.index("<svg") < text.index("<details>")
        assert CAPTIONS[kinds[name]] in text
    assert html.count("Not run: ") == 1 and "<details open" not in html


def test_figures_are_valid_and_take_the_colour_of_the_page(html: str) -> None:
    """Every SVG parses, has text in the colour of the page, and shares no id with another."""
    figures = re.findall(r'<svg role="img".*?</svg>', html, re.S)
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
    [(title, _)], [table] = drawings_of(experiment), tables_of(experiment)
    assert title == table.title == "pets; names of 2 files (simulated text)"
    assert [column.title for column in table.columns][1:3] == ["own names", "all names"]


def test_the_noise_figure_shows_accuracy_against_wrong_labels(tmp_path: Path) -> None:
    """The heights of the line are the made accuracies."""
    [(_, figure)] = drawings_of(noise().read(tmp_path))
    axes = figure.axes[0]
    lines = {c.get_label(): c.lines[0].get_xydata().tolist() for c in axes.containers}
    assert lines["crg"] == [[0.0, 60.0], [0.3, 45.0], [0.6, 30.0]]
    assert axes.get_xlabel() == "wrong labels, %"


def test_figures_are_saved_as_pdf(tmp_path: Path) -> None:
    """One file per experiment and dataset, named after both."""
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
    """A page by default; tables and figures alone where only these are named."""
    results = noise().write(tmp_path / "noise.jsonl")
    words = ["report", str(results), "--methods", "crg", "--markdown", f"{tmp_path}/t.md",
             "--latex", f"{tmp_path}/t.tex", "--figures", f"{tmp_path}/f"]  # fmt: skip
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    shown = {each.name for each in tmp_path.iterdir()}
    assert shown == {"noise.jsonl", "t.md", "t.tex", "f"}
    assert "crg" in (tmp_path / "t.md").read_text() and "tda" not in (tmp_path / "t.md").read_text()
    out = tmp_path / "page.html"
    assert CliRunner().invoke(main, ["report", str(results), "--out", str(out)]).exit_code == 0
    assert CliRunner().invoke(main, ["report", str(results), "--out", str(out)]).exit_code == 0
    out.write_text("mine")
    refused = CliRunner().invoke(main, ["report", str(results), "--out", str(out)])
    assert refused.exit_code == 2 and "is not ours" in refused.stderr
    assert out.read_text() == "mine"
