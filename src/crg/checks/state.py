"""Checks of state: it can be saved, copied and taken up again, and it does not grow."""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import array_api_compat

from crg.adapter import Adapter, load
from crg.checks.base import Check, Make, require, require_same_bits, run
from crg.checks.fixtures import VIEW_COUNTS, another_direction, make_stream, make_task
from crg.needs import TEXT_ENCODER


def saved_state_goes_on(make: Make) -> None:
    """Save, load, go on: the logits are those of an adapter that was not interrupted."""
    _require_takes_up_again(make, _saved_and_loaded, "a saved and loaded adapter")


def pickled_adapter_goes_on(make: Make) -> None:
    """A pickled adapter goes on like the original."""
    _require_takes_up_again(make, lambda a: pickle.loads(pickle.dumps(a)), "a pickled adapter")


def copied_adapter_goes_on(make: Make) -> None:
    """A deep copy goes on like the original, and neither influences the other."""
    _require_takes_up_again(make, copy.deepcopy, "a deep copy")


def state_is_bounded(make: Make) -> None:
    """Once queues are full the state stops growing: 400 samples need no more room than 100."""
    task = make_task()
    for views in VIEW_COUNTS:
        adapter = make(task)
        stream = make_stream(task, 400, views)
        run(adapter, stream[:100])
        before = size_of(adapter)
        run(adapter, stream[100:])
        after = size_of(adapter)
        require(after <= before, f"The state grew from {before} to {after} bytes with more samples")


def _require_takes_up_again(make: Make, again: Callable[[Adapter], Adapter], what: str) -> None:
    task = make_task()
    for views in VIEW_COUNTS:
        stream = make_stream(task, 120, views)
        for pause in (0, 1, 70):
            adapter = make(task)
            run(adapter, stream[:pause])
            _require_equal_futures(adapter, again(adapter), stream[pause : pause + 50], what)
        adapter = _with_changed_classes(make(task), stream[:70])
        _require_equal_futures(adapter, again(adapter), stream[70:], what + " of changed classes")


def _require_equal_futures(original: Adapter, other: Adapter, stream: Any, what: str) -> None:
    require(other.n_steps == original.n_steps, f"The step count of {what} is wrong")
    require(other.config == original.config, f"The options of {what} are wrong")
    names = other.task.class_names
    require(names == original.task.class_names, f"The classes of {what} are wrong")
    # The copy goes first: had it shared anything, the original would now be elsewhere.
    ours, theirs = run(other, stream), run(original, stream)
    require_same_bits(theirs, ours, f"The logits of {what} differ from the original's")


def _with_changed_classes(adapter: Adapter, stream: Any) -> Adapter:
    run(adapter, stream[:30])
    adapter.add_class("one more", another_direction(adapter.task))
    run(adapter, stream[30:50])
    adapter.remove_class("class 1")
    run(adapter, stream[50:])
    return adapter


def _saved_and_loaded(adapter: Adapter) -> Adapter:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        adapter.save(path)
        elsewhere = {TEXT_ENCODER: adapter.task.resources.get(TEXT_ENCODER)}
        return load(path, {need: thing for need, thing in elsewhere.items() if thing is not None})


def size_of(thing: Any, seen: set[int] | None = None) -> int:
    """Bytes that an object keeps: arrays by their size, any other plain value as eight."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, (type, FunctionType, ModuleType)):
        return 0
    if array_api_compat.is_array_api_obj(thing):
        seen.add(id(thing))
        return int(thing.itemsize * array_api_compat.size(thing))
    if isinstance(thing, (str, bytes, bytearray)):
        return len(thing)
    if isinstance(thing, (int, float, complex, type(None))):
        return 8
    seen.add(id(thing))
    return 8 + sum(size_of(part, seen) for part in _parts_of(thing))


def _parts_of(thing: Any) -> list[Any]:
    if isinstance(thing, dict):
        return [*thing.keys(), *thing.values()]
    try:
        parts = list(thing)
    except TypeError:
        parts = []
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    parts += [getattr(thing, name) for name in slots if hasattr(thing, name)]
    return parts + list(getattr(thing, "__dict__", {}).values())


CHECKS: list[Check] = [
    saved_state_goes_on,
    pickled_adapter_goes_on,
    copied_adapter_goes_on,
    state_is_bounded,
]
