"""Plots as SVG, drawn by hand so that a page needs nothing but itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from crg.report.charts.axes import Axis

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 16, 44  # the right margin holds the names of the lines

# Okabe and Ito's colours, which most colour-blind people can tell apart; zero-shot is grey.
COLOURS = ("#777777", "#e69f00", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8a800")

_DASHES = ("none", "9 5", "3 4")

Points = Sequence[tuple[float, float]]


def palette(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, so that a name has one colour on all charts of a page."""
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}


def line_chart(
    lines: Mapping[str, Points], x_title: str, y_title: str, colours: Mapping[str, str]
) -> str:
    """One line per name; the names stand at the ends of the lines."""
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    x, y = _horizontal(min(xs), max(xs)), _vertical(*_roomy(min(ys), max(ys)))
    parts = [_frame(x, y, x_title, y_title)]
    ends = _apart([y.place(points[-1][1]) for points in lines.values()])
    for number, (name, points) in enumerate(lines.items()):
        colour = colours[name]
        path = " ".join(f"{x.place(a):.1f},{y.place(b):.1f}" for a, b in points)
        dashes = _DASHES[number % len(_DASHES)]  # lines that lie on each other can both be seen
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" '
            f'stroke-dasharray="{dashes}"/>'
        )
        parts.append(_text(x.end + 8, ends[number] + 4, name, colour=colour))
    return _svg(parts, f"{y_title} against {x_title}")


def spread_chart(
    values: Mapping[str, Sequence[float]], y_title: str, colours: Mapping[str, str]
) -> str:
    """One column per name: a dot for each value and a bar at their mean."""
    every = [value for each in values.values() for value in each]
    y = _vertical(*_roomy(min(every), max(every)))
    x = Axis(-0.5, len(values) - 0.5, LEFT, WIDTH - 16)
    parts = [_frame(x, y, "", y_title, names=list(values))]
    for number, (name, dots) in enumerate(values.items()):
        colour, middle = colours[name], x.place(number)
        mean = sum(dots) / len(dots)
        parts.append(
            f'<line x1="{middle - 26:.1f}" x2="{middle + 26:.1f}" y1="{y.place(mean):.1f}" '
            f'y2="{y.place(mean):.1f}" stroke="{colour}" stroke-width="4"/>'
        )
        parts += [
            f'<circle cx="{middle + 5 * (place - (len(dots) - 1) / 2):.1f}" '
            f'cy="{y.place(dot):.1f}" r="3.5" fill="{colour}" fill-opacity="0.55"/>'
            for place, dot in enumerate(dots)
        ]
        parts.append(_text(middle, y.place(max(dots)) - 8, f"{mean:.1f}", colour, "middle"))
    return _svg(parts, f"{y_title} of {', '.join(values)}")


def _frame(x: Axis, y: Axis, x_title: str, y_title: str, names: Sequence[str] | None = None) -> str:
    """Grid lines, ticks and titles."""
    parts = []
    for tick in y.ticks():
        height = y.place(tick)
        parts.append(
            f'<line x1="{x.start}" x2="{x.end}" y1="{height:.1f}" y2="{height:.1f}" '
            'stroke="currentColor" stroke-opacity="0.15"/>'
        )
        parts.append(_text(x.start - 8, height + 4, f"{tick:g}", anchor="end"))
    marks = [(float(n), name) for n, name in enumerate(names)] if names else [
        (tick, f"{tick:g}") for tick in x.ticks()
    ]  # fmt: skip
    parts += [_text(x.place(at), y.start + 18, text, anchor="middle") for at, text in marks]
    parts.append(_text((x.start + x.end) / 2, HEIGHT - 6, x_title, anchor="middle"))
    middle = (y.start + y.end) / 2
    parts.append(
        f'<text x="14" y="{middle:.1f}" text-anchor="middle" fill="currentColor" '
        f'transform="rotate(-90 14 {middle:.1f})">{escape(y_title)}</text>'
    )
    return "".join(parts)


def _horizontal(low: float, high: float) -> Axis:
    return Axis(low, high if high > low else low + 1, LEFT, WIDTH - RIGHT)


def _vertical(low: float, high: float) -> Axis:
    return Axis(low, high, HEIGHT - BOTTOM, TOP)


def _roomy(low: float, high: float) -> tuple[float, float]:
    """The range with some room around it, so that no dot lies on the edge."""
    room = 0.12 * (high - low) or 1.0
    return low - room, high + room


def _apart(places: Sequence[float], least: float = 15.0) -> list[float]:
    """The places pushed downwards just so far that texts there do not overlap."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    moved = list(places)
    for above, below in itertools.pairwise(order):
        moved[below] = max(moved[below], moved[above] + least)
    return moved


def _text(
    x: float, y: float, text: str, colour: str = "currentColor", anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">'
        f"{escape(text)}</text>"
    )


def _svg(parts: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label, quote=True)}" '
        f'font-family="inherit" font-size="13">{"".join(parts)}</svg>'
    )
