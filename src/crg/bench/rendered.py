"""Rendered shapes as data of an experiment: encoded once with the bundled model, then reused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from crg.bench.design import ShapesRequest
from crg.encoders import load_encoder
from crg.encoding import EncodingProgress, encode
from crg.generation.variations import relight
from crg.images.image_set import ImageSet
from crg.images.views import Recipe
from crg.shapes.dataset import CLEAN, N_CLASSES, shape_images
from crg.shapes.shifts import SEVERITIES, SHIFTS
from crg.types import InputError

FOLDER = Path("build", "bench")  # where stores are made unless another place is named
MODEL = "mini"
# Nobody trained the model on these, or chose a shift, a severity or an option with them.
STREAM_SEED, LABELLED_SEED = 21, 121
_SHIFTED = f"(?P<shift>{'|'.join(SHIFTS)})-(?P<severity>[{SEVERITIES[0]}-{SEVERITIES[-1]}])"
_COUNT = "[1-9][0-9]*"
_STORE_NAME = re.compile(
    f"(?:{CLEAN}|{_SHIFTED})-"
    f"(?:(?P<images>{_COUNT})x(?P<views>{_COUNT})(?:-(?P<generated>{_COUNT})made)?"
    f"|labelled-(?P<shots>{_COUNT}))"
)

Tell: TypeAlias = Callable[[str, EncodingProgress], None]  # what is encoded, and how far it is


@dataclass(frozen=True)
class Shapes:
    """One stream of rendered shapes: a shift of a request."""

    shift: str
    request: ShapesRequest

    @property
    def name(self) -> str:
        """What the source is called."""
        clean = self.shift == CLEAN
        return f"shapes:{CLEAN}" if clean else f"shapes:{self.shift}:{self.request.severity}"

    def images(self) -> ImageSet:
        """The stream, drawn when needed."""
        return self._drawn(self.request.images, STREAM_SEED)

    def labelled(self) -> ImageSet:
        """Images of the same shift and of another seed, for methods that need labels."""
        return self._drawn(self.request.shots * N_CLASSES, LABELLED_SEED)

    def store(self, folder: Path) -> Path:
        """Where the stream is encoded; the name tells all that decides its content."""
        asked = self.request
        made = f"-{asked.generated}made" if asked.generated else ""
        return folder / f"{self._kind}-{asked.images}x{asked.views}{made}"

    def few_store(self, folder: Path) -> Path | None:
        """Where the labelled images are encoded, if any are asked for."""
        shots = self.request.shots
        return folder / f"{self._kind}-labelled-{shots}" if shots else None

    def render(self, folder: Path, workers: int, tell: Tell) -> None:
        """Render and encode whatever of it is not there yet."""
        self.render_stream(folder, workers, tell)
        self.render_labelled(folder, workers)

    def render_stream(self, folder: Path, workers: int, tell: Tell) -> None:
        """Render and encode the stream, unless it is there."""
        _make(folder)
        asked, images = self.request, self.images()
        made = None
        if asked.generated:
            place = folder / f"{self._kind}-{asked.images}-made"
            made = relight(images, place, asked.generated)
        encode(
            images,
            load_encoder(MODEL),
            Recipe(views=asked.views),
            self.store(folder),
            variations=made,
            workers=workers,
            on_progress=lambda progress: tell(self.name, progress),
        )

    def render_labelled(self, folder: Path, workers: int) -> None:
        """Render and encode the labelled images, if any are asked for and not there."""
        if few := self.few_store(folder):
            _make(folder)
            encode(self.labelled(), load_encoder(MODEL), Recipe(), few, workers=workers)

    @property
    def _kind(self) -> str:
        return CLEAN if self.shift == CLEAN else f"{self.shift}-{self.request.severity}"

    def _drawn(self, count: int, seed: int) -> ImageSet:
        shift = None if self.shift == CLEAN else self.shift
        return shape_images(shift, self.request.severity, count, seed)


def shapes_in(name: str) -> Shapes | None:
    """The shapes whose ``store`` or ``few_store`` has this name; None for any other name.

    >>> shapes_in("night-3-480x8").request.images, shapes_in("clean-labelled-4").request.shots
    (480, 4)
    """
    found = _STORE_NAME.fullmatch(name)
    if found is None:
        return None
    told = {part: value for part, value in found.groupdict().items() if value is not None}
    shift = told.pop("shift", CLEAN)
    counts = {part: int(value) for part, value in told.items()}
    return Shapes(shift, ShapesRequest((shift,), **counts))


def render_store(name: str, folder: Path, workers: int, tell: Tell) -> Path | None:
    """Render what a store of this name holds, unless it is there; None for any other name."""
    shapes = shapes_in(name)
    if shapes is None:
        return None
    if shapes.request.shots:
        shapes.render_labelled(folder, workers)
    else:
        shapes.render_stream(folder, workers, tell)
    return folder / name


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"Shapes cannot be rendered into {folder} ({error.strerror}): "
            "choose another folder with --folder."
        ) from None
