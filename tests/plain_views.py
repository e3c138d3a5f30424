"""Views as TPT makes them, one after the other with Pillow: slow, and what ours are held to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from crg.images.preprocessing import Preprocessing

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def plain_original(image: Image.Image, wanted: Preprocessing) -> Image.Image:
    """Resize(size) and CenterCrop(size) of torchvision, or Resize((size, size))."""
    side, how = wanted.size, FILTERS[wanted.interpolation]
    size = (side, side) if wanted.fit == "squash" else _scaled_size(*image.size, side)
    image = image.resize(size, how)
    left, top = round((size[0] - side) / 2.0), round((size[1] - side) / 2.0)
    return image.crop((left, top, left + side, top + side))


def _scaled_size(width: int, height: int, side: int) -> tuple[int, int]:
    short, long = sorted((width, height))
    other = int(side * long / short)
    return (side, other) if width <= height else (other, side)


def plain_crop(
    image: Image.Image, draws: Sequence[float], side: int, least: float = 0.08
) -> Image.Image:
    """RandomResizedCrop(side) and RandomHorizontalFlip() of torchvision, bilinear."""
    left, top, width, height = crop_place(*image.size, draws, least)
    view = image.crop((left, top, left + width, top + height))
    view = view.resize((side, side), Image.Resampling.BILINEAR)
    return ImageOps.mirror(view) if draws[22] < 0.5 else view


def crop_place(
    width: int, height: int, draws: Sequence[float], least: float = 0.08
) -> tuple[int, int, int, int]:
    """Left, top, width and height: ten tries of area and aspect, then the central part."""
    for area_draw, aspect_draw in zip(draws[0:20:2], draws[1:20:2], strict=True):
        area = width * height * (least + area_draw * (1 - least))
        aspect = math.exp(math.log(3 / 4) + aspect_draw * (math.log(4 / 3) - math.log(3 / 4)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(draws[21] * (width - w + 1)), int(draws[20] * (height - h + 1)), w, h
    w, h = width, height
    if width / height < 3 / 4:
        h = round(w / (3 / 4))
    elif width / height > 4 / 3:
        w = round(h * (4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


def plain_augmix(
    crop: Image.Image, draws: Sequence[float], finish: Callable[[Any], Any] = np.float64
) -> Any:
    """AugMix of a crop; as in TPT, each chain is finished (normalised) before it is mixed."""
    share, *chances = draws[23:27]
    exponentials = np.array([-math.log(1 - chance) for chance in chances])
    finished, weights = finish(crop), exponentials / exponentials.sum()
    mixture = np.zeros_like(finished)
    for i in range(3):
        depth, *rest = draws[27 + 10 * i : 37 + 10 * i]
        chain = crop
        for j in range(1 + int(depth * 3)):
            chain = plain_operation(chain, *rest[3 * j : 3 * j + 3])
        mixture += finished.dtype.type(weights[i]) * finish(chain)
    return finished.dtype.type(share) * finished + finished.dtype.type(1 - share) * mixture


def plain_operation(image: Image.Image, which: float, strength: float, sign: float) -> Any:
    """One of the nine operations at severity one, as the authors of AugMix call Pillow."""
    level, side = 0.1 + 0.9 * strength, image.width
    sign = -1 if sign > 0.5 else 1
    slope, pixels = sign * level * 0.3 / 10, sign * int(level * (side / 3) / 10)
    match int(which * 9):
        case 0:
            return ImageOps.autocontrast(image)
        case 1:
            return ImageOps.equalize(image)
        case 2:
            return ImageOps.posterize(image, 4 - int(level * 4 / 10))
        case 3:
            return image.rotate(sign * int(level * 30 / 10), Image.Resampling.BILINEAR)
        case 4:
            return ImageOps.solarize(image, 256 - int(level * 256 / 10))
        case 5:
            return _affine(image, (1, slope, 0, 0, 1, 0))
        case 6:
            return _affine(image, (1, 0, 0, slope, 1, 0))
        case 7:
            return _affine(image, (1, 0, pixels, 0, 1, 0))
    return _affine(image, (1, 0, 0, 0, 1, pixels))


def _affine(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    how = Image.Resampling.BILINEAR
    return image.transform(image.size, Image.Transform.AFFINE, matrix, how)


def plain_normalised(image: Any, wanted: Preprocessing) -> Any:
    """ToTensor and Normalize of torchvision: float32, the channels first."""
    channels = np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))
    mean, std = (np.array(each, np.float32)[:, None, None] for each in (wanted.mean, wanted.std))
    scaled = channels.astype(np.float32) / np.float32(255)
    scaled -= mean
    scaled /= std
    return scaled
