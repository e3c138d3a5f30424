"""Attacks on the library: odd arrays, ids and corrections for every method."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np

import crg
from attacks.base import Outcome, odd_value, refused, require
from attacks.states import _SLOW, material, same_state
from crg.checks.base import on_host

_SHAPES = ((), (0,), (0, 8), (8, 0), (1, 1, 1, 1), (2, 3, 8), (9,))
_DTYPES = ("f2", "f4", "f8", ">f4", "i1", "i8", "u8", "b1", "c8", "O", "U3", "S3", "V8", "M8[D]")


def odd_arrays(dice: random.Random, place: Path) -> Outcome:
    """A refused array changes nothing; an accepted one gives finite logits."""
    given = material(dice.choice([name for name in crg.list_methods() if name not in _SLOW]))
    adapter = copy.deepcopy(given.adapter)
    views, odd_id = _odd_views(dice, given.views[0]), odd_value(dice)
    identity = odd_id if dice.random() < 0.2 else None
    kind = dice.randrange(4)
    took: list[Any] = []
    work = {
        0: lambda: took.append(adapter.step(views, identity)),
        1: lambda: took.extend(adapter.step_many(views, identity)),
        2: lambda: adapter.correct(views, dice.choice(("class 1", odd_id)), identity),
        3: lambda: adapter.add_class(odd_id, views),
    }[kind]
    with np.errstate(all="ignore"):
        was_refused = refused(work)
    if was_refused:
        require(same_state(adapter, given.adapter), "a refused call changed the state")
        return "refused"
    took.append(adapter.step(given.views[-1]))
    finite = all(np.all(np.isfinite(on_host(each.logits))) for each in took)
    require(finite, "logits are not finite")
    return "handled"


def _odd_views(dice: random.Random, views: np.ndarray[Any, Any]) -> Any:
    """Features (V, D) that are no longer what an encoder gives."""
    rows, spoilt = views.copy(), views.copy()
    odd_numbers = (0.0, 1e300, 1e-300, 1e-320, -1.0, 1e18, 1e308, -1e308, np.nan, np.inf, -np.inf)
    spoilt[dice.randrange(len(rows)), dice.randrange(rows.shape[1])] = dice.choice(odd_numbers)
    with np.errstate(all="ignore"):
        return dice.choice((
            lambda: odd_value(dice),
            lambda: rows.astype(dice.choice(_DTYPES)),
            lambda: rows.tolist(),
            lambda: rows * dice.choice(odd_numbers),
            lambda: spoilt,
            lambda: np.zeros(dice.choice(_SHAPES)),
            lambda: dice.choice((rows[::-1, ::-1], np.asfortranarray(rows))),
            lambda: np.ma.masked_array(rows, mask=rows > 0),
            lambda: np.broadcast_to(rows[0], (3, rows.shape[1])),
            lambda: np.repeat(rows[:1], 3, axis=0)[:, : dice.choice((1, 7, 8))],
        ))()  # fmt: skip
