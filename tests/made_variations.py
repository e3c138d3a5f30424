"""Crops in other light that stand in for what a diffusion model would make of an image."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageEnhance

from crg.images.image_set import ImageSet
from crg.images.reading import read_image


def variation(image: Image.Image, number: int) -> Image.Image:
    """One of them: the larger its number, the smaller the part and the stronger the light."""
    margin = min(image.size) * (number + 1) // 20
    part = image.crop((margin, margin, image.width - margin, image.height - margin))
    return ImageEnhance.Brightness(part).enhance(0.9 + 0.1 * number)


def make_variations(images: ImageSet, folder: Path, count: int, first: int = 0) -> Path:
    """A folder of ``count`` variations for each image."""
    for name, source in zip(images.ids, images.sources, strict=True):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(first, first + count):
            variation(read_image(source), number).save(folder / name / f"{number:04d}.png")
    return folder
