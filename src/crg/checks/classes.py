"""Checks of classes: their order does not matter, and they may come and go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crg.checks.answers import require_sound
from crg.checks.base import Check, Make, require, require_close, run
from crg.checks.fixtures import ADDED, VIEW_COUNTS, another_direction, make_stream, make_task
from crg.types import Task


def order_of_classes_does_not_matter(make: Make) -> None:
    """Classes in another order give the same logits in that order."""
    task = make_task()
    order = np.random.default_rng(5).permutation(task.n_classes)
    shuffled = Task(
        tuple(task.class_names[k] for k in order), task.text_features[order], task.logit_scale
    )
    for views in VIEW_COUNTS:
        stream = make_stream(task, 100, views)
        expected = [logits[order] for logits in run(make(task), stream)]
        sentence = "Classes in another order gave other logits"
        require_close(expected, run(make(shuffled), stream), 1e-7, sentence)


def class_added_at_once_counts_as_given(make: Make) -> None:
    """A class added before the first sample counts like one that the task had from the start."""
    task = make_task()
    larger = task.with_class(ADDED, another_direction(task))
    stream = make_stream(larger, 80, 8)
    adapter = make(task)
    adapter.add_class(ADDED, another_direction(task))
    sentence = "A class added before the first sample is not like one given at the start"
    require_close(run(make(larger), stream), run(adapter, stream), 1e-9, sentence)


def class_removed_at_once_counts_as_never_given(make: Make) -> None:
    """A class removed before the first sample counts like one that the task never had."""
    larger = make_task(n_classes=6)
    smaller = larger.without_class("class 2")
    stream = make_stream(smaller, 80, 8)
    adapter = make(larger)
    adapter.remove_class("class 2")
    sentence = "A class removed before the first sample left a trace"
    require_close(run(make(smaller), stream), run(adapter, stream), 1e-9, sentence)


def classes_may_come_and_go(make: Make) -> None:
    """Adding and removing classes in mid-stream keeps predictions sound and names right."""
    for dtype in ("float32", "float64"):
        task = make_task(dtype)
        larger = task.with_class(ADDED, another_direction(task))
        stream = make_stream(larger, 120, 8)
        adapter = make(task)
        run(adapter, stream[:30])
        adapter.add_class(ADDED, another_direction(task))
        _require_sound_names(adapter.step(stream[30]).class_name, adapter.task, larger.class_names)
        for views in stream[31:60]:
            require_sound(adapter.step(views), adapter.task, " after a class was added")
        adapter.remove_class("class 1")
        remaining = tuple(name for name in larger.class_names if name != "class 1")
        require(adapter.task.class_names == remaining, "Removing a class mixed up the names")
        for views in stream[60:90]:
            require_sound(adapter.step(views), adapter.task, " after a class was removed")
        adapter.add_class("class 1", task.text_features[1])
        for views in stream[90:]:
            require_sound(adapter.step(views), adapter.task, " after a class came back")


def classes_are_still_recognised_after_changes(make: Make) -> None:
    """Rows stay with their classes: after changes clear images still get their own names."""
    task = make_task().with_class(ADDED, another_direction(make_task()))
    adapter = make(make_task())
    run(adapter, make_stream(make_task(), 40, 8, noise=0.3))
    adapter.add_class(ADDED, another_direction(task))
    adapter.remove_class("class 0")
    clear = make_stream(task, 60, 8, noise=0.3, seed=6)
    names = [task.class_names[place % task.n_classes] for place in range(60)]
    for views, name in zip(clear, names, strict=True):
        if name != "class 0":
            got = adapter.step(views).class_name
            require(got == name, f"After changes a clear image of {name!r} was called {got!r}")


def _require_sound_names(name: str, task: Task, expected: Sequence[str]) -> None:
    require(task.class_names == expected, "Adding a class mixed up the names")
    require(name in expected, f"{name!r} is no class of the task")


CHECKS: list[Check] = [
    order_of_classes_does_not_matter,
    class_added_at_once_counts_as_given,
    class_removed_at_once_counts_as_never_given,
    classes_may_come_and_go,
    classes_are_still_recognised_after_changes,
]
