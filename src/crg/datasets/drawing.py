"""Draws one object on a background: outline, colour, texture, light."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from crg.datasets.outlines import OUTLINES

SIDE = 96  # of an image, in pixels
_FINER = 3  # outlines are painted this much larger and then reduced, which smooths their edges

Plane: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]  # (SIDE, SIDE)
Colour: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]  # (3,), 0 to 255

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 39, 40),
    "orange": (255, 140, 20),
    "yellow": (245, 215, 40),
    "green": (50, 160, 60),
    "turquoise": (50, 200, 195),
    "blue": (40, 85, 205),
    "purple": (125, 50, 175),
    "pink": (245, 130, 185),
    "brown": (120, 75, 40),
    "black": (28, 28, 30),
    "grey": (135, 135, 135),
    "white": (244, 244, 244),
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
    outside = _mixed(*look.ground_tones, _field(look)[:, :, None])
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
    """The share of the second tone at each pixel of the object."""
    turn = look.turn + look.grain_turn
    cos, sin = np.float32(np.cos(turn)), np.float32(np.sin(turn))
    x, y = _X - np.float32(look.x), _Y - np.float32(look.y)
    unit = np.float32(2 * np.pi / look.period)
    return TEXTURES[look.texture]((x * cos + y * sin) * unit, (y * cos - x * sin) * unit)


def _edge(height: Plane) -> Plane:
    """Sharp but not jagged: 0 below zero, 1 above."""
    sharp: Plane = np.clip(0.5 + 2.5 * height, 0, 1)
    return sharp


def _checkered(u: Plane, v: Plane) -> Plane:
    return _edge(1.5 * np.sin(u * 0.7) * np.sin(v * 0.7))


def _rippled(u: Plane, v: Plane) -> Plane:
    return _edge(np.sin(np.sqrt(u * u + v * v)) - np.float32(0.1))


TEXTURES: dict[str, Callable[[Plane, Plane], Plane]] = {
    "plain": lambda u, v: np.zeros_like(u),
    "striped": lambda u, v: _edge(np.sin(u) - np.float32(0.1)),
    "dotted": lambda u, v: _edge(np.cos(u) + np.cos(v) - np.float32(0.75)),
    "checkered": _checkered,
    "netted": lambda u, v: _edge(np.maximum(np.cos(u), np.cos(v)) - np.float32(0.85)),
    "rippled": _rippled,
}


def _flat(_: np.random.Generator) -> Plane:
    return np.zeros((SIDE, SIDE), np.float32)


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
    "flat": _flat,
    "slope": _slope,
    "clouds": clouds,
    "horizon": _horizon,
}


def _field(look: Look) -> Plane:
    return GROUNDS[look.ground](np.random.Generator(np.random.PCG64(look.ground_seed)))
