"""Images: sets of them, reading them, and making views: which part, resized how, mixed how."""

from __future__ import annotations

from types import ModuleType

from crg.ops import compiled

WORTH_COMPILING = 8  # images; for fewer, loading the kernels takes longer than they save


def pixel_kernels() -> ModuleType | None:
    """The compiled pixel kernels, if they can be used."""
    return compiled("crg.images.kernels")
