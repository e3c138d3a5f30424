"""Parts of a torch module exchanged in a copy that shares all weights with the original.

The original is not touched, so that several threads may use it at once.
"""

from __future__ import annotations

import copy
from typing import Any

_KINDS = ("_modules", "_parameters", "_buffers")  # where torch keeps what a module is made of


def with_part(module: Any, path: str, part: Any) -> Any:
    """The module with ``part``, any callable or tensor, in place of what is at ``path``."""
    first, _, rest = path.partition(".")
    clone = copy.copy(module)
    for kind in _KINDS:
        clone.__dict__[kind] = dict(module.__dict__[kind])
    if rest:
        clone._modules[first] = with_part(module._modules[first], rest, part)
        return clone
    for kind in _KINDS:
        clone.__dict__[kind].pop(first, None)
    clone.__dict__[first] = part
    return clone


def shortened(model: Any, path: str, ids: Any) -> tuple[Any, Any]:
    """The model and token ids (K, L) without the places behind the last one that is read.

    In a causal transformer that reads the end token, what follows it has no influence: class
    names need some ten places of CLIP's 77. Other text towers are left as they are.
    """
    before, _, _ = path.rpartition(".")
    tower = model.get_submodule(before)
    length = _places_read(tower, ids)
    if length >= ids.shape[1]:
        return model, ids
    prefix = f"{before}." if before else ""
    places = tower.positional_embedding[:length]
    model = with_part(model, f"{prefix}positional_embedding", places)
    model = with_part(model, f"{prefix}attn_mask", tower.attn_mask[:length, :length])
    return model, ids[:, :length]


def _places_read(tower: Any, ids: Any) -> int:
    """How many places from the first on have influence on the features."""
    pool = getattr(tower, "text_pool_type", getattr(tower, "pool_type", ""))
    causal = getattr(tower, "attn_mask", None) is not None
    if not causal or getattr(tower, "cls_emb", None) is not None or pool not in ("argmax", "eos"):
        return int(ids.shape[1])
    end = getattr(tower, "text_eos_id", getattr(tower, "eos_id", None))
    found = ids if pool == "argmax" else (ids == end).int()
    return int(found.argmax(dim=-1).max()) + 1
