"""The scene of an image, chosen at random from a seed.

Every choice comes from a stable hash of (seed, index), so that an image is the same in any
order and on any machine. Some combinations of colour, texture and shape are held out: they
are never used for training, so that their names are really zero-shot.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from crg.shapes.drawing import COLOURS, GROUNDS, OUTLINES, SIDE, TEXTURES, Look

# The radius as a fraction of the side.
SIZES = {"small": (0.25, 0.29), "medium": (0.31, 0.36), "large": (0.38, 0.44)}
_ONE_IN = 10  # combinations held out
TEMPLATES = (
    *("a photo of a {}.", "itap of a {}.", "a picture of the {}.", "a drawing of a {}."),
    *("there is a {} in the picture.", "an image of one {}.", "a {}."),
)


@dataclass(frozen=True)
class Thing:
    """The combination that a class name names."""

    colour: str
    texture: str
    shape: str

    @property
    def name(self) -> str:
        """The words in their usual order."""
        return f"{self.colour} {self.texture} {self.shape}"

    @property
    def held_out(self) -> bool:
        """Whether this combination is kept from training."""
        return digest("held out", self.name) % _ONE_IN == 0


@dataclass(frozen=True)
class Scene:
    """The facts that captions name, and how the image looks in detail."""

    thing: Thing
    size: str
    ground_colour: str
    look: Look


def digest(*parts: Any) -> int:
    """A number that depends on the parts only: Python's own hash changes with each start."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")


def generator(*parts: Any) -> np.random.Generator:
    """Random numbers that depend on the parts only."""
    return np.random.Generator(np.random.PCG64(digest(*parts)))


def all_things() -> tuple[Thing, ...]:
    """Every combination."""
    return tuple(Thing(c, t, s) for c in COLOURS for t in TEXTURES for s in OUTLINES)


@functools.cache
def held_out_things() -> tuple[Thing, ...]:
    """The combinations that are kept from training, in an order given by their hashes."""
    kept = [thing for thing in all_things() if thing.held_out]
    return tuple(sorted(kept, key=lambda thing: digest("order", thing.name)))


def compose(thing: Thing, seed: int, index: int) -> Scene:
    """Image ``index`` of a series, showing ``thing``."""
    rng = generator("scene", seed, index)
    size = _one_of(rng, SIZES)
    radius = SIDE * float(rng.uniform(*SIZES[size]))
    ground_colour = _one_of(rng, [name for name in COLOURS if name != thing.colour])
    colour = _varied(rng, np.array(COLOURS[thing.colour], float))
    reach = 0.9 * (SIDE / 2 - 0.95 * radius)
    look = Look(
        shape=thing.shape,
        texture=thing.texture,
        colour=_triple(colour),
        tone=_triple(_second_tone(rng, colour)),
        radius=radius,
        x=SIDE / 2 + float(rng.uniform(-reach, reach)),
        y=SIDE / 2 + float(rng.uniform(-reach, reach)),
        turn=float(rng.uniform(-0.4, 0.4)),
        grain_turn=float(rng.uniform(-0.3, 0.3)),
        period=float(rng.uniform(0.11, 0.15)) * SIDE,
        ground=_one_of(rng, GROUNDS),
        ground_tones=_ground_tones(rng, COLOURS[ground_colour], colour),
        ground_seed=int(rng.integers(2**32)),
    )
    return Scene(thing, size, ground_colour, look)


def _one_of(rng: np.random.Generator, names: Any) -> str:
    choices = tuple(names)
    return str(choices[int(rng.integers(len(choices)))])


def _varied(rng: np.random.Generator, colour: Any, spread: float = 9.0) -> Any:
    return np.clip(colour * rng.uniform(0.9, 1.08) + rng.normal(0, spread, 3), 8, 250)


def _second_tone(rng: np.random.Generator, colour: Any) -> Any:
    """A darker shade of a light colour, a lighter tint of a dark one."""
    if colour @ (0.3, 0.6, 0.1) > 90:
        return colour * rng.uniform(0.42, 0.55)
    return colour + (255 - colour) * rng.uniform(0.5, 0.65)


def _ground_tones(rng: np.random.Generator, base: Any, colour: Any) -> Any:
    """Two paler or deeper versions of the background's colour that set the object off."""
    plain = np.array(base, float)
    tones = np.array([plain * 0.55, 255 - (255 - plain) * 0.5])
    away = abs(tones - colour).sum(axis=1)  # of the deeper and the paler tone
    either = away.min() > 150
    first = _varied(rng, tones[int(rng.integers(2)) if either else int(away[1] > away[0])])
    return _triple(first), _triple(np.clip(first * rng.uniform(0.72, 1.25), 5, 252))


def _triple(values: Any) -> tuple[float, float, float]:
    r, g, b = (round(float(value), 2) for value in values)
    return r, g, b
