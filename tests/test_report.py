"""Plots and pages for people."""

from __future__ import annotations

import html.parser
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crg.report.charts.axes import Axis
from crg.report.html import (
    Demonstration,
    Example,
    demonstration_page,
    line_chart,
    palette,
    spread_chart,
)

SVG = "http://www.w3.org/2000/svg"


def elements(svg: str, tag: str) -> list[ET.Element]:
    """All elements of a kind; fails if the SVG is not well formed."""
    return list(ET.fromstring(svg).iter(tag))


def row(mean: float, method: str, **more: Any) -> dict[str, Any]:
    """A row of a comparison as ``crg.bench.grid`` makes it."""
    return {
        "method": method, "accuracy": {"mean": mean, "std": 0.01, "per_order": [mean, mean - 0.01]},
        "gain": {"mean": 0.1, "low": 0.05, "high": 0.15}, "ece": 0.1, "purity": 0.9,
        "ms_per_step": 0.5, "best": method == "crg", **more,
    }  # fmt: skip


def demonstration(**more: Any) -> Demonstration:
    """A demonstration with little in it."""
    rows = {"zero_shot": row(0.6, "zero_shot", purity=None), "crg": row(0.7, "crg")}
    facts: dict[str, Any] = {
        "title": "Shapes <at night>",
        "summary": {"files": {"demo": rows}},
        "shown": "crg",
        "running": {"zero_shot": ((1.0, 50.0), (9.0, 60.0)), "crg": ((1.0, 50.0), (9.0, 70.0))},
        "purity": {"crg": ((1.0, 100.0), (9.0, 90.0))},
        "corrected": (Example(b"png", "red star", "red heart", "red star"),),
        "broken": (),
        "n_corrected": 7,
        "n_broken": 0,
        "facts": {"seed": 0},
    }
    return Demonstration(**{**facts, **more})


class Balanced(html.parser.HTMLParser):
    """Counts what is open and notes every address that leads out of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.addresses += [v for k, v in attrs if k in ("src", "href", "srcset") and v]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_lines_go_through_their_points() -> None:
    """A line chart has one line per name, higher values higher up, and the names as texts."""
    svg = line_chart(
        {"a": [(0, 1), (10, 3)], "b": [(0, 2), (10, 2)]}, "steps", "share", palette("ab")
    )
    first, _ = (line.attrib["points"].split() for line in elements(svg, "polyline"))
    heights = [float(point.split(",")[1]) for point in first]
    assert heights[1] < heights[0]
    texts = [text.text for text in elements(svg, "text")]
    assert {"a", "b", "steps", "share"} <= set(texts)


def test_columns_show_every_value() -> None:
    """A spread chart has a dot for each value, a bar and the mean for each name."""
    svg = spread_chart({"a": [60.0, 61.0], "b": [70.0, 71.5, 72.0]}, "accuracy %", palette("ab"))
    assert len(elements(svg, "circle")) == 5
    assert {"60.5", "71.2"} <= {text.text for text in elements(svg, "text")}


def test_equal_values_still_make_a_chart() -> None:
    """One value, or all the same, gives a chart without a division by zero."""
    assert elements(spread_chart({"a": [50.0]}, "x", palette("a")), "circle")
    assert elements(line_chart({"a": [(3, 50)]}, "x", "y", palette("a")), "polyline")


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_round_and_inside(low: float, width: float) -> None:
    """There are two to twelve ticks, within the range and evenly spaced."""
    axis = Axis(low, low + width, 0, 100)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 12
    room = 1e-6 * (abs(low) + width)
    assert all(low - room <= tick <= low + width + room for tick in ticks)


def test_names_at_the_ends_do_not_overlap() -> None:
    """Lines that end at the same height have their names below each other."""
    svg = line_chart({name: [(0, 0), (1, 1)] for name in "abcd"}, "x", "y", palette("abcd"))
    at = [float(t.attrib["y"]) for t in elements(svg, "text") if t.text in tuple("abcd")]
    gaps = [after - before for before, after in zip(sorted(at), sorted(at)[1:], strict=False)]
    assert min(gaps) >= 14


def test_a_name_has_one_colour() -> None:
    """A method that is missing from one chart does not change the colours of the others."""
    colours = palette(["zero_shot", "tda", "crg"])
    svg = line_chart({"crg": [(0, 1), (1, 2)]}, "x", "y", colours)
    assert elements(svg, "polyline")[0].attrib["stroke"] == colours["crg"]


def test_the_page_needs_nothing_but_itself() -> None:
    """The page is well formed and loads nothing from anywhere."""
    page = demonstration_page(demonstration())
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert parser.addresses and all(a.startswith("data:image/png") for a in parser.addresses)
    assert "http" not in page.replace(SVG, "")


def test_the_page_tells_both_sides() -> None:
    """Corrected and broken answers are counted, and names are escaped."""
    page = demonstration_page(demonstration())
    assert "corrected 7 answers" in page and "broke 0" in page
    assert "Shapes &lt;at night&gt;" in page
    assert "red heart ✗" in page and "red star ✓" in page


@pytest.mark.parametrize("gap", [{"purity": {}}, {"corrected": ()}])
def test_what_is_missing_is_left_out(gap: dict[str, Any]) -> None:
    """Without caches or changed answers there is still a page."""
    assert "<h1>" in demonstration_page(demonstration(**gap))
