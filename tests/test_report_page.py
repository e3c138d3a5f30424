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
from crg.report.experiment import Experiment, read_experiments
from crg.report.figures import CAPTIONS, drawings_of, styles_of, save_pdf, to_svg
from crg.report.layout import tables_of
from crg.results.schema import Variant, Setting, Source
from crg.streams import Scenario
from crg.types import InputError
from made_reports import NASTY, every_experiment, noise, table
from made_results import Book, share

A = Variant("a", "tda")


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> list[Experiment]:
    """One experiment of each kind."""
    return every_experiment(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def html(all_of_them: list[Experiment]) -> str:
    """The page of all of them."""
    return page.render(all_of_them)


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
    """No script, no address of another place, a policy that forbids both, and all tags closed."""
    outline = Outline(html)
    assert outline.open == [] and html.startswith("<!doctype html>")
    assert "script" not in {tag for tag, _ in outline.tags}
    places = [value for _, each in outline.tags for name, value in each.items()
              if name in ("src", "href", "xlink:href") and value]  # fmt: skip
    assert all(place.startswith(("#", "data:image/png;base64,")) for place in places)
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in html
    assert len(html) < 400_000


def test_names_are_text_and_never_markup(html: str) -> None:
    """Labels, classes and titles of other people cannot open a tag, in tables or figures."""
    assert "<script>alert" not in html and "&lt;script&gt;alert(1)" in html
    assert "red <b>star" not in html and "red &lt;b&gt;star" in html


def test_the_first_screen_says_what_was_compared(html: str) -> None:
    """Counts, the main tables and the grid come before the first experiment."""
    first = html[: html.index("<section")]
    assert "<b>2</b> datasets" in first and "<b>7</b> experiments" in first
    places = [
        first.index(word) for word in ("Feature files", "Rendered shapes", "Win / tie / loss")
    ]
    assert places == sorted(places)


def test_a_section_opens_with_its_figure(html: str, all_of_them: list[Experiment]) -> None:
    """Each experiment has one fixed caption, folded details, and one line on what was not run."""
    sections = re.findall(r'<section id="(\w+)">(.*?)</section>', html, re.S)
    kinds = {each.outline.name: each.outline.figure for each in all_of_them}
    assert [name for name, _ in sections] == [*kinds, "rules"]
    for name, text in sections[:-1]:
        assert text.index("<svg") < text.index("<details>")
        assert CAPTIONS[kinds[name]] in text
    assert html.count("Not run: ") == 1 and "<details open" not in html


def test_the_same_runs_appear_once(tmp_path: Path) -> None:
    """An experiment with the rows and images of an earlier one is named and not repeated."""
    paths = [table(name=name, title=f"Title {name}").write(tmp_path / f"{name}.jsonl")
             for name in ("first", "second")]  # fmt: skip
    text = page.render(read_experiments(paths))
    assert '<section id="first">' in text and '<section id="second">' not in text
    assert "shown once: Title second" in text


def test_figures_are_valid_and_take_the_colour_of_the_page(all_of_them: list[Experiment]) -> None:
    """Every kind gives an SVG that parses, has text in it, and no colour of its own for letters."""
    for experiment in all_of_them:
        for _, figure in drawings_of(experiment):
            svg = to_svg(figure, f"{experiment.outline.name} & {NASTY}")
            root = ElementTree.fromstring(svg)
            assert root.get("role") == "img" and "width" not in root.attrib
            assert list(root.iter("{http://www.w3.org/2000/svg}text"))
            assert "currentColor" in svg and "DejaVu" not in svg and len(svg) < 40_000


def test_ids_of_two_figures_do_not_meet(all_of_them: list[Experiment]) -> None:
    """Clip paths of panels on one page have names of their own."""
    one, other = (
        set(re.findall(r' id="([^"]+)"', to_svg(figure, str(n))))
        for n, (_, figure) in enumerate(drawings_of(all_of_them[0]))
    )
    assert one and not one & other


def test_a_method_has_one_pen_everywhere() -> None:
    """The colour belongs to the method in any company; variants differ in line or marker."""
    alone, among = styles_of([Variant("crg", "crg")]), styles_of([Variant("tda", "tda"), Variant("crg", "crg")])
    assert alone["crg"] == among["crg"] != among["tda"]
    variants = styles_of([Variant("b", "crg", {"x": 1}), Variant("a", "crg"), Variant("mine", "own_method")])
    assert variants["a"].colour == variants["b"].colour != variants["mine"].colour
    assert variants["a"] != variants["b"] and variants["a"] == alone["crg"]
    passes = styles_of([Variant("crg", "crg"), Variant("crg, second pass", "crg", offline=True)])
    assert passes["crg"] != passes["crg, second pass"]
    ours = [each for each in list_methods() if get_method(each).__module__.startswith("crg.")]
    builtin = [Variant(name, name) for name in ours]
    assert len({pen.colour for pen in styles_of(builtin).values()}) == len(builtin)


def test_one_panel_shows_images_with_their_own_and_with_more_names(tmp_path: Path) -> None:
    """The names of further files make another source of the same dataset, whose text is flagged."""
    more = Source("pets, names of 2 files", "pets", then=("b.npz",), text_kind="simulated")
    settings = [Setting("own names"), Setting("all names", Scenario("many_names"))]
    book = Book([A], "streams", sources=[Source("pets", "pets"), more], settings=settings)
    for place in range(2):
        book.add("zero_shot", share(100), share(100), source=place, setting=place)
        book.add("a", share(120), share(100), source=place, setting=place)
    experiment = book.read(tmp_path)
    [(title, _)], [table] = drawings_of(experiment), tables_of(experiment)
    assert title == table.title == "pets; names of 2 files (simulated text)"
    assert [column.title for column in table.columns][1:3] == ["own names", "all names"]


def test_the_noise_figure_shows_accuracy_against_wrong_labels(tmp_path: Path) -> None:
    """The heights of the line are the accuracies that were made up."""
    [(_, figure)] = drawings_of(noise().read(tmp_path))
    axes = figure.axes[0]
    lines = {c.get_label(): c.lines[0].get_xydata().tolist() for c in axes.containers}
    assert lines["crg"] == [[0.0, 60.0], [0.3, 45.0], [0.6, 30.0]]
    assert axes.get_xlabel() == "wrong labels, %"


def test_figures_are_saved_as_pdf(all_of_them: list[Experiment], tmp_path: Path) -> None:
    """One file per experiment and dataset, named after both."""
    paths = save_pdf(all_of_them[:2], tmp_path / "figures")
    assert sorted(path.name for path in paths) == [
        "cold_start-shapes-night-3.pdf", "table-dtd-simulated-text.pdf", "table-shapes-night-3.pdf",
    ]  # fmt: skip
    assert all(path.read_bytes().startswith(b"%PDF") for path in paths)


@pytest.mark.parametrize(("library", "call"), [("jinja2", "page"), ("matplotlib", "figures")])
def test_a_missing_library_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, all_of_them: list[Experiment], library: str, call: str
) -> None:
    """Without the extra, one sentence says how to install it."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"{library}: in the clone .*\[report\]"):
        page._environment() if call == "page" else drawings_of(all_of_them[0])


def test_the_command_writes_what_is_asked_for(tmp_path: Path) -> None:
    """A page by default; tables and figures alone where only these are named."""
    results = noise().write(tmp_path / "noise.jsonl")
    words = ["report", str(results), "--methods", "crg", "--markdown", f"{tmp_path}/t.md",
             "--latex", f"{tmp_path}/t.tex", "--figures", f"{tmp_path}/f"]  # fmt: skip
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    shown = {each.name for each in tmp_path.iterdir() if not each.name.endswith(".lock")}
    assert shown == {"noise.jsonl", "t.md", "t.tex", "f"}
    assert "crg" in (tmp_path / "t.md").read_text() and "tda" not in (tmp_path / "t.md").read_text()
    out = tmp_path / "page.html"
    assert CliRunner().invoke(main, ["report", str(results), "--out", str(out)]).exit_code == 0
    assert CliRunner().invoke(main, ["report", str(results), "--out", str(out)]).exit_code == 0
    out.write_text("mine")
    refused = CliRunner().invoke(main, ["report", str(results), "--out", str(out)])
    assert refused.exit_code == 2 and "is not ours" in refused.stderr
    assert out.read_text() == "mine"
