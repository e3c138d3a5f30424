"""Pens: a colour and a dash pattern per row, so that colour is never the only sign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
