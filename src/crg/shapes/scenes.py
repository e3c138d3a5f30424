"""What an image shows, always drawn by lot from a seed, and sentences about it.

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

SIZES: dict[str, tuple[float, float]] = {  # radius as a fraction of the side
    "small": (0.25, 0.29),
    "medium": (0.31, 0.36),
    "large": (0.38, 0.44),
}
_ONE_IN = 10  # combinations held out


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
    """What can be said about an image, and how it looks in detail."""

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


@functools.cache
def training_things() -> tuple[Thing, ...]:
    """The combinations that are not held out."""
    return tuple(thing for thing in all_things() if not thing.held_out)


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
    pale = 255 - (255 - np.array(base, float)) * 0.5
    deep = np.array(base, float) * 0.55
    lighter = abs(pale - colour).sum() > abs(deep - colour).sum()
    near = abs(pale - colour).sum() > 150 and abs(deep - colour).sum() > 150
    pale_chosen = bool(rng.integers(2)) if near else lighter
    first = _varied(rng, pale if pale_chosen else deep)
    return _triple(first), _triple(np.clip(first * rng.uniform(0.72, 1.25), 5, 252))


def _triple(values: Any) -> tuple[float, float, float]:
    r, g, b = (round(float(value), 2) for value in values)
    return r, g, b


FACTS = ("shape", "colour", "texture", "size", "ground")
TEMPLATES = (
    "a photo of a {}.",
    "itap of a {}.",
    "a picture of the {}.",
    "a drawing of a {}.",
    "there is a {} in the picture.",
    "an image of one {}.",
    "a {}.",
)
FORMS = (
    *TEMPLATES,
    "a photo of the {}.",
    "a bad photo of a {}.",
    "a good photo of the {}.",
    "art of the {}.",
    "a {} in a video game.",
    "an origami {}.",
    "one {} can be seen here",
    "this is a {}",
    "look at this {}!",
    "I see a {}.",
    "{}",
    "the {}",
    "a cropped photo of the {}.",
    "a close-up of a {}.",
    "somebody drew a {}.",
)
_SYNONYMS: dict[str, tuple[str, ...]] = {
    "red": ("crimson", "scarlet"),
    "purple": ("violet",),
    "turquoise": ("cyan", "teal"),
    "grey": ("gray",),
    "plain": ("solid", "uniform"),
    "striped": ("stripy", "banded"),
    "dotted": ("spotted", "polka-dot"),
    "checkered": ("chequered", "checked"),
    "netted": ("meshed", "gridded"),
    "rippled": ("concentric",),
    "circle": ("disc", "disk"),
    "cross": ("plus",),
    "ring": ("hoop", "donut"),
    "crescent": ("moon",),
    "diamond": ("rhombus",),
    "oval": ("ellipse",),
    "drop": ("teardrop", "droplet"),
    "flower": ("blossom",),
    "gear": ("cog", "cogwheel"),
    "bolt": ("lightning", "flash"),
    "house": ("home", "hut"),
    "tree": ("fir",),
    "small": ("little", "tiny"),
    "large": ("big", "huge"),
    "medium": ("middle-sized",),
}
_TRAILING = {
    "plain": "without a pattern",
    "striped": "with stripes",
    "dotted": "with dots",
    "checkered": "with checks",
    "netted": "with a net pattern",
    "rippled": "with ripples",
}
_ANYTHING = "thing"  # where the shape is not told
_GROUNDS = ("on a {} background", "on {}", "in front of a {} background", "against a {} wall")


@dataclass(frozen=True)
class Caption:
    """A sentence, and the facts that it tells: None where it is silent."""

    text: str
    told: tuple[str | None, ...]  # in the order of FACTS


def phrases() -> tuple[str, ...]:
    """Everything that captions are made of beside the facts themselves."""
    synonyms = [word for words in _SYNONYMS.values() for word in words]
    return (*FORMS, *synonyms, *_TRAILING.values(), *_GROUNDS, _ANYTHING, "an")


def facts_of(scene: Scene) -> tuple[str, ...]:
    """What is true of a scene, in the order of FACTS."""
    thing = scene.thing
    return (thing.shape, thing.colour, thing.texture, scene.size, scene.ground_colour)


def caption(facts: tuple[str, ...], rng: np.random.Generator) -> Caption:
    """A sentence about a scene; mostly it tells colour, texture and shape, at times fewer."""
    telling = rng.random(len(FACTS)) < np.array([0.94, 0.9, 0.9, 0.25, 0.25])
    telling[0] |= not telling[1:3].any()
    told = tuple(fact if tells else None for fact, tells in zip(facts, telling, strict=True))
    return Caption(_sentence(told, rng), told)


def _sentence(told: tuple[str | None, ...], rng: np.random.Generator) -> str:
    shape, colour, texture, size, ground = told
    trails = texture is not None and rng.random() < 0.15
    words = [size, colour, None if trails else texture, shape or _ANYTHING]
    phrase = " ".join(_word(word, rng) for word in words if word is not None)
    if trails and texture is not None:
        phrase = f"{phrase} {_TRAILING[texture]}"
    if ground is not None:
        phrase = f"{phrase} {_pick(_GROUNDS, rng).format(_word(ground, rng))}"
    form = _pick(FORMS, rng)
    return _articled(form, phrase, rng)


def _articled(form: str, phrase: str, rng: np.random.Generator) -> str:
    """``a`` becomes ``an`` before a vowel, mostly: templates for class names cannot know."""
    if phrase[0] in "aeiou" and rng.random() < 0.6:
        form = form.replace(" a {}", " an {}")
    return form.format(phrase)


def _word(word: str, rng: np.random.Generator) -> str:
    """The word itself or, less often, a synonym."""
    others = _SYNONYMS.get(word, ())
    return _pick(others, rng) if others and rng.random() < 0.2 else word


def _pick(choices: Any, rng: np.random.Generator) -> str:
    return str(choices[int(rng.integers(len(choices)))])
