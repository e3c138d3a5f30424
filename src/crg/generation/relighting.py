"""Stand-ins for generated views: crops of a picture in other light, made without any model.

They serve where methods that want generated views are tried on pictures for which no diffusion
model is at hand. Whoever shows a number that comes from them has to say so.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageEnhance, ImageOps

from crg.datasets.base import PictureSet
from crg.generation.folder import Variations, files_of, folder_of
from crg.pictures import read_picture


def relight(pictures: PictureSet, folder: Path, count: int) -> Variations:
    """``count`` crops in other light of each picture, in a folder that may hold some already."""
    for name, source in zip(pictures.ids, pictures.sources, strict=True):
        if len(files_of(folder, name)) < count:
            _save_all(read_picture(source), folder_of(folder, name), count)
    return Variations(folder, count)


def _save_all(picture: Image.Image, place: Path, count: int) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        margin = min(picture.size) * (number + 1) // 24
        part = ImageOps.crop(picture, margin)
        light = ImageEnhance.Brightness(part).enhance(0.8 + 0.06 * number)
        partial = place / f".{number}.png"  # hidden, and so none of the variations yet
        light.save(partial)
        partial.replace(place / f"{number}.png")
