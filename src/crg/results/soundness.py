"""Former names of what is now in ``crg.results.ledger``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crg.results.ledger import LeftOut as LeftOut
from crg.results.ledger import left_out_notes as sentences_on
from crg.results.schema import LineError, decode

DIGEST = "digest"
__all__ = ["DIGEST", "LeftOut", "is_run", "lacking", "sentences_on"]


def is_run(record: Mapping[str, Any]) -> bool:
    """Whether a record is the full record of a run."""
    return record.get("kind") is None and DIGEST not in record


def lacking(record: Mapping[str, Any]) -> str | None:
    """Why a record cannot be read, None where it can."""
    try:
        decode(json.dumps(record).encode())
    except LineError as error:
        return str(error)
    return None
