"""Cut views out of an image, resized as Pillow does it: one direction, then the other.

Of a long strip Pillow can resize the part that is seen, but keeps its place in single precision.
So strips are resized by its arithmetic in NumPy, to the last bit, which is slow.

Which direction comes first matters by a rounding, and more where bicubic values are cut off. It
is always that of Pillow 13, so that the pixels are the same whatever version of Pillow is
installed and whether or not the kernels are compiled.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from crg.images import WORTH_COMPILING, pixel_kernels
from crg.images.preprocessing import Crop, Pixels

_BITS = 22  # behind the point, of a weight
Weights: TypeAlias = list[tuple[int, Any]]  # per place: the first pixel, and the weights from it on


def cut_from_strip(part: Pixels, crop: Crop, side: int) -> Pixels:
    """The square that ``crop`` describes, of its rectangle ``part``, (H, W, 3); not flipped."""
    bicubic = crop.interpolation == "bicubic"
    across = _weights(crop.width, crop.scaled[0], crop.x, side, bicubic)
    down = _weights(crop.height, crop.scaled[1], crop.y, side, bicubic)
    first, then, axis = (down, across, 0) if crop.down_first else (across, down, 1)
    start, end = then[0][0], max(low + len(each) for low, each in then)  # of the lines needed
    needed = part[:, start:end] if crop.down_first else part[start:end]
    moved = [(low - start, each) for low, each in then]
    return _combined(_combined(needed, first, axis), moved, 1 - axis)


def _weights(length: int, scaled: int, begin: int, side: int, bicubic: bool) -> Weights:
    step = length / scaled
    stretch = max(step, 1.0)
    reach = (2.0 if bicubic else 1.0) * stretch
    rows = []
    for centre in ((begin + i + 0.5) * step for i in range(side)):
        low = max(int(centre - reach + 0.5), 0)
        places = range(low, min(int(centre + reach + 0.5), length))
        values = [_kernel((place - centre + 0.5) / stretch, bicubic) for place in places]
        total = sum(values)
        fixed = [math.floor(value / total * (1 << _BITS) + 0.5) for value in values]
        rows.append((low, np.array(fixed, np.int64)))
    return rows


def _kernel(distance: float, bicubic: bool) -> float:
    x = abs(distance)
    if not bicubic:
        return max(1.0 - x, 0.0)
    if x < 1.0:
        return (1.5 * x - 2.5) * x * x + 1.0
    return (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5 if x < 2.0 else 0.0


def _combined(pixels: Pixels, weights: Weights, axis: int) -> Pixels:
    """One direction: 0 is down, 1 across."""
    lines = np.moveaxis(pixels, axis, 0)
    sums = [np.tensordot(each, lines[low : low + len(each)], (0, 0)) for low, each in weights]
    rounded = (np.stack(sums, axis=axis) + (1 << (_BITS - 1))) >> _BITS
    whole: Pixels = np.clip(rounded, 0, 255).astype(np.uint8)
    return whole


_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
_LARGE = 50_000_000  # pixels
_LONG = 32  # an image scaled to more sides than these is not scaled whole


class ViewSource:
    """An image from which ``n_views`` views are cut, by several threads if need be."""

    def __init__(self, image: Image.Image, n_views: int) -> None:
        self._image = image
        self._kernels = pixel_kernels() if n_views >= WORTH_COMPILING else None
        if self._kernels is not None:  # both as lines of bytes
            turned = image.transpose(Image.Transpose.TRANSPOSE)
            self._rows = np.asarray(image).reshape(image.height, -1)
            self._columns = np.asarray(turned).reshape(image.width, -1)

    @property
    def is_compiled(self) -> bool:
        """Whether the views are worth compiled kernels, and there are any."""
        return self._kernels is not None

    def cut(self, crop: Crop, out: Pixels) -> None:
        """Write the square that ``crop`` describes into ``out``, (S, S, 3)."""
        if self._kernels is None:
            out[:] = np.asarray(_cut_by_pillow(self._image, crop, len(out)))
            return
        bicubic, lines = crop.interpolation == "bicubic", out.reshape(len(out), -1)
        across = (crop.left, crop.width, crop.scaled[0], crop.x)
        down = (crop.top, crop.height, crop.scaled[1], crop.y)
        if crop.down_first:
            standing = np.empty_like(lines)
            self._kernels.resize(self._rows, down, across, bicubic, False, crop.flipped, standing)
            self._kernels.transpose(standing, lines)
        else:
            self._kernels.resize(self._columns, across, down, bicubic, crop.flipped, False, lines)


def _cut_by_pillow(image: Image.Image, crop: Crop, side: int) -> Image.Image:
    left, top, right, bottom = crop.left, crop.top, crop.left + crop.width, crop.top + crop.height
    part = image
    if crop.width * crop.height >= _LARGE:  # of larger crops Pillow warns
        part = Image.fromarray(np.asarray(image)[top:bottom, left:right])
    elif (crop.width, crop.height) != image.size:
        part = image.crop((left, top, right, bottom))
    square = _resized(part, crop, side)
    return square.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if crop.flipped else square


def _resized(part: Image.Image, crop: Crop, side: int) -> Image.Image:
    """One call, or two where older versions of Pillow would start with the other direction."""
    how, (width, height) = _FILTERS[crop.interpolation], crop.scaled
    if max(crop.scaled) > _LONG * side:
        return Image.fromarray(cut_from_strip(np.asarray(part), crop, side))
    if crop.down_first:
        part = part.resize((part.width, height), how)
    scaled = part.resize((width, height), how)
    if crop.scaled == (side, side):
        return scaled
    return scaled.crop((crop.x, crop.y, crop.x + side, crop.y + side))
