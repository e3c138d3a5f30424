"""Axes, ticks, texts and pens: what every chart is made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from crg.results.outline import Row

# Okabe and Ito's colours, which most colour-blind people can tell apart; zero-shot is grey. The
# page may lighten one in the dark; an image that is taken out of it has the plain colour.
COLOURS = (
    "#777777", "#e69f00", "#009e73", "var(--blue,#0072b2)", "#d55e00", "#cc79a7", "#56b4e9",
    "#b8a800",
)  # fmt: skip
UP, DOWN, NEITHER = "var(--blue,#0072b2)", "#d55e00", "#777777"

_DASHES = ("", "8 4", "2.5 3", "9 3 2.5 3")
_OWN = ("zero_shot", "tda", "dpe", "crg", "tip_adapter", "gda", "tpt", "difftpt", "coop")


@dataclass(frozen=True)
class Pen:
    """How a row is drawn on every figure."""

    colour: str
    dash: str = ""

    @property
    def dashing(self) -> str:
        """The attribute that dashes a line."""
        return f' stroke-dasharray="{self.dash}"' if self.dash else ""


def pen(number: int) -> Pen:
    """The pen of a place; 32 places differ."""
    turn, colour = divmod(number, len(COLOURS))
    return Pen(COLOURS[colour], _DASHES[(colour + turn) % len(_DASHES)])


def pens_of(rows: Sequence[Row]) -> dict[str, Pen]:
    """A pen for each row. A method under its own name has the same one in every study."""
    taken: dict[str, int] = {}
    for row in rows:
        if row.method in _OWN and (row.label == row.method or row.method == "zero_shot"):
            if _OWN.index(row.method) not in taken.values():
                taken[row.label] = _OWN.index(row.method)
    for row in rows:
        if row.label not in taken:
            taken[row.label] = next(n for n in range(1, 99) if n not in taken.values())
    return {row.label: pen(taken[row.label]) for row in rows}


FONT_SIZE = 13
LINE_HEIGHT = 15.0
LETTER = 7.7  # mean width of a letter at that size, in the widest of usual fonts
_LARGEST = 1.2  # times its own size an image is shown, so that letters are alike on all
_SMALLEST = 0.775  # below which letters could no longer be read: the image scrolls instead


@dataclass(frozen=True)
class Axis:
    """A range of values and where it lies on the image."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Where a value lies, in pixels."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values within the range, about ``count`` of them."""
        step = _round_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(number * step, 10) for number in range(first, last + 1)]


@dataclass(frozen=True)
class Canvas:
    """The size of an image and the margins around what is plotted."""

    width: float
    height: float
    left: float = 52
    right: float = 16
    top: float = 14
    bottom: float = 46

    def horizontal(self, low: float, high: float) -> Axis:
        """The axis from left to right; a single value gets a range of one."""
        return Axis(low, high if high > low else low + 1, self.left, self.width - self.right)

    def vertical(self, low: float, high: float) -> Axis:
        """The axis from the bottom up."""
        return Axis(low, high, self.height - self.bottom, self.top)

    def svg(self, parts: Iterable[str], label: str) -> str:
        """The whole image; ``label`` is what a screen reader says of it."""
        smallest, largest = _SMALLEST * self.width, _LARGEST * self.width
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'style="min-width:{smallest:.0f}px;max-width:{largest:.0f}px" '
            f'aria-label="{escape(label, quote=True)}" font-family="inherit" '
            f'font-size="{FONT_SIZE}">{"".join(parts)}</svg>'
        )


def roomy(low: float, high: float, share: float = 0.08) -> tuple[float, float]:
    """The range with some room around it, so that nothing lies on the edge."""
    room = share * (high - low) or 1.0
    return low - room, high + room


def text(x: float, y: float, words: str, anchor: str = "start", more: str = "") -> str:
    """A text in the colour of the page."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor"{more}>'
        f"{escape(words)}</text>"
    )


def rule(x1: float, y1: float, x2: float, y2: float, stroke: str, more: str = "") -> str:
    """A straight line."""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"{more}/>'
    )


def faint(x1: float, y1: float, x2: float, y2: float, opacity: float = 0.15) -> str:
    """A grid line."""
    return rule(x1, y1, x2, y2, "currentColor", f' stroke-opacity="{opacity:g}"')


def y_frame(x: Axis, y: Axis, title: str) -> str:
    """Grid lines, ticks and title of the upright axis."""
    parts = []
    for tick in y.ticks():
        height = y.place(tick)
        parts.append(faint(x.start, height, x.end, height))
        parts.append(text(x.start - 7, height + 4.5, f"{tick:g}", "end"))
    middle = (y.start + y.end) / 2
    turned = f' transform="rotate(-90 13 {middle:.1f})"'
    return "".join(parts) + text(13, middle, title, "middle", turned)


def x_frame(x: Axis, bottom: float, title: str, marks: Sequence[tuple[float, str]] = ()) -> str:
    """Ticks and title of the level axis; ``marks`` replace the round numbers."""
    shown = marks or [(tick, f"{tick:g}") for tick in x.ticks()]
    parts = [text(x.place(at), bottom + 18, words, "middle") for at, words in shown]
    middle = max((x.start + x.end) / 2, LETTER * len(title) / 2)  # or it would begin outside
    return "".join(parts) + text(middle, bottom + 38, title, "middle")


def wrapped(words: str, letters: int = 17) -> list[str]:
    """A name on one line, or on two that are about equally long."""
    if len(words) <= letters or " " not in words:
        return [words]
    spaces = [place for place, letter in enumerate(words) if letter == " "]
    middle = min(spaces, key=lambda place: abs(place - len(words) / 2))
    return [words[:middle], words[middle + 1 :]]


def width_of(names: Iterable[str], letters: int = 17) -> float:
    """How much room the widest of some names takes, once they are wrapped."""
    return max((LETTER * len(line) for name in names for line in wrapped(name, letters)), default=0)


def lines_of_text(x: float, y: float, words: str, anchor: str = "start", letters: int = 17) -> str:
    """A name of one or two lines, centred on a height."""
    lines = wrapped(words, letters)
    first = y + 4.5 - LINE_HEIGHT / 2 * (len(lines) - 1)
    return "".join(text(x, first + LINE_HEIGHT * n, line, anchor) for n, line in enumerate(lines))


def spread_out(
    places: Sequence[float], room: Sequence[float], low: float, high: float
) -> list[float]:
    """The places moved just so far that texts there, ``room`` tall each, do not overlap.

    They stay between ``low`` and ``high`` as long as there is room for all of them.
    """
    order = sorted(range(len(places)), key=lambda number: places[number])
    moved = list(places)
    for number in order[:1]:
        moved[number] = max(moved[number], low + room[number] / 2)
    for above, below in itertools.pairwise(order):
        moved[below] = max(moved[below], moved[above] + (room[above] + room[below]) / 2)
    floor = high
    for number in reversed(order):
        moved[number] = min(moved[number], floor - room[number] / 2)
        floor = moved[number] - room[number] / 2
    return moved


def _round_step(step: float) -> float:
    """The nearest of 1, 2, 5 times a power of ten that is not below ``step``."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))
