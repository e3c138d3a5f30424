"""Draws one object on a background: outline, colour, texture, light.

An outline is a list of polygons (n, 2) that are painted in turn: the first is filled, the
second is cut out, the third filled again, unless a shape says otherwise. x runs to the right
and y downwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

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


def _star() -> Outline:
    points = _round(1.0, sides=10)
    points[1::2] *= 0.42
    return (Part(points),)


def _heart() -> Outline:
    t = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    x = 16 * np.sin(t) ** 3
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return (Part(np.stack([x, -y - 2], axis=1) / 16),)


def _drop() -> Outline:
    t = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    x = 0.85 * np.sin(t) * np.sin(t / 2) ** 1.5
    return (Part(np.stack([x, -np.cos(t)], axis=1)),)


def _fish() -> Outline:
    body = Part(_round(1.0) * (0.68, 0.5) + (0.3, 0.0))
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


OUTLINES: dict[str, Outline] = {
    "circle": (Part(_round(0.92)),),
    "square": _points((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)),
    "triangle": (Part(_round(1.05, y=0.2, sides=3) * (1.05, 1.0)),),
    "star": _star(),
    "heart": _heart(),
    "cross": _points(
        *[(-0.36, -0.95), (0.36, -0.95), (0.36, -0.36), (0.95, -0.36), (0.95, 0.36), (0.36, 0.36)],
        *[(0.36, 0.95), (-0.36, 0.95), (-0.36, 0.36), (-0.95, 0.36), (-0.95, -0.36)],
        (-0.36, -0.36),
    ),
    "ring": (Part(_round(1.0)), Part(_round(0.52), filled=False)),
    "crescent": (Part(_round(1.0)), Part(_round(0.82, 0.42, 0.0), filled=False)),
    "arrow": _points(
        (-1, -0.3), (0.05, -0.3), (0.05, -0.8), (1, 0), (0.05, 0.8), (0.05, 0.3), (-1, 0.3)
    ),
    "hexagon": (Part(_round(0.98, sides=6)),),
    "diamond": _points((0, -1.05), (0.68, 0), (0, 1.05), (-0.68, 0)),
    "oval": (Part(_round(1.0) * (1.05, 0.58)),),
    "drop": _drop(),
    "flower": _polar(lambda turn: 0.68 + 0.32 * np.cos(5 * turn)),
    "gear": (
        *_polar(lambda turn: np.where(np.sin(8 * turn) > 0, 1.0, 0.72)),
        Part(_round(0.28), filled=False),
    ),
    "bolt": _points(
        (0.1, -1), (-0.65, 0.12), (-0.1, 0.12), (-0.3, 1), (0.65, -0.25), (0.08, -0.25), (0.5, -1)
    ),
    "house": _points(
        *[(-1.0, -0.15), (0.0, -1.0), (1.0, -0.15), (0.75, -0.15), (0.75, 0.9), (0.22, 0.9)],
        *[(0.22, 0.3), (-0.22, 0.3), (-0.22, 0.9), (-0.75, 0.9), (-0.75, -0.15)],
    ),
    "cloud": tuple(
        Part(_round(r, x, y))
        for r, x, y in [(0.45, -0.55, 0.15), (0.52, 0, -0.2), (0.42, 0.58, 0.18), (0.4, 0.05, 0.25)]
    ),
    "fish": _fish(),
    "tree": _tree(),
}


SIDE = 96  # of an image, in pixels
_FINER = 3  # outlines are painted this much larger and then reduced, which smooths their edges

Plane: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]  # (SIDE, SIDE)

COLOURS: dict[str, tuple[int, int, int]] = {
    **{"red": (214, 39, 40), "orange": (255, 140, 20), "yellow": (245, 215, 40)},
    **{"green": (50, 160, 60), "turquoise": (50, 200, 195), "blue": (40, 85, 205)},
    **{"purple": (125, 50, 175), "pink": (245, 130, 185), "brown": (120, 75, 40)},
    **{"black": (28, 28, 30), "grey": (135, 135, 135), "white": (244, 244, 244)},
}
_Y, _X = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)


@dataclass(frozen=True)
class Look:
    """Everything that decides how an image looks before it is shifted."""

    shape: str
    texture: str
    colour: tuple[float, float, float]  # of the object, 0 to 255
    tone: tuple[float, float, float]  # the second one of its texture
    radius: float  # in pixels, as are x and y
    x: float
    y: float
    turn: float  # of the object, in radians
    grain_turn: float  # of the texture against the object
    period: float  # of the texture, in pixels
    ground: str  # kind of background
    ground_tones: tuple[tuple[float, float, float], tuple[float, float, float]]
    ground_seed: int


def draw(look: Look) -> Image.Image:
    """The image, SIDE x SIDE in RGB."""
    mask = _mask(look)[:, :, None]
    grain = _grain(look)[:, :, None]
    inside = _mixed(look.colour, look.tone, grain)
    rng = np.random.Generator(np.random.PCG64(look.ground_seed))
    outside = _mixed(*look.ground_tones, GROUNDS[look.ground](rng)[:, :, None])
    pixels = outside + mask * (inside - outside)
    return Image.fromarray(np.clip(pixels + 0.5, 0, 255).astype(np.uint8))


def _mixed(first: Any, second: Any, share: Plane) -> Plane:
    start, end = np.asarray(first, np.float32), np.asarray(second, np.float32)
    return start + share * (end - start)


def _mask(look: Look) -> Plane:
    """1 inside of the object, 0 outside, between them at the edge."""
    sheet = Image.new("L", (SIDE * _FINER, SIDE * _FINER))
    brush = ImageDraw.Draw(sheet)
    cos, sin = np.cos(look.turn), np.sin(look.turn)
    turned = look.radius * np.array([[cos, sin], [-sin, cos]])
    for part in OUTLINES[look.shape]:
        points = (part.points @ turned + np.array([look.x, look.y])) * _FINER
        brush.polygon(points.ravel().tolist(), fill=255 if part.filled else 0)
    return np.asarray(sheet.reduce(_FINER), np.float32) / np.float32(255)


def _grain(look: Look) -> Plane:
    """The fraction of the second tone at each pixel of the object."""
    turn = look.turn + look.grain_turn
    cos, sin = np.float32(np.cos(turn)), np.float32(np.sin(turn))
    x, y = _X - np.float32(look.x), _Y - np.float32(look.y)
    unit = np.float32(2 * np.pi / look.period)
    return TEXTURES[look.texture]((x * cos + y * sin) * unit, (y * cos - x * sin) * unit)


def _edge(height: Plane) -> Plane:
    """Sharp but not jagged: 0 below zero, 1 above."""
    sharp: Plane = np.clip(0.5 + 2.5 * height, 0, 1)
    return sharp


TEXTURES: dict[str, Callable[[Plane, Plane], Plane]] = {
    "plain": lambda u, v: np.zeros_like(u),
    "striped": lambda u, v: _edge(np.sin(u) - np.float32(0.1)),
    "dotted": lambda u, v: _edge(np.cos(u) + np.cos(v) - np.float32(0.75)),
    "checkered": lambda u, v: _edge(1.5 * np.sin(u * 0.7) * np.sin(v * 0.7)),
    "netted": lambda u, v: _edge(np.maximum(np.cos(u), np.cos(v)) - np.float32(0.85)),
    "rippled": lambda u, v: _edge(np.sin(np.sqrt(u * u + v * v)) - np.float32(0.1)),
}


def _slope(rng: np.random.Generator) -> Plane:
    turn = rng.uniform(0, 2 * np.pi)
    across = np.float32(np.cos(turn)) * (_X - SIDE / 2) + np.float32(np.sin(turn)) * (_Y - SIDE / 2)
    rising: Plane = np.clip(across / SIDE + 0.5, 0, 1)
    return rising


def clouds(rng: np.random.Generator, cells: int = 6) -> Plane:
    """Smooth random patches, 0 to 1."""
    coarse = Image.fromarray(rng.integers(0, 256, (cells, cells), dtype=np.uint8))
    fine = coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return np.asarray(fine, np.float32) / np.float32(255)


def _horizon(rng: np.random.Generator) -> Plane:
    height, tilt = rng.uniform(0.3, 0.75) * SIDE, rng.uniform(-0.2, 0.2)
    below: Plane = np.clip(_Y - np.float32(height) + np.float32(tilt) * _X, 0, 1)
    return below


GROUNDS: dict[str, Callable[[np.random.Generator], Plane]] = {
    "flat": lambda _: np.zeros((SIDE, SIDE), np.float32),
    "slope": _slope,
    "clouds": clouds,
    "horizon": _horizon,
}
