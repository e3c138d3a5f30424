"""Checks of input: good input is not modified, and bad input is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from crg.adapter import Adapter
from crg.checks.base import (
    VIEW_COUNTS,
    CheckFailed,
    Make,
    another_direction,
    make_stream,
    make_task,
    on_host,
    require,
    require_close,
    require_same_bits,
    run,
)
from crg.types import InputError, Task


def inputs_are_not_modified(make: Make) -> None:
    """Views, text features and task are as they were after any number of steps."""
    for dtype in ("float32", "float64"):
        task = make_task(dtype)
        stream, text = make_stream(task, 60, 8), another_direction(task)
        before = _facts(task), stream.tobytes(), text.tobytes()
        adapter = make(task)
        run(adapter, stream[:30])
        adapter.add_class("one more", text)
        run(adapter, stream[30:])
        adapter.remove_class("class 1")
        adapter.reset()
        run(adapter, stream[:10])
        require(stream.tobytes() == before[1], "The method modified the views it was given")
        require(text.tobytes() == before[2], "The method modified a text feature it was given")
        require(_facts(task) == before[0], "The method modified the task it was given")


def predictions_are_not_modified(make: Make) -> None:
    """A prediction that was handed out stays as it was when further samples come."""
    task = make_task()
    adapter = make(task)
    handed_out = [adapter.step(views) for views in make_stream(task, 60, 8)]
    copies = run(make(task), make_stream(task, 60, 8))
    logits = [on_host(prediction.logits) for prediction in handed_out]
    require_same_bits(copies, logits, "A later step modified an earlier prediction")


def length_of_views_does_not_matter(make: Make) -> None:
    """Views that are not of unit length give what unit views give."""
    task = make_task()
    for views in VIEW_COUNTS:
        stream = make_stream(task, 60, views)
        lengths = np.random.default_rng(4).uniform(0.01, 100.0, size=(60, views, 1))
        unit, scaled = run(make(task), stream), run(make(task), stream * lengths)
        require_close(unit, scaled, 1e-6, "Longer or shorter views gave other logits")


def one_view_may_be_a_vector(make: Make) -> None:
    """A vector (D,) gives what one row (1, D) gives, to the last bit."""
    task = make_task()
    stream = make_stream(task, 60)
    rows, vectors = run(make(task), stream), run(make(task), stream[:, 0, :])
    require_same_bits(rows, vectors, "A vector and a single row gave different logits")


def half_precision_views_are_accepted(make: Make) -> None:
    """Views in float16 give what the same numbers in float32 give."""
    task = make_task("float32")
    half = make_stream(task, 40, 8).astype(np.float16)
    wide = half.astype(np.float32)
    require_same_bits(run(make(task), half), run(make(task), wide), "Half precision went wrong")


def step_many_equals_step_by_step(make: Make) -> None:
    """A stream given at once is answered as one given sample by sample."""
    task = make_task()
    for views in VIEW_COUNTS:
        stream = make_stream(task, 60, views)
        at_once, one_by_one = make(task), make(task)
        many = list(at_once.step_many(stream, list(range(60))))
        single = [one_by_one.step(sample, place) for place, sample in enumerate(stream)]
        same = [p.label for p in many] == [p.label for p in single]
        require(same, "step_many gave other labels than step")
        left, right = [on_host(p.logits) for p in many], [on_host(p.logits) for p in single]
        require_close(left, right, 1e-9, "step_many gave other logits than step")
        require(at_once.n_steps == one_by_one.n_steps, "step_many miscounted its steps")


def _facts(task: Task) -> tuple[Any, ...]:
    return task.class_names, task.logit_scale, on_host(task.text_features).tobytes()


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
    """After a bad add_class or remove_class an adapter continues as if it had not been asked."""
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
    here = np.zeros_like(good)
    here[5, 0] = 1.0
    return {
        "NaN in one view": np.where(here, np.nan, good),
        "infinite in one view": np.where(here, -np.inf, good),
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
