"""Charts: what is drawn lies where the numbers say, and names keep apart."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crg.metrics import Interval
from crg.report.charts.axes import LINE_HEIGHT, pen, pens_of, spread_out, wrapped
from crg.report.charts.lines import (
    MOST_POINTS,
    Bar,
    Series,
    Titles,
    band_chart,
    interval_chart,
    reliability_diagram,
    thinned,
    waterfall_chart,
)
from crg.report.evidence.study import Bin, Point
from crg.results.outline import Row
from made_studies import METHODS, curve


def elements(svg: str, tag: str) -> list[ET.Element]:
    """All elements of a kind; fails if the SVG is not well formed."""
    return list(ET.fromstring(svg).iter(tag))


def places(points: str) -> list[tuple[float, float]]:
    """The corners of a line or an area."""
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in points.split())]


def test_a_band_lies_around_its_line() -> None:
    """At every point the band reaches from above the line to below it."""
    svg = band_chart([Series("a", curve(0.7), pen(1))], Titles("x", "y"))
    [line], [band] = elements(svg, "polyline"), elements(svg, "polygon")
    middle, around = places(line.attrib["points"]), places(band.attrib["points"])
    upper, lower = around[: len(middle)], around[: len(middle) - 1 : -1]
    for (x, y), (_, above), (_, below) in zip(middle, upper, lower, strict=True):
        assert above < y < below, x


def test_a_single_order_has_no_band() -> None:
    """Where nothing varies no area is drawn."""
    flat = tuple(Point(float(x), 0.5, 0.5, 0.5) for x in range(3))
    assert not elements(band_chart([Series("a", flat, pen(0))], Titles("x", "y")), "polygon")


def test_long_curves_are_thinned() -> None:
    """At most sixty points are left, and the ends are among them."""
    whole = curve(0.7, points=1000)
    kept = thinned(whole)
    assert len(kept) <= MOST_POINTS and (kept[0], kept[-1]) == (whole[0], whole[-1])
    assert thinned(whole[:7]) == whole[:7]


@given(st.lists(st.floats(0, 300), min_size=1, max_size=15))
def test_places_are_spread_out(places_before: list[float]) -> None:
    """Names keep their order, keep apart and stay on the image."""
    room = [LINE_HEIGHT] * len(places_before)
    moved = spread_out(places_before, room, 0, 300)
    order = sorted(range(len(moved)), key=lambda n: places_before[n])
    assert all(moved[b] - moved[a] >= LINE_HEIGHT - 1e-9 for a, b in itertools.pairwise(order))
    assert min(moved) >= LINE_HEIGHT / 2 - 1e-9 and max(moved) <= 300 - LINE_HEIGHT / 2 + 1e-9


def test_places_that_are_far_apart_stay() -> None:
    """Nothing is moved without need."""
    assert spread_out([30, 100, 200], [15, 15, 15], 0, 300) == [30, 100, 200]


def test_steps_start_where_the_row_before_ended() -> None:
    """A step's bar begins at the end of the bar above; a standing one begins at zero."""
    bars = [
        Bar("first", Interval(2.0, 1.0, 3.0)),
        Bar("+ second", Interval(3.0, 2.0, 4.0), start=2.0, is_step=True),
        Bar("all", Interval(5.0, 4.0, 6.0)),
    ]
    rects = [
        (float(r.attrib["x"]), float(r.attrib["width"]))
        for r in elements(waterfall_chart(bars, "points"), "rect")
    ]
    assert rects[1][0] == pytest.approx(rects[0][0] + rects[0][1], abs=0.2)
    assert rects[2][0] == rects[0][0] and rects[2][1] == pytest.approx(2.5 * rects[0][1], abs=0.5)


def test_only_a_verdict_fills_a_dot() -> None:
    """A difference that is called neither better nor worse has a hollow dot."""
    bars = [
        Bar("sure", Interval(2.0, 1.0, 3.0), verdict="better"),
        Bar("unsure", Interval(2.0, -1.0, 5.0)),
    ]
    sure, unsure = elements(interval_chart(bars, "points"), "circle")
    assert sure.attrib["fill"] == sure.attrib["stroke"]
    assert unsure.attrib["fill"] != unsure.attrib["stroke"]


def test_dots_of_a_reliability_diagram_grow_with_their_share() -> None:
    """The bin with more answers has the larger dot, the surer one lies further right."""
    bins = (Bin(10, 0.4, 0.5), Bin(90, 0.9, 0.8))
    first, second = elements(reliability_diagram("a", bins, pen(1), "error 1%"), "circle")
    assert float(second.attrib["r"]) > float(first.attrib["r"])
    assert float(second.attrib["cx"]) > float(first.attrib["cx"])


def test_every_row_has_a_pen_of_its_own() -> None:
    """No two rows share colour and dashes, and a method keeps its pen from study to study."""
    rows = [Row(m, m) for m in METHODS] + [Row(f"crg, {n}", "crg") for n in range(9)]
    pens = pens_of(rows)
    assert len(set(pens.values())) == len(rows)
    assert pens_of([Row("Gaussian", "crg"), Row("crg", "crg")])["crg"] == pens["crg"]


def test_long_names_are_put_on_two_lines() -> None:
    """A name is broken near its middle, and only if it is long."""
    assert wrapped("crg") == ["crg"]
    assert wrapped("+ negative and cache separation") == ["+ negative and", "cache separation"]
