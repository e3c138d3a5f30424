"""Charts: lines with bands, rows of intervals or steps, and reliability diagrams."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from crg.metrics import Interval
from crg.report.charts.axes import (
    DOWN,
    FONT_SIZE,
    LETTER,
    LINE_HEIGHT,
    NEITHER,
    UP,
    Axis,
    Canvas,
    Pen,
    faint,
    lines_of_text,
    roomy,
    rule,
    spread_out,
    text,
    width_of,
    wrapped,
    x_frame,
    y_frame,
)
from crg.report.evidence.study import Bin, Curve, Point

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


_LARGEST = 9.0  # radius of a dot that holds all answers
_LETTERS = 25  # of a name before it is put on two lines


def reliability_diagram(name: str, bins: Sequence[Bin], pen: Pen, remark: str) -> str:
    """Accuracy against confidence; the area of a dot is the fraction of answers in it.

    Below the diagonal a method is surer than it is right.
    """
    more = LINE_HEIGHT * (len(wrapped(name, _LETTERS)) - 1)
    canvas = Canvas(210, 252 + more, left=42, right=12, top=46 + more, bottom=46)
    x, y = canvas.horizontal(0, 100), canvas.vertical(0, 100)
    parts = [lines_of_text(4, 10 + more / 2, name, letters=_LETTERS), text(4, 30 + more, remark)]
    for tick in (0, 50, 100):
        parts.append(faint(x.start, y.place(tick), x.end, y.place(tick)))
        parts.append(text(x.start - 5, y.place(tick) + 4.5, f"{tick}", "end"))
        side = {0: "start", 100: "end"}.get(tick, "middle")
        parts.append(text(x.place(tick), y.start + 17, f"{tick}", side))
    parts.append(text((x.start + x.end) / 2, canvas.height - 8, "confidence %", "middle"))
    dashed = ' stroke-opacity="0.6" stroke-dasharray="3 3"'
    parts.append(rule(x.start, y.start, x.end, y.end, "currentColor", dashed))
    total = sum(each.count for each in bins) or 1
    filled = [each for each in bins if each.count]
    places = [(x.place(100 * b.confidence), y.place(100 * b.accuracy)) for b in filled]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{pen.colour}" stroke-width="2"/>')
    for each, (a, b) in zip(filled, places, strict=True):
        radius = max(1.5, _LARGEST * math.sqrt(each.count / total))
        parts.append(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius:.1f}" fill="{pen.colour}" '
            'fill-opacity="0.75"/>'
        )
    return canvas.svg(parts, f"accuracy against confidence of {name}: {remark}")


_ROW = 44.0
_BASELINE = 15.0  # of the words of a row, above its mark: beside it they would not fit on a phone
_MIDDLE = 31.0  # of its mark
_WIDTH = 400.0
_MARGIN = 16.0
_TICKS = 7  # about so many
_HALO = ' paint-order="stroke" stroke="var(--page,#fff)" stroke-width="4"'  # over grid lines


@dataclass(frozen=True)
class Bar:
    """One row: from ``start`` to the middle of ``interval``; ``remark`` stands at the right."""

    name: str
    interval: Interval
    start: float = 0.0
    is_step: bool = False  # continues from the row before
    verdict: str = ""
    remark: str = ""


def interval_chart(bars: Sequence[Bar], x_title: str) -> str:
    """A dot with its interval per row, and a line at zero; filled where zero is excluded."""
    canvas, x, parts = _laid_out(bars, x_title)
    for number, bar in enumerate(bars):
        height = _height(canvas, number)
        at, colour = x.place(bar.interval.mean), _verdict_colour(bar)
        parts.append(_whisker(bar, x, height, colour))
        fill = colour if bar.verdict else "var(--page,#fff)"
        parts.append(
            f'<circle cx="{at:.1f}" cy="{height:.1f}" r="5" fill="{fill}" stroke="{colour}" '
            'stroke-width="2"/>'
        )
    return canvas.svg(parts, f"{x_title}: {', '.join(bar.name for bar in bars)}")


def waterfall_chart(bars: Sequence[Bar], x_title: str) -> str:
    """Bars from where the row before ended (steps) or from zero, with intervals at their ends."""
    canvas, x, parts = _laid_out(bars, x_title)
    for number, bar in enumerate(bars):
        height = _height(canvas, number)
        start, end = x.place(bar.start), x.place(bar.interval.mean)
        colour = UP if end >= start else DOWN
        solid = ' fill-opacity="0.35"' if bar.is_step else ' fill-opacity="0.75"'
        parts.append(
            f'<rect x="{min(start, end):.1f}" y="{height - 9:.1f}" '
            f'width="{max(abs(end - start), 1):.1f}" height="18" fill="{colour}"{solid} '
            f'stroke="{colour}"/>'
        )
        if bar.is_step:
            parts.append(faint(start, height - _ROW + 9, start, height - 9, 0.6))
        parts.append(_whisker(bar, x, height, "currentColor"))
    return canvas.svg(parts, f"{x_title}: {', '.join(bar.name for bar in bars)}")


def _laid_out(bars: Sequence[Bar], x_title: str) -> tuple[Canvas, Axis, list[str]]:
    """The image with names, remarks, grid and the line at zero."""
    widest = max(LETTER * (len(bar.name) + len(bar.remark)) + FONT_SIZE for bar in bars)
    width = max(_WIDTH, widest + 2 * _MARGIN)
    canvas = Canvas(width, 60 + _ROW * len(bars), left=_MARGIN, right=_MARGIN)
    reach = [v for bar in bars for v in (bar.interval.low, bar.interval.high, bar.start, 0.0)]
    x = canvas.horizontal(*roomy(min(reach), max(reach)))
    bottom = canvas.height - canvas.bottom
    parts = [faint(x.place(tick), canvas.top, x.place(tick), bottom) for tick in x.ticks(_TICKS)]
    parts.append(faint(x.place(0), canvas.top - 6, x.place(0), bottom, 0.7))
    marks = [(tick, f"{tick:+g}" if tick else "0") for tick in x.ticks(_TICKS)]
    parts.append(x_frame(x, bottom, x_title, marks))
    for number, bar in enumerate(bars):
        baseline = canvas.top + _ROW * number + _BASELINE
        parts.append(text(x.start, baseline, bar.name, more=_HALO))
        parts.append(text(x.end, baseline, bar.remark, "end", _HALO))
    return canvas, x, parts


def _height(canvas: Canvas, number: int) -> float:
    return canvas.top + _ROW * number + _MIDDLE


def _whisker(bar: Bar, x: Axis, height: float, colour: str) -> str:
    low, high = x.place(bar.interval.low), x.place(bar.interval.high)
    ends = [rule(at, height - 4, at, height + 4, colour) for at in (low, high)]
    return rule(low, height, high, height, colour, ' stroke-width="2"') + "".join(ends)


def _verdict_colour(bar: Bar) -> str:
    return {"better": UP, "worse": DOWN}.get(bar.verdict, NEITHER)
