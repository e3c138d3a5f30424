"""Rendered shapes as data of an experiment, encoded once with the bundled model.

The name of a store says all that decides its content, so that it can be rendered again from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from crg.atomic import make_folder
from crg.bench.design import DataDesign

if TYPE_CHECKING:
    from crg.encoding import EncodingProgress
    from crg.images.image_set import ImageSet

CLEAN = "clean"  # the name of images without a shift

FOLDER = Path("build", "bench")  # where stores are made unless another place is named
MODEL = "mini"
# The model was not trained on these, and no shift, severity or option was chosen with them.
STREAM_SEED, LABELLED_SEED = 21, 121
_SHIFTED = "(?P<shift>[a-z]+)-(?P<severity>[1-5])"
_COUNT = "[1-9][0-9]*"
_STORE_NAME = re.compile(
    f"(?:{CLEAN}|{_SHIFTED})-"
    f"(?:(?P<images>{_COUNT})x(?P<views>{_COUNT})(?:-(?P<generated>{_COUNT})made)?"
    f"(?P<all_names>-all-names)?"
    f"|labelled-(?P<shots>{_COUNT}))"
)

OnEncoding: TypeAlias = Callable[[str, "EncodingProgress"], None]  # what is encoded, and how far


def names(data: DataDesign) -> tuple[str, str, str | None]:
    """The names of a dataset with one shift, of its store, and of its labelled images' store.

    >>> names(DataDesign(shapes=("night",), shots=4))
    ('shapes:night:3', 'night-3-480x8', 'night-3-labelled-4')
    """
    kind = _kind(data)
    made = f"-{data.generated}made" if data.generated else ""
    named = "-all-names" if data.all_names else ""
    return (
        f"shapes:{kind.replace('-', ':')}{', all names' if data.all_names else ''}",
        f"{kind}-{data.images}x{data.views}{made}{named}",
        f"{kind}-labelled-{data.shots}" if data.shots else None,
    )


def shapes_in(name: str) -> DataDesign | None:
    """The shapes in the store of this name; None for any other name.

    >>> shapes_in("night-3-480x8").images, shapes_in("clean-labelled-4").shots
    (480, 4)
    """
    from crg.shapes.shifts import SHIFTS

    found = _STORE_NAME.fullmatch(name)
    if found is None or found["shift"] not in (None, *SHIFTS):
        return None
    given = {part: value for part, value in found.groupdict().items() if value is not None}
    shift, named = given.pop("shift", CLEAN), bool(given.pop("all_names", ""))
    counts = {part: int(value) for part, value in given.items()}
    return DataDesign(shapes=(shift,), **counts, all_names=named)  # type: ignore[arg-type]


def draw(data: DataDesign) -> ImageSet:
    """The images of a stream, or those with labels if there are ``shots``; drawn when needed."""
    from crg.shapes import N_CLASSES, shape_images

    [shift] = data.shapes or ()
    count, seed = data.images, STREAM_SEED
    if data.shots:
        count, seed = data.shots * N_CLASSES, LABELLED_SEED
    return shape_images(
        None if shift == CLEAN else shift, data.severity, count, seed, data.all_names
    )


def render_store(
    name: str, folder: Path, workers: int = 1, on_encoding: OnEncoding = lambda name, now: None
) -> Path | None:
    """Render and encode the store of this name, unless it is there; None for any other name."""
    data = shapes_in(name)
    if data is None:
        return None
    from crg.encoders import load_encoder
    from crg.encoding import encode
    from crg.encoding.variations import relight
    from crg.images.views import Recipe

    make_folder(folder, "--folder")
    images, made = draw(data), None
    if data.generated:
        made = relight(images, folder / f"{_kind(data)}-{data.images}-made", data.generated)
    encode(
        images,
        load_encoder(MODEL),
        Recipe() if data.shots else Recipe(views=data.views),
        folder / name,
        variations=made,
        workers=workers,
        on_progress=lambda progress: on_encoding(names(data)[0], progress),
    )
    return folder / name


def _kind(data: DataDesign) -> str:
    [shift] = data.shapes or ()
    return CLEAN if shift == CLEAN else f"{shift}-{data.severity}"
