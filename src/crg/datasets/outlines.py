"""The outlines of the drawn objects, as polygons around the origin with a radius of about one.

An outline is a list of polygons (n, 2) that are painted in turn: the first is filled, the
second is cut out, the third filled again, unless a shape says otherwise. x runs to the right
and y downwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Points: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Part:
    """One polygon, painted or cut out."""

    points: Points  # (n, 2)
    filled: bool = True


Outline: TypeAlias = tuple[Part, ...]


def _points(*pairs: tuple[float, float]) -> Outline:
    return (Part(np.array(pairs, float)),)


def _round(radius: float, x: float = 0.0, y: float = 0.0, sides: int = 40) -> Points:
    """A circle, or with few sides a regular polygon with a corner on top."""
    turn = 2 * np.pi * np.arange(sides) / sides - np.pi / 2
    return np.stack([x + radius * np.cos(turn), y + radius * np.sin(turn)], axis=1)


def _polar(radius: Callable[[Points], Points], corners: int = 120) -> Outline:
    """The curve whose radius depends on the turn, measured from the top."""
    turn = 2 * np.pi * np.arange(corners) / corners
    r = radius(turn)
    return (Part(np.stack([r * np.sin(turn), -r * np.cos(turn)], axis=1)),)


def _scaled(outline: Outline, x: float, y: float) -> Outline:
    return tuple(Part(part.points * np.array([x, y]), part.filled) for part in outline)


def _star() -> Outline:
    points = _round(1.0, sides=10)
    points[1::2] *= 0.42
    return (Part(points),)


def _heart() -> Outline:
    t = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    x = 16 * np.sin(t) ** 3
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return (Part(np.stack([x, -y - 2], axis=1) / 16),)


def _cross() -> Outline:
    a, b = 0.36, 0.95
    return _points(
        *[(-a, -b), (a, -b), (a, -a), (b, -a), (b, a), (a, a)],
        *[(a, b), (-a, b), (-a, a), (-b, a), (-b, -a), (-a, -a)],
    )


def _arrow() -> Outline:
    return _points(
        (-1, -0.3), (0.05, -0.3), (0.05, -0.8), (1, 0), (0.05, 0.8), (0.05, 0.3), (-1, 0.3)
    )


def _drop() -> Outline:
    t = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    x = 0.85 * np.sin(t) * np.sin(t / 2) ** 1.5
    return (Part(np.stack([x, -np.cos(t)], axis=1)),)


def _gear() -> Outline:
    teeth = _polar(lambda turn: np.where(np.sin(8 * turn) > 0, 1.0, 0.72))
    return (*teeth, Part(_round(0.28), filled=False))


def _bolt() -> Outline:
    return _points(
        (0.1, -1), (-0.65, 0.12), (-0.1, 0.12), (-0.3, 1), (0.65, -0.25), (0.08, -0.25), (0.5, -1)
    )


def _house() -> Outline:
    walls = [(-1.0, -0.15), (0.0, -1.0), (1.0, -0.15), (0.75, -0.15), (0.75, 0.9)]
    walls += [(0.22, 0.9), (0.22, 0.3), (-0.22, 0.3), (-0.22, 0.9), (-0.75, 0.9), (-0.75, -0.15)]
    return _points(*walls)


def _cloud() -> Outline:
    puffs = [(0.45, -0.55, 0.15), (0.52, 0.0, -0.2), (0.42, 0.58, 0.18), (0.4, 0.05, 0.25)]
    return tuple(Part(_round(radius, x, y)) for radius, x, y in puffs)


def _fish() -> Outline:
    body = Part(_round(1.0) * np.array([0.68, 0.5]) + np.array([0.3, 0.0]))
    tail = Part(np.array([(-0.2, 0), (-0.95, -0.6), (-0.72, 0), (-0.95, 0.6)], float))
    return (tail, body)


def _tree() -> Outline:
    tiers = [(-1.0, 0.5, -0.2), (-0.6, 0.7, 0.25), (-0.2, 0.85, 0.7)]
    needles = [
        Part(np.array([(0, top), (width, base), (-width, base)], float))
        for top, width, base in tiers
    ]
    trunk = Part(np.array([(-0.16, 0.6), (0.16, 0.6), (0.16, 1.0), (-0.16, 1.0)]))
    return (*needles, trunk)


def _crescent() -> Outline:
    return (Part(_round(1.0)), Part(_round(0.82, 0.42, 0.0), filled=False))


def _ring() -> Outline:
    return (Part(_round(1.0)), Part(_round(0.52), filled=False))


OUTLINES: dict[str, Outline] = {
    "circle": (Part(_round(0.92)),),
    "square": _points((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)),
    "triangle": _scaled((Part(_round(1.05, y=0.2, sides=3)),), 1.05, 1.0),
    "star": _star(),
    "heart": _heart(),
    "cross": _cross(),
    "ring": _ring(),
    "crescent": _crescent(),
    "arrow": _arrow(),
    "hexagon": (Part(_round(0.98, sides=6)),),
    "diamond": _points((0, -1.05), (0.68, 0), (0, 1.05), (-0.68, 0)),
    "oval": _scaled((Part(_round(1.0)),), 1.05, 0.58),
    "drop": _drop(),
    "flower": _polar(lambda turn: 0.68 + 0.32 * np.cos(5 * turn)),
    "gear": _gear(),
    "bolt": _bolt(),
    "house": _house(),
    "cloud": _cloud(),
    "fish": _fish(),
    "tree": _tree(),
}
