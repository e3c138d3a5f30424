"""AugMix (Hendrycks et al., 2020) as TPT uses it: three chains of simple operations, mixed.

From a crop x, with chains c_i of one to three operations each,

    view = m x + (1 - m) sum_i w_i c_i(x),    w ~ Dirichlet(1, 1, 1),  m ~ Beta(1, 1)

rounded to whole values once, at the end. The strengths are those of the authors' code at
severity one: whole bits, degrees, grey values and pixels, and a slope for shearing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageOps

from crg.images.preprocessing import Pixels

CHAINS, DEPTH = 3, 3
_PER_OPERATION = 3  # random numbers: which, how strong, which sign
_PER_CHAIN = 1 + DEPTH * _PER_OPERATION
DRAWS_FOR_AUGMIX = 1 + CHAINS + CHAINS * _PER_CHAIN
_TINY = 1e-300  # so that three zeros can be divided by their sum
_LEAST, _SEVERITY = 0.1, 1.0  # levels are uniform between them, of 10
_VALUES = np.arange(256)


class Operation(NamedTuple):
    """One link of a chain; (x, y) of the result comes from a x + b y + c, d x + e y + f."""

    name: str  # of _BY_PILLOW
    amount: int = 0  # bits kept by posterize, least value changed by solarize
    matrix: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)  # a to f, of affine and shift


Mixture: TypeAlias = tuple[list[list[Operation]], tuple[float, ...]]  # chains; shares, crop first


def random_mixture(draws: Sequence[float], side: int) -> Mixture:
    """The mixture that these numbers in [0, 1) stand for, for a square of ``side`` pixels."""
    own, exponentials = draws[0], [_TINY - math.log1p(-u) for u in draws[1 : 1 + CHAINS]]
    shares = (own, *((1 - own) * each / sum(exponentials) for each in exponentials))
    chains = []
    for start in range(1 + CHAINS, DRAWS_FOR_AUGMIX, _PER_CHAIN):
        depth, first = 1 + int(draws[start] * DEPTH), start + 1
        places = range(first, first + depth * _PER_OPERATION, _PER_OPERATION)
        chains.append([_operation(draws[i : i + _PER_OPERATION], side) for i in places])
    return chains, shares


def mix(view: Pixels, mixture: Mixture, kernels: ModuleType | None) -> None:
    """Turn a crop, (S, S, 3), into the view that a mixture makes of it."""
    chains, shares = mixture[0], np.array(mixture[1], np.float32)
    total = view * shares[0]
    if kernels is not None:
        for chain, share in zip(chains, shares[1:], strict=True):
            made = reduce(lambda crop, each: apply_by_kernels(crop, each, kernels), chain, view)
            kernels.add_share(made.reshape(-1), share, total.reshape(-1))
        kernels.finish(total.reshape(-1), view.reshape(-1))
        return
    for chain, share in zip(chains, shares[1:], strict=True):
        crop = Image.fromarray(view)
        for each in chain:
            crop = _BY_PILLOW[each.name](crop, each)
        total += np.asarray(crop) * share
    view[:] = np.minimum(total + np.float32(0.5), 255)


def _operation(draws: Sequence[float], side: int) -> Operation:
    which, how_strong, sign = draws
    level = (_LEAST + how_strong * (_SEVERITY - _LEAST)) / 10
    return _OPERATIONS[int(which * len(_OPERATIONS))](level, -1 if sign > 0.5 else 1, side)


def _rotation(degrees: int, side: int) -> Operation:
    """About the centre; the angle is reduced and rounded as Pillow does it."""
    if degrees == 0:
        return Operation("shift")
    angle, centre = -math.radians(degrees % 360), side / 2
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    minus_sin = round(-math.sin(angle), 15)
    x = cos * -centre + sin * -centre + 0.0 + centre
    y = minus_sin * -centre + cos * -centre + 0.0 + centre
    return Operation("affine", 0, (cos, sin, x, minus_sin, cos, y))


# Of a level in [0, 1], a sign and the side of the image.
_OPERATIONS: tuple[Callable[[float, int, int], Operation], ...] = (
    lambda level, sign, side: Operation("autocontrast"),
    lambda level, sign, side: Operation("equalize"),
    lambda level, sign, side: Operation("posterize", 4 - int(level * 4)),
    lambda level, sign, side: _rotation(sign * int(level * 30), side),
    lambda level, sign, side: Operation("solarize", 256 - int(level * 256)),
    lambda level, sign, side: Operation("affine", 0, (1, sign * level * 0.3, 0, 0, 1, 0)),
    lambda level, sign, side: Operation("affine", 0, (1, 0, 0, sign * level * 0.3, 1, 0)),
    lambda level, sign, side: Operation("shift", 0, (1, 0, sign * int(level * side / 3), 0, 1, 0)),
    lambda level, sign, side: Operation("shift", 0, (1, 0, 0, 0, 1, sign * int(level * side / 3))),
)


def _shifted(crop: Image.Image, operation: Operation) -> Image.Image:
    x, y = int(operation.matrix[2]), int(operation.matrix[5])
    return crop.crop((x, y, x + crop.width, y + crop.height))


_AFFINE, _BILINEAR = Image.Transform.AFFINE, Image.Resampling.BILINEAR
_BY_PILLOW: dict[str, Callable[[Image.Image, Operation], Image.Image]] = {
    "autocontrast": lambda crop, each: ImageOps.autocontrast(crop),
    "equalize": lambda crop, each: ImageOps.equalize(crop),
    "posterize": lambda crop, each: ImageOps.posterize(crop, each.amount),
    "solarize": lambda crop, each: ImageOps.solarize(crop, each.amount),
    "affine": lambda crop, each: crop.transform(crop.size, _AFFINE, each.matrix, _BILINEAR),
    "shift": _shifted,
}


def apply_by_kernels(crop: Pixels, operation: Operation, kernels: ModuleType) -> Pixels:
    """Apply an operation to an array (S, S, 3), with the same result as Pillow's."""
    if operation.name == "shift":
        return _shifted_array(crop, int(operation.matrix[2]), int(operation.matrix[5]))
    new = np.empty_like(crop)
    if operation.name == "affine":
        kernels.affine(crop, np.array(operation.matrix, np.float64), new)
    else:
        kernels.look_up(crop.reshape(-1), _tables(crop, operation, kernels), new.reshape(-1))
    return new


