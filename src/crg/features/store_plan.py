"""What a store is going to hold, and whether one that is there was made of the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crg.features.store import Header
from crg.types import InputError

CONTENT = "content of the pictures"  # may change in part while a store is not finished
VARIATIONS = "content of the variations"  # so may these
# These say nothing to people.
DIGESTS = (CONTENT, VARIATIONS, "list of pictures", "weights", "descriptions")
_SHOWN = 60  # characters of a value in a sentence


@dataclass(frozen=True)
class Plan:
    """All that is known of a store before the first image is encoded."""

    key: Mapping[str, Any]  # what makes the features, as JSON values
    class_names: Sequence[str]
    logit_scale: float
    logit_bias: float
    ids: Sequence[str]
    labels: Sequence[int] | None
    views: int  # V
    width: int  # D
    block: int  # images that are written at once and share a checksum
    contents: Sequence[str]  # for each block a hash of all that its features are made of

    def header(self) -> Header:
        """``store.json`` of the store while it is not finished."""
        return Header(
            key=json.loads(json.dumps(dict(self.key))),
            class_names=list(self.class_names),
            logit_scale=float(self.logit_scale),
            logit_bias=float(self.logit_bias),
            shape=[len(self.ids), self.views, self.width],
            block=self.block,
        )


def check_same(folder: Path, header: Header, plan: Plan) -> None:
    """Refuse a store that was made of something else, and name what differs.

    Images may have been mended since an unfinished store was begun: its journal knows which
    blocks they are in.
    """
    free = () if header.finished else (CONTENT, VARIATIONS)
    names = [name for name in {**header.key, **plan.header().key} if name not in free]
    told = [told for name in names if (told := _difference(name, header, plan))]
    if told:
        raise InputError(
            f"{folder} was made of something else ({', '.join(_plainest(told))}): "
            "ask for the same or give another folder with --out."
        )


def _difference(name: str, header: Header, plan: Plan) -> str | None:
    stored, asked = header.key.get(name), plan.header().key.get(name)
    if stored == asked:
        return None
    if name in DIGESTS:
        stored, asked = _brief_digest(stored), _brief_digest(asked)
    return f"{_label(name)} is {_shown(stored)} in the store but {_shown(asked)} was asked for"


def _label(name: str) -> str:
    """What a message calls a part of the key; stored keys keep the words they were hashed with."""
    return name.replace("pictures", "images")


def _plainest(told: list[str]) -> list[str]:
    """The differences without digests and what follows from others, unless there is no other."""
    return [
        text for text in told if not text.startswith((*map(_label, DIGESTS), "block is"))
    ] or told


def _brief_digest(value: Any) -> Any:
    return value[:12] if isinstance(value, str) else value


def _shown(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
