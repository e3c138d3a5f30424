"""Rendered shapes as data of an experiment, encoded once with the bundled model.

They go into a store whose name has all that decides its content, so that it can be made again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from crg.atomic import make_folder

if TYPE_CHECKING:
    from crg.encoding import EncodingProgress
    from crg.images.image_set import ImageSet

CLEAN = "clean"  # what images without a shift are called

FOLDER = Path("build", "bench")  # where stores are made unless another place is named
MODEL = "mini"
# Nobody trained the model on these, or chose a shift, a severity or an option with them.
STREAM_SEED, LABELLED_SEED = 21, 121
_SHIFTED = "(?P<shift>[a-z]+)-(?P<severity>[1-5])"
_COUNT = "[1-9][0-9]*"
_STORE_NAME = re.compile(
    f"(?:{CLEAN}|{_SHIFTED})-"
    f"(?:(?P<images>{_COUNT})x(?P<views>{_COUNT})(?:-(?P<generated>{_COUNT})made)?"
    f"(?P<all_names>-all-names)?"
    f"|labelled-(?P<shots>{_COUNT}))"
)

Tell: TypeAlias = Callable[[str, "EncodingProgress"], None]  # what is encoded, and how far it is


@dataclass(frozen=True)
class Shapes:
    """One stream of rendered shapes."""

    shift: str  # or "clean"
    severity: int = 3
    images: int = 480
    views: int = 8
    shots: int = 0  # labelled images per class
    generated: int = 0  # further views that stand in for generated ones
    all_names: bool = False  # the classes are all names that shapes have, present or not

    @property
    def name(self) -> str:
        """What the dataset is called."""
        return f"shapes:{self._kind.replace('-', ':')}{', all names' if self.all_names else ''}"

    def stream(self) -> ImageSet:
        """The images, drawn when needed."""
        return self._drawn(self.images, STREAM_SEED)

    def store(self, folder: Path) -> Path:
        """Where the stream is encoded."""
        made = f"-{self.generated}made" if self.generated else ""
        named = "-all-names" if self.all_names else ""
        return folder / f"{self._kind}-{self.images}x{self.views}{made}{named}"

    def few_store(self, folder: Path) -> Path | None:
        """Where the labelled images are encoded, if any are asked for."""
        return folder / f"{self._kind}-labelled-{self.shots}" if self.shots else None

    def render_stream(self, folder: Path, workers: int, tell: Tell) -> None:
        """Render and encode the stream, unless it is there."""
        from crg.encoders import load_encoder
        from crg.encoding import encode
        from crg.encoding.variations import relight
        from crg.images.views import Recipe

        make_folder(folder, "--folder")
        images, made = self.stream(), None
        if self.generated:
            made = relight(images, folder / f"{self._kind}-{self.images}-made", self.generated)
        encode(
            images,
            load_encoder(MODEL),
            Recipe(views=self.views),
            self.store(folder),
            variations=made,
            workers=workers,
            on_progress=lambda progress: tell(self.name, progress),
        )

    def render_labelled(self, folder: Path, workers: int) -> None:
        """Render and encode images of the same shift and of another seed, if any are asked for."""
        from crg.encoders import load_encoder
        from crg.encoding import encode
        from crg.images.views import Recipe
        from crg.shapes import N_CLASSES

        if few := self.few_store(folder):
            make_folder(folder, "--folder")
            images = self._drawn(self.shots * N_CLASSES, LABELLED_SEED)
            encode(images, load_encoder(MODEL), Recipe(), few, workers=workers)

    @property
    def _kind(self) -> str:
        return CLEAN if self.shift == CLEAN else f"{self.shift}-{self.severity}"

    def _drawn(self, count: int, seed: int) -> ImageSet:
        from crg.shapes import shape_images

        shift = None if self.shift == CLEAN else self.shift
        return shape_images(shift, self.severity, count, seed, self.all_names)


def shapes_in(name: str) -> Shapes | None:
    """The shapes whose ``store`` or ``few_store`` has this name; None for any other name.

    >>> shapes_in("night-3-480x8").images, shapes_in("clean-labelled-4").shots
    (480, 4)
    """
    found = _STORE_NAME.fullmatch(name)
    if found is None or not _is_shift(found["shift"]):
        return None
    told = {part: value for part, value in found.groupdict().items() if value is not None}
    shift = told.pop("shift", CLEAN)
    named = told.pop("all_names", None) is not None
    counts = {part: int(value) for part, value in told.items()}
    return Shapes(shift, **counts, all_names=named)


def _is_shift(name: str | None) -> bool:
    from crg.shapes.shifts import SHIFTS

    return name is None or name in SHIFTS


def render_store(name: str, folder: Path, workers: int, tell: Tell) -> Path | None:
    """Render what a store of this name holds, unless it is there; None for any other name."""
    shapes = shapes_in(name)
    if shapes is None:
        return None
    if shapes.shots:
        shapes.render_labelled(folder, workers)
    else:
        shapes.render_stream(folder, workers, tell)
    return folder / name
