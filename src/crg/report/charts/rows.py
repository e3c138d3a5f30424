"""Charts with a row per name: intervals beside each other, and steps that add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crg.metrics import Interval
from crg.report.charts.axes import (
    FONT_SIZE,
    LETTER,
    Axis,
    Canvas,
    faint,
    roomy,
    rule,
    text,
    x_frame,
)
from crg.report.charts.pens import DOWN, NEITHER, UP

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
