"""Rendered shapes as data of an experiment: encoded once with the bundled model, then reused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from crg.datasets.base import PictureSet
from crg.datasets.shapes import CLEAN, N_CLASSES, shape_pictures
from crg.encoders import load_encoder
from crg.encoding import Progress, encode
from crg.experiment.design import ShapesRequest
from crg.generation.relighting import relight
from crg.views import Recipe

MODEL = "mini"
# Nobody trained the model on these, or chose a shift, a severity or an option with them.
STREAM_SEED, LABELLED_SEED = 21, 121

Tell: TypeAlias = Callable[[str, Progress], None]  # what is encoded, and how far it is


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

    def pictures(self) -> PictureSet:
        """The stream, drawn when needed."""
        return self._drawn(self.request.pictures, STREAM_SEED)

    def labelled(self) -> PictureSet:
        """Pictures of the same shift and of another seed, for methods that need labels."""
        return self._drawn(self.request.shots * N_CLASSES, LABELLED_SEED)

    def store(self, folder: Path) -> Path:
        """Where the stream is encoded; the name tells all that decides its content."""
        asked = self.request
        made = f"-{asked.generated}made" if asked.generated else ""
        return folder / f"{self._kind}-{asked.pictures}x{asked.views}{made}"

    def few_store(self, folder: Path) -> Path | None:
        """Where the labelled pictures are encoded, if any are asked for."""
        shots = self.request.shots
        return folder / f"{self._kind}-labelled-{shots}" if shots else None

    def render(self, folder: Path, workers: int, tell: Tell) -> None:
        """Render and encode whatever of it is not there yet."""
        folder.mkdir(parents=True, exist_ok=True)
        asked, pictures, mini = self.request, self.pictures(), load_encoder(MODEL)
        made = None
        if asked.generated:
            place = folder / f"{self._kind}-{asked.pictures}-made"
            made = relight(pictures, place, asked.generated)
        encode(
            pictures,
            mini,
            Recipe(views=asked.views),
            self.store(folder),
            variations=made,
            workers=workers,
            on_progress=lambda progress: tell(self.name, progress),
        )
        if few := self.few_store(folder):
            encode(self.labelled(), mini, Recipe(), few, workers=workers)

    @property
    def _kind(self) -> str:
        return CLEAN if self.shift == CLEAN else f"{self.shift}-{self.request.severity}"

    def _drawn(self, count: int, seed: int) -> PictureSet:
        shift = None if self.shift == CLEAN else self.shift
        return shape_pictures(shift, self.request.severity, count, seed)
