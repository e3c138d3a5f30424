"""How a model wants its pixels: the square that it sees, and how encoders normalise it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from msgspec import Meta

from crg.images import WORTH_COMPILING, pixel_kernels

Interpolation: TypeAlias = Literal["bicubic", "bilinear"]

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
