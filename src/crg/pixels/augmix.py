"""AugMix (Hendrycks et al., 2020) as TPT uses it: three chains of simple operations, mixed.

From a crop x, with chains c_i of one to three operations each,

    view = m x + (1 - m) sum_i w_i c_i(x),    w ~ Dirichlet(1, 1, 1),  m ~ Beta(1, 1)

rounded to whole values once, at the end. The strengths are those of the authors' code at
severity one: whole bits, degrees, grey values and pixels, and a slope for shearing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from PIL import Image

from crg.pixels.compiled import pixel_kernels
from crg.pixels.operations import Kind, Operation, Pixels, apply_by_kernels, apply_by_pillow

CHAINS, DEPTH = 3, 3
_PER_OPERATION = 3  # random numbers: which, how strong, which sign
_PER_CHAIN = 1 + DEPTH * _PER_OPERATION
DRAWS_FOR_AUGMIX = 1 + CHAINS + CHAINS * _PER_CHAIN
_TINY = 1e-300  # so that three zeros can be divided by their sum
_LEAST, _SEVERITY = 0.1, 1.0  # levels are uniform between them, of 10


@dataclass(frozen=True, slots=True)
class Mixture:
    """What is done to one crop."""

    chains: tuple[tuple[Operation, ...], ...]
    shares: tuple[float, ...]  # of the crop, then of each chain; they sum to one


def random_mixture(draws: Sequence[float], side: int) -> Mixture:
    """The mixture that these numbers in [0, 1) stand for, for a square of ``side`` pixels."""
    own, exponentials = draws[0], [_TINY - math.log1p(-u) for u in draws[1 : 1 + CHAINS]]
    shares = (own, *((1 - own) * each / sum(exponentials) for each in exponentials))
    starts = range(1 + CHAINS, DRAWS_FOR_AUGMIX, _PER_CHAIN)
    return Mixture(tuple(_chain(draws[i : i + _PER_CHAIN], side) for i in starts), shares)


def _chain(draws: Sequence[float], side: int) -> tuple[Operation, ...]:
    depth = 1 + int(draws[0] * DEPTH)
    starts = range(1, 1 + depth * _PER_OPERATION, _PER_OPERATION)
    return tuple(_operation(draws[i], draws[i + 1], draws[i + 2], side) for i in starts)


def _operation(which: float, how_strong: float, sign: float, side: int) -> Operation:
    level = (_LEAST + how_strong * (_SEVERITY - _LEAST)) / 10
    return _OPERATIONS[int(which * len(_OPERATIONS))](level, -1 if sign > 0.5 else 1, side)


def _rotation(degrees: int, side: int) -> Operation:
    """About the centre; the angle is reduced and rounded as Pillow does it."""
    if degrees == 0:
        return _shift(0, 0)
    angle, centre = -math.radians(degrees % 360), side / 2
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    minus_sin = round(-math.sin(angle), 15)
    x = cos * -centre + sin * -centre + 0.0 + centre
    y = minus_sin * -centre + cos * -centre + 0.0 + centre
    return Operation(Kind.AFFINE, 0, (cos, sin, x, minus_sin, cos, y))


def _shift(x: int, y: int) -> Operation:
    return Operation(Kind.SHIFT, 0, (1, 0, x, 0, 1, y))


def _shear(x: float, y: float) -> Operation:
    return Operation(Kind.AFFINE, 0, (1, x, 0, y, 1, 0))


# Of a level in [0, 1], a sign and the side of the image.
_OPERATIONS: tuple[Callable[[float, int, int], Operation], ...] = (
    lambda level, sign, side: Operation(Kind.AUTOCONTRAST),
    lambda level, sign, side: Operation(Kind.EQUALIZE),
    lambda level, sign, side: Operation(Kind.POSTERIZE, 4 - int(level * 4)),
    lambda level, sign, side: _rotation(sign * int(level * 30), side),
    lambda level, sign, side: Operation(Kind.SOLARIZE, 256 - int(level * 256)),
    lambda level, sign, side: _shear(sign * level * 0.3, 0),
    lambda level, sign, side: _shear(0, sign * level * 0.3),
    lambda level, sign, side: _shift(sign * int(level * side / 3), 0),
    lambda level, sign, side: _shift(0, sign * int(level * side / 3)),
)


def mix(view: Pixels, mixture: Mixture, compiled: bool = True) -> None:
    """Turn a crop, (S, S, 3), into the view that a mixture makes of it."""
    kernels = pixel_kernels("mixing_kernels") if compiled else None
    shares = np.array(mixture.shares, np.float32)
    total = view * shares[0]
    if kernels is not None:
        for chain, share in zip(mixture.chains, shares[1:], strict=True):
            made = reduce(lambda crop, each: apply_by_kernels(crop, each, kernels), chain, view)
            kernels.add_share(made.reshape(-1), share, total.reshape(-1))
        kernels.finish(total.reshape(-1), view.reshape(-1))
        return
    crop = Image.fromarray(view)
    for chain, share in zip(mixture.chains, shares[1:], strict=True):
        total += np.asarray(reduce(apply_by_pillow, chain, crop)) * share
    view[:] = np.minimum(total + np.float32(0.5), 255)
