"""Cut views out of an image, resized as Pillow does it: one direction, then the other.

Of a long strip Pillow can resize the part that is seen, but keeps its place in single precision.
So strips are resized by its arithmetic in NumPy, to the last bit, which is slow.

Which direction comes first matters by a rounding, and more where bicubic values are cut off. It
is always that of Pillow 13, so that the pixels are the same whatever version of Pillow is
installed and whether or not the kernels are compiled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from PIL import Image

from crg.images import WORTH_COMPILING, pixel_kernels
from crg.images.preprocessing import Crop, Pixels

_BITS = 22  # behind the point, of a weight
TOGETHER = 4  # lines that the compiled kernels handle in one go


def axis_weights(length: int, scaled: int, begin: int, side: int, bicubic: bool) -> Any:
    """For each of ``side`` places from ``begin`` on, the first pixel and the weights from there.

    The kernels are compiled with this function, too.
    """

    def kernel(distance: float) -> float:
        x = abs(distance)
        if not bicubic:
            return max(1.0 - x, 0.0)
        if x < 1.0:
            return (1.5 * x - 2.5) * x * x + 1.0
        return (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5 if x < 2.0 else 0.0

    step = length / scaled
    stretch = max(step, 1.0)
    reach = (2.0 if bicubic else 1.0) * stretch
    n = min(length, math.ceil(reach) * 2 + 1)
    n += -n % TOGETHER
    first, weights = np.empty(side, np.int64), np.zeros((side, n), np.int32)
    row = np.empty(n)
    for i in range(side):
        centre = (begin + i + 0.5) * step
        low = max(int(centre - reach + 0.5), 0)
        high = min(int(centre + reach + 0.5), length)
        total = 0.0
        for j in range(high - low):
            row[j] = kernel((j + low - centre + 0.5) / stretch)
            total += row[j]
        for j in range(high - low):
            weights[i, j] = math.floor(row[j] / total * float(1 << _BITS) + 0.5)
        first[i] = low
    return first, weights


def cut_from_strip(part: Pixels, crop: Crop, side: int) -> Pixels:
    """The square that ``crop`` describes, of its rectangle ``part``, (H, W, 3); not flipped."""
    bicubic = crop.interpolation == "bicubic"
    across = axis_weights(crop.width, crop.scaled[0], crop.x, side, bicubic)
    down = axis_weights(crop.height, crop.scaled[1], crop.y, side, bicubic)
    one, (first, weights), axis = (down, across, 0) if crop.down_first else (across, down, 1)
    start, end = first[0], first[-1] + weights.shape[1]  # of the lines needed
    needed = part[:, start:end] if crop.down_first else part[start:end]
    return _combined(_combined(needed, one[0], one[1], axis), first - start, weights, 1 - axis)


def _combined(pixels: Pixels, first: Any, weights: Any, axis: int) -> Pixels:
    """One direction: 0 is down, 1 across."""
    lines, sums = np.moveaxis(pixels, axis, 0), []
    for low, each in zip(first, weights.astype(np.int64), strict=True):
        group = lines[low : low + len(each)]
        sums.append(np.tensordot(each[: len(group)], group, (0, 0)))
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
        self.kernels = pixel_kernels() if n_views >= WORTH_COMPILING else None
        if self.kernels is not None:  # both as lines of bytes
            turned = image.transpose(Image.Transpose.TRANSPOSE)
            self._rows = np.asarray(image).reshape(image.height, -1)
            self._columns = np.asarray(turned).reshape(image.width, -1)

    def cut(self, crop: Crop, out: Pixels) -> None:
        """Write the square that ``crop`` describes into ``out``, (S, S, 3)."""
        if self.kernels is None:
            out[:] = np.asarray(_cut_by_pillow(self._image, crop, len(out)))
            return
        bicubic, lines = crop.interpolation == "bicubic", out.reshape(len(out), -1)
        across = (crop.left, crop.width, crop.scaled[0], crop.x)
        down = (crop.top, crop.height, crop.scaled[1], crop.y)
        if crop.down_first:
            standing = np.empty_like(lines)
            self.kernels.resize(self._rows, down, across, bicubic, False, crop.flipped, standing)
            self.kernels.transpose(standing, lines)
        else:
            self.kernels.resize(self._columns, across, down, bicubic, crop.flipped, False, lines)


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
