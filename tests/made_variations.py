"""Crops in other light that stand in for what a diffusion model would make of a picture."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageEnhance

from crg.datasets.base import PictureSet
from crg.pictures import read_picture


def variation(picture: Image.Image, number: int) -> Image.Image:
    """One of them: the larger its number, the smaller the part and the stronger the light."""
    margin = min(picture.size) * (number + 1) // 20
    part = picture.crop((margin, margin, picture.width - margin, picture.height - margin))
    return ImageEnhance.Brightness(part).enhance(0.9 + 0.1 * number)


def make_variations(pictures: PictureSet, folder: Path, count: int, first: int = 0) -> Path:
    """A folder of ``count`` variations for each picture."""
    for name, source in zip(pictures.ids, pictures.sources, strict=True):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(first, first + count):
            variation(read_picture(source), number).save(folder / name / f"{number:04d}.png")
    return folder
