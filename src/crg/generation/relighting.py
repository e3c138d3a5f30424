"""Stand-ins for generated views: crops of an image in other light, made without any model.

They serve where methods that want generated views are tried on images for which no diffusion
model is at hand. Whoever shows a number that comes from them has to say so.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageEnhance, ImageOps

from crg.datasets.base import ImageSet
from crg.generation.folder import Variations, files_of, folder_of
from crg.images import read_image


def relight(images: ImageSet, folder: Path, count: int) -> Variations:
    """``count`` crops in other light of each image, in a folder that may hold some already."""
    for name, source in zip(images.ids, images.sources, strict=True):
        if len(files_of(folder, name)) < count:
            _save_all(read_image(source), folder_of(folder, name), count)
    return Variations(folder, count)


def _save_all(image: Image.Image, place: Path, count: int) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        margin = min(image.size) * (number + 1) // 24
        part = ImageOps.crop(image, margin)
        light = ImageEnhance.Brightness(part).enhance(0.8 + 0.06 * number)
        partial = place / f".{number}.png"  # hidden, and so none of the variations yet
        light.save(partial)
        partial.replace(place / f"{number}.png")
