"""Reliability diagrams: how often answers of a confidence are right, one small image per row."""

from __future__ import annotations

import math
from collections.abc import Sequence

from crg.report.charts.axes import (
    LINE_HEIGHT,
    Canvas,
    faint,
    lines_of_text,
    rule,
    text,
    wrapped,
)
from crg.report.charts.pens import Pen
from crg.report.evidence.study import Bin

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