def _shifted_array(crop: Pixels, x: int, y: int) -> Pixels:
    """new[i, j] = crop[i + y, j + x], black outside."""
    side, new = len(crop), np.zeros_like(crop)
    there = new[max(0, -y) : max(0, side - y), max(0, -x) : max(0, side - x)]
    there[:] = crop[max(0, y) : max(0, side + y), max(0, x) : max(0, side + x)]
    return new


def _tables(crop: Pixels, operation: Operation, kernels: ModuleType) -> Pixels:
    """The new value for each old one, per channel, (3, 256)."""
    if operation.name == "posterize":
        return np.tile((_VALUES & (256 - (1 << (8 - operation.amount)))).astype(np.uint8), (3, 1))
    if operation.name == "solarize":
        inverted = np.where(_VALUES < operation.amount, _VALUES, 255 - _VALUES)
        return np.tile(inverted.astype(np.uint8), (3, 1))
    counts = np.zeros((3, 256), np.int64)
    kernels.count(crop.reshape(-1), counts)
    fill = _stretched if operation.name == "autocontrast" else _equalized
    return np.stack([fill(each) for each in counts]).astype(np.uint8)


def _stretched(counts: Any) -> Any:
    """The lowest value becomes 0, the highest 255."""
    low, high = np.flatnonzero(counts)[[0, -1]].tolist()
    if high <= low:
        return _VALUES
    scale = 255.0 / (high - low)
    return np.clip((_VALUES * scale + -low * scale).astype(np.int64), 0, 255)


def _equalized(counts: Any) -> Any:
    """All values become equally frequent."""
    step = int(counts.sum() - counts[np.flatnonzero(counts)[-1]]) // 255
    if step == 0:
        return _VALUES
    below = np.cumsum(counts) - counts
    return np.minimum((step // 2 + below) // step, 255)
