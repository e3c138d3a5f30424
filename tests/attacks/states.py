"""Attacks on the library: damaged and edited state files, odd options, arrays and ids."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as to_bytes

import crg
from attacks.base import Outcome, attempt, bent, edited, odd_value, refused, require
from crg import state_file
from crg.checks.base import furnished, make_stream, make_task, on_host
from crg.methods.registry import get_method
from crg.resources import TEXT_ENCODER

Tensors = dict[str, np.ndarray[Any, Any]]
_SLOW = ("coop", "difftpt", "tpt")  # their steps train, so few of them are taken
_KINDS = ("<f2", "<f4", "<f8", "<i4", "<i8", "|b1", "|u1")


class Material:
    """A state of one method, as bytes and in parts, and what to load and use it with."""

    def __init__(self, method: str) -> None:
        self.slow = method in _SLOW
        task = furnished(make_task(n_classes=5, width=8), get_method(method).needs)
        options: dict[str, Any] = {"epochs": 2} if method == "coop" else {}
        self.adapter = crg.create(method, task, **options)
        self.views = make_stream(task, 12, 8)
        for views in self.views[: 2 if self.slow else 12]:
            self.adapter.step(views)
        self.resources = {k: v for k, v in task.resources.items() if k == TEXT_ENCODER}
        self.content = self.adapter.content()
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.content)
            file.flush()
            self.header, self.tensors = state_file._contents(Path(file.name))
        del self.header["sha256"]


material = functools.cache(Material)  # made once for all cases


def damaged(dice: random.Random, place: Path) -> Outcome:
    """Bytes change at random: the file is refused, or what is loaded is equal."""
    given = material(dice.choice(crg.list_methods()))
    path = place / "state"
    path.write_bytes(bent(dice, given.content))
    loaded = attempt(lambda: crg.load(path, given.resources))
    if loaded is None:
        return "refused"
    require(same_state(loaded, given.adapter), "another state was loaded")
    return "handled"


def edited_state(dice: random.Random, place: Path) -> Outcome:
    """A program changes header or tensors and signs them: refused, or the next steps are finite."""
    given = material(dice.choice(crg.list_methods()))
    header, tensors = given.header, dict(given.tensors)
    if dice.random() < 0.5:
        part = dice.choice(("all", "plain", "options"))
        inner = part != "all"
        header = {**header, part: edited(dice, header[part])} if inner else edited(dice, header)
    else:
        _edit_tensor(dice, tensors)
    path = place / "state"
    path.write_bytes(signed(header, tensors))
    loaded = attempt(lambda: crg.load(path, given.resources))
    if loaded is None:
        return "refused"
    if not given.slow or dice.random() < 0.05:
        _use(loaded, given)
    return "handled"


def same_state(one: crg.Adapter, other: crg.Adapter) -> bool:
    """Whether two adapters agree in everything that the next step depends on."""
    left, right = one._method.state(), other._method.state()
    return (
        (one.name, one.n_steps, one.config) == (other.name, other.n_steps, other.config)
        and one.task.class_names == other.task.class_names
        and one.task.logit_scale == other.task.logit_scale
        and np.array_equal(on_host(one.task.text_features), on_host(other.task.text_features))
        and left.keys() == right.keys()
        and all(_equal(left[name], right[name]) for name in left)
    )


def _equal(one: Any, other: Any) -> bool:
    if hasattr(one, "shape"):
        return on_host(one).tobytes() == on_host(other).tobytes()
    return bool(one == other)


def _edit_tensor(dice: random.Random, tensors: Tensors) -> None:
    """One tensor with other numbers, another kind or shape, another name, or none."""
    name, other = dice.choice(list(tensors)), dice.choice(list(tensors))
    tensor, kind = tensors[name], dice.randrange(7)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[name], tensors[other] = tensors[other], tensor
    elif kind == 2:
        tensors[dice.choice(("state.new", "new", "few_features", ""))] = tensor
    elif kind == 3:
        with np.errstate(all="ignore"):
            tensors[name] = tensor.astype(dice.choice(_KINDS))
    elif kind == 4 and tensor.ndim:
        tensors[name] = np.ascontiguousarray(np.roll(tensor, 1, 0)[dice.choice((0, 1)) :])
    elif kind == 5:
        tensors[name] = tensor.reshape(dice.choice(((-1,), (1, -1), (*tensor.shape, 1))))
    else:
        tensors[name] = _other_numbers(dice, tensor)


def _other_numbers(dice: random.Random, tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    changed = tensor.copy()
    if tensor.dtype.kind == "f":
        value = dice.choice((np.nan, np.inf, -np.inf, 0.0, 1e300, -1e18, 1e-320, 1e6, -1.0))
    else:
        value = dice.choice((-1, 0, 1, 2, 100, 2**31 - 1)) if tensor.dtype.kind == "i" else 1
    with np.errstate(all="ignore"):
        if dice.random() < 0.5 or not changed.size:
            changed[...] = value
        else:
            changed.reshape(-1)[dice.randrange(changed.size)] = value
    return changed


def signed(header: Any, tensors: Tensors) -> bytes:
    """A state file whose digest fits, whatever it holds."""
    if isinstance(header, dict):
        header = {**header, "sha256": state_file._digest(header, tensors)}
    return bytes(to_bytes(tensors, {"crg": json.dumps(header)}))


def _use(adapter: crg.Adapter, given: Material, more: Any = ()) -> None:
    """The state goes through what a stream does with one, and gives only finite answers."""
    views = given.views[:, :, : adapter.task.width]
    for each in views[-1:] if given.slow else (*views[-4:], *more):
        answer = attempt(functools.partial(adapter.step, each))
        if answer is not None:
            require(bool(np.all(np.isfinite(on_host(answer.logits)))), "logits are not finite")
            require(0 <= answer.label < adapter.task.n_classes, "a label that is no class")


def _extreme(dice: random.Random, field: dataclasses.Field[Any]) -> Any:
    """A number at or near a limit of an option, or of any size; else its default."""
    limits = [field.metadata.get(rule) for rule in ("at_least", "above", "at_most")]
    if type(field.default) is float:
        limit = dice.choice([each for each in limits if each is not None] or [0.0])
        near = (limit, math.nextafter(limit, math.inf), math.nextafter(limit, 0))
        return dice.choice([*near, 10.0 ** dice.uniform(-320, 308)])
    return dice.choice([1, 2, 3, 5, 1000]) if type(field.default) is int else field.default


def odd_options(dice: random.Random, place: Path) -> Outcome:
    """Options of odd kinds: refused, or the method works with them."""
    method = dice.choice([name for name in crg.list_methods() if name not in _SLOW])
    given = material(method)
    names = list(given.header["options"]) or ["none"]
    options = {dice.choice(names): odd_value(dice)}
    fields = [each for each in dataclasses.fields(get_method(method).Config) if each.metadata]
    if fields and dice.random() < 0.7:
        options = {each.name: _extreme(dice, each) for each in dice.choices(fields, k=2)}
    made = attempt(lambda: crg.create(method, given.adapter.task, **options))
    if made is None:
        return "refused"
    _use(made, given, np.random.default_rng(dice.randrange(2**32)).normal(size=(16, 3, 8)))
    return "handled"


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
