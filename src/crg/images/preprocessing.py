"""What a model wants images to look like; views are made for it, encoders normalise by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from crg.images.compiled import WORTH_COMPILING, pixel_kernels
from crg.images.crops import Interpolation as Interpolation

Pixels: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]  # (B, S, S, 3), red, green, blue
Fit: TypeAlias = Literal["shortest", "squash"]


@dataclass(frozen=True)
class Preprocessing:
    """How the original image becomes the square that the model sees."""

    size: int  # S, the side of that square in pixels
    mean: tuple[float, float, float]  # per channel, of pixels in [0, 1]
    std: tuple[float, float, float]
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
