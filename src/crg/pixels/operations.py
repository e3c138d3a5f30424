"""The operations of AugMix on a crop: by Pillow, and the same to the last bit by kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageOps

Pixels: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Matrix: TypeAlias = tuple[float, float, float, float, float, float]
_VALUES = np.arange(256)


class Kind(Enum):
    """What can be done to a crop."""

    AUTOCONTRAST = auto()
    EQUALIZE = auto()
    POSTERIZE = auto()  # to so many bits
    SOLARIZE = auto()  # from this value on
    AFFINE = auto()  # (x, y) taken from a x + b y + c, d x + e y + f
    SHIFT = auto()  # (x, y) taken from x + c, y + f, whole pixels


@dataclass(frozen=True, slots=True)
class Operation:
    """One link of a chain."""

    kind: Kind
    amount: int = 0  # of POSTERIZE and SOLARIZE
    matrix: Matrix = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)  # of AFFINE and SHIFT


def apply_by_pillow(crop: Image.Image, operation: Operation) -> Image.Image:
    """What becomes of a crop."""
    return _BY_PILLOW[operation.kind](crop, operation)


def _shifted(crop: Image.Image, operation: Operation) -> Image.Image:
    x, y = int(operation.matrix[2]), int(operation.matrix[5])
    return crop.crop((x, y, x + crop.width, y + crop.height))


def _warped(crop: Image.Image, operation: Operation) -> Image.Image:
    how = (Image.Transform.AFFINE, operation.matrix, Image.Resampling.BILINEAR)
    return crop.transform(crop.size, *how)


_BY_PILLOW: dict[Kind, Callable[[Image.Image, Operation], Image.Image]] = {
    Kind.AUTOCONTRAST: lambda crop, operation: ImageOps.autocontrast(crop),
    Kind.EQUALIZE: lambda crop, operation: ImageOps.equalize(crop),
    Kind.POSTERIZE: lambda crop, operation: ImageOps.posterize(crop, operation.amount),
    Kind.SOLARIZE: lambda crop, operation: ImageOps.solarize(crop, operation.amount),
    Kind.AFFINE: _warped,
    Kind.SHIFT: _shifted,
}


def apply_by_kernels(crop: Pixels, operation: Operation, kernels: ModuleType) -> Pixels:
    """The same for an array (S, S, 3)."""
    if operation.kind is Kind.SHIFT:
        return _shifted_array(crop, int(operation.matrix[2]), int(operation.matrix[5]))
    new = np.empty_like(crop)
    if operation.kind is Kind.AFFINE:
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
    """What becomes of each value, per channel, (3, 256)."""
    if operation.kind is Kind.POSTERIZE:
        return _three_times(_VALUES & (256 - (1 << (8 - operation.amount))))
    if operation.kind is Kind.SOLARIZE:
        return _three_times(np.where(_VALUES < operation.amount, _VALUES, 255 - _VALUES))
    counts = np.zeros((3, 256), np.int64)
    kernels.count(crop.reshape(-1), counts)
    fill = _stretched if operation.kind is Kind.AUTOCONTRAST else _equalized
    return np.stack([fill(each) for each in counts]).astype(np.uint8)


def _three_times(table: Any) -> Pixels:
    return np.tile(table.astype(np.uint8), (3, 1))


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
