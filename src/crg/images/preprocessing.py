"""Which part of an image becomes a view, and how a model wants its pixels.

A view is the central square or a random resized crop; encoders normalise it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from msgspec import Meta

from crg.images import WORTH_COMPILING, pixel_kernels

Interpolation: TypeAlias = Literal["bicubic", "bilinear"]

# Where a view's random numbers are used; the others are AugMix's.
_TRIES = 10  # a pair of numbers each
_ROW, _COLUMN, _FLIP = 2 * _TRIES, 2 * _TRIES + 1, 2 * _TRIES + 2
DRAWS_FOR_CROPS = 2 * _TRIES + 3
_ASPECTS = (3 / 4, 4 / 3)  # width by height


@dataclass(frozen=True, slots=True)
class Crop:
    """A rectangle of the source, resized to ``scaled``, of which a square is cut at x, y."""

    left: int
    top: int
    width: int
    height: int
    scaled: tuple[int, int]  # width and height
    x: int = 0
    y: int = 0
    flipped: bool = False
    interpolation: Interpolation = "bilinear"

    @property
    def down_first(self) -> bool:
        """Whether the height is resized before the width: Pillow's rule from version 13 on.

        It is so if the height loses pixels, and more than twice as many as the width does.
        """
        less_width, less_height = self.width - self.scaled[0], self.height - self.scaled[1]
        return less_height > 2 * max(less_width, 0)


def original(width: int, height: int, side: int, how: Interpolation, squash: bool) -> Crop:
    """Row 0: what torchvision's Resize and CenterCrop, and so open_clip, make of an image."""
    if squash:
        return Crop(0, 0, width, height, (side, side), interpolation=how)
    longer = int(side * max(width, height) / min(width, height))
    scaled = (side, longer) if width <= height else (longer, side)
    x, y = (round((length - side) / 2) for length in scaled)
    return Crop(0, 0, width, height, scaled, x, y, interpolation=how)


def random_crop(
    width: int, height: int, side: int, how: Interpolation, draws: Sequence[float], smallest: float
) -> Crop:
    """Another row: torchvision's RandomResizedCrop and RandomHorizontalFlip.

    ``draws`` are numbers in [0, 1), always used at the same places, so that they need not be
    drawn one after the other.
    """
    narrowest, widest = _ASPECTS
    lowest, highest = math.log(narrowest), math.log(widest)
    for i in range(0, 2 * _TRIES, 2):
        area = width * height * (smallest + draws[i] * (1 - smallest))
        aspect = math.exp(lowest + draws[i + 1] * (highest - lowest))
        crop_width, crop_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            top = int(draws[_ROW] * (height - crop_height + 1))
            left = int(draws[_COLUMN] * (width - crop_width + 1))
            break
    else:  # none fits: the most of the image that keeps within the aspects
        crop_width = round(height * widest) if width / height > widest else width
        crop_height = round(width / narrowest) if width / height < narrowest else height
        top, left = (height - crop_height) // 2, (width - crop_width) // 2
    flipped = draws[_FLIP] < 0.5
    return Crop(left, top, crop_width, crop_height, (side, side), 0, 0, flipped, how)


Pixels: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]  # (B, S, S, 3), red, green, blue
Fit: TypeAlias = Literal["shortest", "squash"]
_Channel: TypeAlias = Annotated[float, Meta(ge=-100, le=100)]
_Positive: TypeAlias = Annotated[float, Meta(gt=0, le=100)]


@dataclass(frozen=True)
class Preprocessing:
    """How the original image becomes the square that the model sees.

    Ranges are checked where one is read from a file.
    """

    size: Annotated[int, Meta(ge=1, le=4096)]  # S, the side of that square in pixels
    mean: tuple[_Channel, _Channel, _Channel]  # per channel, of pixels in [0, 1]
    std: tuple[_Positive, _Positive, _Positive]
    interpolation: Interpolation = "bicubic"
    fit: Fit = "shortest"  # "shortest": resize the shorter side, crop the centre; "squash": neither

    def normalised(self, pixels: Pixels) -> np.ndarray[Any, np.dtype[np.float32]]:
        """(pixel / 255 - mean) / std with the channels first, (B, 3, S, S)."""
        std = np.asarray(self.std, np.float32)
        scale = 1 / (255 * std)
        shift = np.asarray(self.mean, np.float32) / std
        batch, height, width, channels = pixels.shape
        out = np.empty((batch, channels, height, width), np.float32)
        kernels = pixel_kernels() if batch >= WORTH_COMPILING else None
        if kernels is not None:
            kernels.normalise(np.ascontiguousarray(pixels), scale, shift, out)
            return out
        for image, planes in zip(pixels, out, strict=True):
            for c, plane in enumerate(planes):  # small enough to stay in the cache
                plane[:] = image[:, :, c]
                plane *= scale[c]
                plane -= shift[c]
        return out


def reference_pixels(side: int) -> Pixels:
    """The two built-in test images (2, S, S, 3): slopes of colour under strong edges."""
    y, x = np.mgrid[0:side, 0:side]
    slopes = np.stack([255 * x // side, 255 * y // side, 255 * (x + y) // (2 * side)], axis=-1)
    checks = ((x * 13 // side) + (y * 13 // side)) % 3 == 0
    first = np.where(checks[:, :, None], 255 - slopes, slopes)
    rings = (x - side // 2) ** 2 + (y - side // 2) ** 2 < side**2 // 9
    second = np.where(rings[:, :, None], slopes[:, :, ::-1], 255 - slopes // 4)
    return np.stack([first, second]).astype(np.uint8)
