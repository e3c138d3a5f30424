"""Training images of the bundled model and sentences about them; the package needs neither."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from crg.shapes import ShapeImage
from crg.shapes.scenes import TEMPLATES, Scene, Thing, all_things, generator


@functools.cache
def training_things() -> tuple[Thing, ...]:
    """The combinations that are not held out."""
    return tuple(thing for thing in all_things() if not thing.held_out)


def training_image(seed: int, index: int) -> ShapeImage:
    """A clean image of a combination that is not held out."""
    things = training_things()
    rng = generator("training", seed, index)
    return ShapeImage(seed, index, things[int(rng.integers(len(things)))])


FACTS = ("shape", "colour", "texture", "size", "ground")
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
_ANYTHING = "thing"  # where the caption does not name the shape
_GROUNDS = ("on a {} background", "on {}", "in front of a {} background", "against a {} wall")


@dataclass(frozen=True)
class Caption:
    """A sentence, and the facts that it names: None where it leaves one out."""

    text: str
    facts: tuple[str | None, ...]  # in the order of FACTS


def phrases() -> tuple[str, ...]:
    """Everything that captions are made of beside the facts themselves."""
    synonyms = [word for words in _SYNONYMS.values() for word in words]
    return (*FORMS, *synonyms, *_TRAILING.values(), *_GROUNDS, _ANYTHING, "an")


def facts_of(scene: Scene) -> tuple[str, ...]:
    """The facts of a scene, in the order of FACTS."""
    thing = scene.thing
    return (thing.shape, thing.colour, thing.texture, scene.size, scene.ground_colour)


def caption(facts: tuple[str, ...], rng: np.random.Generator) -> Caption:
    """A sentence about a scene; mostly it names colour, texture and shape, at times fewer."""
    named = rng.random(len(FACTS)) < np.array([0.94, 0.9, 0.9, 0.25, 0.25])
    named[0] |= not named[1:3].any()
    some = tuple(fact if is_named else None for fact, is_named in zip(facts, named, strict=True))
    return Caption(_sentence(some, rng), some)


def _sentence(facts: tuple[str | None, ...], rng: np.random.Generator) -> str:
    shape, colour, texture, size, ground = facts
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
