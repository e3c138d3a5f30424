"""Published presets: options that authors chose for single datasets, with labels.

``preset=published/dtd`` stands for the options in ``published.toml``. They are never a
default: a comparison that uses them compares methods that were tuned on labels.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from crg.types import InputError

PRESET = "preset"
PUBLISHED = "published/"


def with_preset(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with a preset spelled out; what is given beside it wins.

    >>> with_preset("tda", {"preset": "published/dtd", "positive_weight": 1.0})
    {'positive_weight': 1.0, 'positive_sharpness': 3.0}
    """
    rest = {name: value for name, value in options.items() if name != PRESET}
    if PRESET not in options:
        return rest
    name, there = str(options[PRESET]), presets_of(method)
    if name not in there:
        known = ", ".join(there) or "none"
        raise InputError(f"Method {method!r} has no preset {name!r}: there is {known}.")
    return {**_published()[method][name.removeprefix(PUBLISHED)], **rest}


def presets_of(method: str) -> tuple[str, ...]:
    """The presets that a method has."""
    return tuple(f"{PUBLISHED}{dataset}" for dataset in _published().get(method, {}))


@functools.cache
def _published() -> dict[str, Any]:
    return tomllib.loads(resources.files("crg").joinpath("published.toml").read_text("utf-8"))
