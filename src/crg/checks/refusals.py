"""Checks of refusal: bad input raises InputError and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from crg.adapter import Adapter
from crg.checks.base import Check, CheckFailed, Make, require, require_same_bits, run
from crg.checks.fixtures import another_direction, make_stream, make_task
from crg.types import InputError


def refused_samples_change_nothing(make: Make) -> None:
    """After a bad sample the next logits are those of an adapter that never saw it."""
    task = make_task()
    bad_samples = _bad_samples(task.width)
    stream = make_stream(task, 3 * len(bad_samples), 8)
    adapter, undisturbed = make(task), make(task)
    for place, (what, views) in enumerate(bad_samples.items()):
        _require_refused(adapter, partial(adapter.step, views), f"A sample that is {what}")
        part = stream[3 * place : 3 * place + 3]
        sentence = f"Refusing a sample that is {what} changed the adapter"
        require_same_bits(run(undisturbed, part), run(adapter, part), sentence)


def refused_class_changes_change_nothing(make: Make) -> None:
    """After a bad add_class or remove_class an adapter goes on as if it had not been asked."""
    task = make_task()
    stream, row = make_stream(task, 60, 8), another_direction(task)
    adapter, undisturbed = make(task), make(task)
    run(adapter, stream[:20])
    run(undisturbed, stream[:20])
    for what, change in _bad_changes(adapter, row).items():
        _require_refused(adapter, change, what)
    require(adapter.task.class_names == task.class_names, "A refused change altered the classes")
    left, right = run(undisturbed, stream[20:]), run(adapter, stream[20:])
    require_same_bits(left, right, "A refused change of classes changed the logits")


def last_two_classes_stay(make: Make) -> None:
    """One of two classes cannot be removed, and trying leaves both at work."""
    task = make_task(n_classes=2)
    adapter, undisturbed = make(task), make(task)
    remove = partial(adapter.remove_class, "class 0")
    _require_refused(adapter, remove, "Removing one of two classes")
    stream = make_stream(task, 20)
    left, right = run(undisturbed, stream), run(adapter, stream)
    require_same_bits(left, right, "Refusing to remove a class changed the logits")


def _bad_samples(width: int) -> dict[str, Any]:
    good = np.ones((8, width))
    samples = {"NaN in one view": good.copy(), "infinite in one view": good.copy()}
    samples["NaN in one view"][5, 0] = np.nan
    samples["infinite in one view"][7, 1] = -np.inf
    return {
        **samples,
        "zero": np.zeros(width),
        "zero in one view": good * np.arange(8)[::-1, None],
        "too wide": np.ones(width + 1),
        "too narrow": np.ones((8, width - 1)),
        "three-dimensional": good[None],
        "a number": 1.0,
        "empty": np.empty((0, width)),
        "an empty list": [],
        "words": ["not", "numbers"],
        "ragged": [[1.0] * width, [1.0]],
    }


def _bad_changes(adapter: Adapter, row: Any) -> dict[str, Callable[[], None]]:
    return {
        "A class name that exists": lambda: adapter.add_class("class 1", row),
        "A text feature of zeros": lambda: adapter.add_class("new", 0 * row),
        "A text feature of NaN": lambda: adapter.add_class("new", np.nan * row),
        "A text feature of another width": lambda: adapter.add_class("new", row[1:]),
        "An unknown class": lambda: adapter.remove_class("no such class"),
    }


def _require_refused(adapter: Adapter, action: Callable[[], Any], what: str) -> None:
    n_steps = adapter.n_steps
    try:
        action()
    except InputError as error:
        require(bool(str(error)), f"{what} was refused without a word")
        require(adapter.n_steps == n_steps, f"{what} was refused but counted as a step")
        return
    except Exception as error:
        raise CheckFailed(f"{what} raised {type(error).__name__}, not InputError") from error
    raise CheckFailed(f"{what} was accepted")


CHECKS: list[Check] = [
    refused_samples_change_nothing,
    refused_class_changes_change_nothing,
    last_two_classes_stay,
]
