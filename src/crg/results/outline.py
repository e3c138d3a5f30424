"""Former names of what is now in ``crg.results.schema``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from crg.results.schema import (
    ENOUGH_IMAGES,
    ENOUGH_ORDERS,
    LABELLED_IMAGES,
    Cell,
    Outline,
    Row,
    Setting,
    Source,
)

__all__ = ["ENOUGH_IMAGES", "ENOUGH_ORDERS", "LABELLED_IMAGES", "Cell", "Outline", "Row",
           "Setting", "Source"]  # fmt: skip
KIND = "experiment"
NO_OUTLINE = (KeyError, TypeError, ValueError, AttributeError)


def from_record(record: Mapping[str, Any]) -> Outline:
    """The outline of a line."""
    return msgspec.convert(record[KIND], Outline)
