"""Shifts of an image, each in five grades from slight to severe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageFilter

from crg.shapes.drawing import SIDE, clouds
from crg.suggest import nearest
from crg.types import InputError

SEVERITIES = range(1, 6)
Shift: TypeAlias = Callable[[Image.Image, float, np.random.Generator], Image.Image]
_LIGHTNESS = np.array([0.299, 0.587, 0.114], np.float32)


def _sketch(image: Image.Image, drawn: float, rng: np.random.Generator) -> Image.Image:
    """Pencil lines on paper take the place of a fraction of the colours."""
    grey = image.convert("L").filter(ImageFilter.GaussianBlur(0.7))
    down, across = np.gradient(np.asarray(grey, np.float32))
    lines = 250 - np.clip(rng.uniform(5.0, 7.0) * np.hypot(down, across), 0, 215)
    paper = lines[:, :, None] + rng.normal(0, 4, (SIDE, SIDE, 1))
    return _image((1 - drawn) * _floats(image) + drawn * paper)


def _night(image: Image.Image, darkness: float, rng: np.random.Generator) -> Image.Image:
    """Little light, and that bluish, with the noise of a camera that amplifies it."""
    tint = 1 + darkness * np.array([-0.25, -0.1, 0.2]) + rng.uniform(-0.05, 0.05)
    glow = 0.8 + 0.4 * clouds(rng, 3)[:, :, None]
    grain = rng.normal(0, 3 + 4 * darkness, (SIDE, SIDE, 3))
    return _image(_floats(image) * (1 - darkness) * tint * glow + 6 + grain)


def _fog(image: Image.Image, thickness: float, rng: np.random.Generator) -> Image.Image:
    """White haze of uneven thickness."""
    haze = np.clip(thickness + 0.22 * (clouds(rng, 4)[:, :, None] - 0.5), 0, 0.97)
    white = np.array([214, 218, 222]) + rng.uniform(-8, 8)
    return _image(_floats(image) * (1 - haze) + white * haze)


def _blur(image: Image.Image, radius: float, rng: np.random.Generator) -> Image.Image:
    """A lens out of focus."""
    return image.filter(ImageFilter.GaussianBlur(radius * rng.uniform(0.9, 1.1)))


def _noise(image: Image.Image, spread: float, rng: np.random.Generator) -> Image.Image:
    """Grain in every pixel and channel."""
    return _image(_floats(image) + rng.normal(0, spread, (SIDE, SIDE, 3)))


def _recoloured(image: Image.Image, degrees: float, rng: np.random.Generator) -> Image.Image:
    """Every hue turned the same way round the colour circle, and paler."""
    turn = np.deg2rad(degrees + rng.uniform(-5, 5))
    pixels = _floats(image)
    grey = (pixels @ _LIGHTNESS)[:, :, None]
    return _image(grey + (1 - degrees / 320) * ((pixels - grey) @ _hue_turn(float(turn)).T))


# Each with its strength by severity, chosen so that the bundled model is right on about 88, 75, 62,
# 48 and 35% of a separate sample.
SHIFTS: dict[str, tuple[Shift, tuple[float, ...]]] = {
    "sketch": (_sketch, (0.4, 0.53, 0.62, 0.69, 0.76)),
    "night": (_night, (0.47, 0.55, 0.6, 0.64, 0.68)),
    "fog": (_fog, (0.49, 0.55, 0.6, 0.64, 0.69)),
    "blur": (_blur, (2.6, 3.2, 3.9, 4.8, 7.0)),
    "noise": (_noise, (37, 49, 63, 80, 100)),
    "recoloured": (_recoloured, (31, 45, 57, 74, 100)),
}


def check_shift(shift: str | None, severity: int) -> None:
    """Refuse a shift or a severity that there is not, naming the nearest."""
    if shift is not None and shift not in SHIFTS:
        hint = nearest(shift, SHIFTS, f"choose one of {', '.join(SHIFTS)}.")
        raise InputError(f"There is no shift {shift!r}: {hint}")
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise InputError(f"The severity is {severity!r}: give 1 (slight) to 5 (severe).")


def _floats(image: Image.Image) -> Any:
    return np.asarray(image, np.float32)


def _image(pixels: Any) -> Image.Image:
    return Image.fromarray(np.clip(pixels + 0.5, 0, 255).astype(np.uint8))


def _hue_turn(turn: float) -> Any:
    """The rotation of colour space about its grey axis."""
    cos, sin = np.cos(turn), np.sin(turn)
    third, root = (1 - cos) / 3, sin / np.sqrt(3)
    a, b, c = cos + third, third - root, third + root
    return np.array([[a, b, c], [c, a, b], [b, c, a]], np.float32)
