"""Rendered images of shapes: the bundled dataset, clean or shifted in graded severity.

The classes are combinations of colour, texture and shape that the bundled model never saw
in training. Image ``index`` of a seed shows the same scene whatever the shift.
"""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from crg.images.image_set import ImageSet
from crg.shapes import scenes
from crg.shapes.drawing import draw
from crg.shapes.shifts import SHIFTS, check_shift
from crg.types import InputError

N_CLASSES = 32
CLEAN = "clean"  # the name of images without a shift


@dataclass(frozen=True)
class ShapeImage:
    """One image, drawn when it is needed."""

    seed: int
    index: int
    thing: scenes.Thing
    shift: str | None = None
    severity: int = 1

    def scene(self) -> scenes.Scene:
        """The scene that the image shows."""
        return scenes.compose(self.thing, self.seed, self.index)

    def draw(self) -> Image.Image:
        """The image, in RGB."""
        clean = draw(self.scene().look)
        if self.shift is None:
            return clean
        rng = scenes.generator("shift", self.seed, self.index, self.shift, self.severity)
        apply, strengths = SHIFTS[self.shift]
        return apply(clean, strengths[self.severity - 1], rng)

    def describe(self) -> str:
        """Everything that decides how it looks, as one line."""
        shift = f"{self.shift}:{self.severity}" if self.shift else "clean"
        return f"shapes {self.seed} {self.index} {self.thing.name} {shift}"


def class_things() -> tuple[scenes.Thing, ...]:
    """The classes, all of them held out from training."""
    return scenes.held_out_things()[:N_CLASSES]


def shape_images(
    shift: str | None, severity: int, count: int, seed: int, all_names: bool = False
) -> ImageSet:
    """``count`` images of the held-out classes, equally often, clean where shift is None.

    With ``all_names`` those of every other combination follow the class names.
    """
    check_shift(shift, severity)
    if count < 1:
        raise InputError(f"The number of images is {count}: ask for at least one.")
    things, others = class_things(), scenes.all_things() if all_names else ()
    labels = tuple(_label(seed, index) for index in range(count))
    kind = f"{shift}-{severity}" if shift else "clean"
    return ImageSet(
        name=f"shapes:{shift}:{severity}" if shift else "shapes",
        class_names=tuple(dict.fromkeys(thing.name for thing in (*things, *others))),
        templates=scenes.TEMPLATES,
        ids=tuple(f"{kind}/{index:05d}" for index in range(count)),
        sources=tuple(
            ShapeImage(seed, index, things[label], shift, severity)
            for index, label in enumerate(labels)
        ),
        labels=labels,
    )


def _label(seed: int, index: int) -> int:
    """Each class once per round, shuffled: a longer series begins like a shorter."""
    turn, place = divmod(index, N_CLASSES)
    return int(scenes.generator("labels", seed, turn).permutation(N_CLASSES)[place])
