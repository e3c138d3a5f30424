"""Lines with bands: a number against another, one line per name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crg.report.charts.axes import (
    LINE_HEIGHT,
    Axis,
    Canvas,
    lines_of_text,
    roomy,
    rule,
    spread_out,
    width_of,
    wrapped,
    x_frame,
    y_frame,
)
from crg.report.charts.pens import Pen
from crg.report.evidence.study import Curve, Point

MOST_POINTS = 60
_PLOT = 254  # width of what is plotted with its axis: with names beside it, it fits on a phone
_SAMPLE = 22  # length of the piece of line beside a name
_GAP = 10  # from the end of a line to the sample of its pen


@dataclass(frozen=True)
class Series:
    """A line with its band; ``marked`` puts a dot on each point."""

    name: str
    points: Curve
    pen: Pen
    marked: bool = False


@dataclass(frozen=True)
class Titles:
    """What the axes say; ``marks`` are places on the level axis with their own texts."""

    x: str
    y: str
    marks: tuple[tuple[float, str], ...] = ()


def thinned(points: Curve) -> Curve:
    """At most 60 points, the first and the last among them."""
    if len(points) <= MOST_POINTS:
        return points
    places = {round(n * (len(points) - 1) / (MOST_POINTS - 1)) for n in range(MOST_POINTS)}
    return tuple(points[place] for place in sorted(places))


def band_chart(series: Sequence[Series], titles: Titles, height: float = 300) -> str:
    """All lines on one image; the names stand at their ends, beside samples of the pens."""
    every = [point for each in series for point in each.points]
    margin = width_of(each.name for each in series) + _SAMPLE + _GAP + 8
    canvas = Canvas(_PLOT + margin, height, right=margin)
    x = canvas.horizontal(*_reach(every, titles.marks))
    y = canvas.vertical(*roomy(min(p.low for p in every), max(p.high for p in every)))
    parts = [y_frame(x, y, titles.y), x_frame(x, y.start, titles.x, titles.marks)]
    parts += [_band(each, x, y) for each in series]
    parts += [_line(each, x, y) for each in series]
    parts += _names(series, x, y, canvas)
    names = ", ".join(each.name for each in series)
    return canvas.svg(parts, f"{titles.y} against {titles.x}: {names}")


def _reach(points: Sequence[Point], marks: Sequence[tuple[float, str]]) -> tuple[float, float]:
    places = [point.x for point in points] + [place for place, _ in marks]
    low, high = min(places), max(places)
    return roomy(low, high, 0.04) if marks else (low, high)


def _band(series: Series, x: Axis, y: Axis) -> str:
    if all(point.low == point.high for point in series.points):
        return ""
    there = [f"{x.place(p.x):.1f},{y.place(p.high):.1f}" for p in series.points]
    back = [f"{x.place(p.x):.1f},{y.place(p.low):.1f}" for p in reversed(series.points)]
    return (
        f'<polygon points="{" ".join(there + back)}" fill="{series.pen.colour}" '
        'fill-opacity="0.16"/>'
    )


def _line(series: Series, x: Axis, y: Axis) -> str:
    places = [(x.place(point.x), y.place(point.mean)) for point in series.points]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    colour = series.pen.colour
    dots = "".join(
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.4" fill="{colour}"/>' for a, b in places
    )
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.2"'
        f"{series.pen.dashing}/>{dots if series.marked else ''}"
    )


def _names(series: Sequence[Series], x: Axis, y: Axis, canvas: Canvas) -> list[str]:
    """The names, moved apart, each tied to the end of its line."""
    ends = [y.place(each.points[-1].mean) for each in series]
    room = [LINE_HEIGHT * len(wrapped(each.name)) + 2 for each in series]
    heights = spread_out(ends, room, 0, canvas.height)
    parts = []
    for each, end, height in zip(series, ends, heights, strict=True):
        colour, start = each.pen.colour, x.place(each.points[-1].x)
        parts.append(rule(start, end, x.end + _GAP, height, colour, ' stroke-opacity="0.5"'))
        sample = ' stroke-width="2.2"' + each.pen.dashing
        parts.append(rule(x.end + _GAP, height, x.end + _GAP + _SAMPLE, height, colour, sample))
        label = lines_of_text(x.end + _GAP + _SAMPLE + 4, height, each.name)
        parts.append(f'<g class="end">{label}</g>')
    return parts
