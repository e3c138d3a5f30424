"""The square in the middle of a long strip, where scaling the whole strip would fill the memory.

Pillow can resize a part of an image, but keeps its place in single precision. So this is its
arithmetic in NumPy, to the last bit: slow, and only for strips.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from crg.pixels.crops import Crop

Pixels: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
_BITS = 22  # behind the point, of a weight
Weights: TypeAlias = list[tuple[int, Any]]  # per place: the first pixel, and the weights from it on


def cut_from_strip(part: Pixels, crop: Crop, side: int) -> Pixels:
    """The square that ``crop`` describes, of its rectangle ``part``, (H, W, 3); not flipped."""
    bicubic = crop.interpolation == "bicubic"
    across = _weights(crop.width, crop.scaled[0], crop.x, side, bicubic)
    down = _weights(crop.height, crop.scaled[1], crop.y, side, bicubic)
    if crop.down_first:
        needed = part[:, across[0][0] : _end(across)]
        return _combined(_combined(needed, down, 0), _moved(across), 1)
    needed = part[down[0][0] : _end(down)]
    return _combined(_combined(needed, across, 1), _moved(down), 0)


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


def _end(weights: Weights) -> int:
    return max(low + len(each) for low, each in weights)


def _moved(weights: Weights) -> Weights:
    """The same weights where the pixels before the first needed one are gone."""
    start = weights[0][0]
    return [(low - start, each) for low, each in weights]
