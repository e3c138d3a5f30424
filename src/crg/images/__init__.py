"""Sets of images, reading an image, and making views of it."""

from __future__ import annotations

from types import ModuleType

from crg.ops import compiled

WORTH_COMPILING = 8  # images; for fewer, loading the kernels takes longer than they save


def pixel_kernels() -> ModuleType | None:
    """The compiled pixel kernels, if they can be used."""
    return compiled("crg.images.kernels")
