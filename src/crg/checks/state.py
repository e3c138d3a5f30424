"""Checks of state: it can be saved and copied, it does not grow, and classes may come and go."""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import array_api_compat
import numpy as np

from crg.adapter import Adapter, load
from crg.checks.answers import require_sound
from crg.checks.base import (
    ADDED,
    Make,
    another_direction,
    make_stream,
    make_task,
    mixed_stream,
    on_host,
    require,
    require_same,
    run,
)
from crg.resources import TEXT_ENCODER
from crg.types import InputError, Task


def saved_state_continues(make: Make) -> None:
    """A saved and loaded adapter continues as one that was not interrupted."""
    _require_takes_up_again(make, _saved_and_loaded, "a saved and loaded adapter")


def pickled_adapter_continues(make: Make) -> None:
    """A pickled adapter continues like the original."""
    _require_takes_up_again(make, lambda a: pickle.loads(pickle.dumps(a)), "a pickled adapter")


def copied_adapter_continues(make: Make) -> None:
    """A deep copy continues like the original, and neither influences the other."""
    _require_takes_up_again(make, copy.deepcopy, "a deep copy")


def state_is_bounded(make: Make) -> None:
    """Once queues are full the state stops growing: 240 samples need no more room than 100."""
    task = make_task()
    adapter, stream = make(task), mixed_stream(task, 240)
    run(adapter, stream[:100])
    before = size_of(adapter._method)
    run(adapter, stream[100:])
    after = size_of(adapter._method)
    require(after <= before, f"The state grew from {before} to {after} bytes with more samples")


def answering_changes_nothing(make: Make) -> None:
    """An answer without learning is sound, is no step, and leaves everything as it was."""
    task = make_task()
    adapter, other = make(task), make(task)
    for place, sample in enumerate(mixed_stream(task, 60)):
        first, again = adapter.answer(sample), adapter.answer(sample)
        require_sound(first, task, " without learning")
        left, right = [on_host(first.logits)], [on_host(again.logits)]
        require_same(left, right, "An answer without learning changed the next one")
        require(adapter.n_steps == place, "An answer without learning was counted as a step")
        left, right = run(adapter, [sample]), run(other, [sample])
        require_same(left, right, "An answer without learning changed the next step")


def second_pass_answers_every_image(make: Make) -> None:
    """A second pass gives one sound answer per image, the same after saving and loading."""
    task = make_task()
    adapter, stream = make(task), list(enumerate(mixed_stream(task, 40), 1))
    run(adapter, [sample for _, sample in stream])
    again = _saved_and_loaded(adapter)
    answers = list(adapter.second_pass(stream))
    require(len(answers) == len(stream), "A second pass did not answer every image")
    require(adapter.n_steps == len(stream), "A second pass was counted as steps")
    for answer in answers:
        require_sound(answer, task, " in a second pass")
    left = [on_host(answer.logits) for answer in answers]
    right = [on_host(answer.logits) for answer in again.second_pass(stream)]
    require_same(left, right, "A second pass differs after saving and loading")


def corrections_are_taken_in_or_refused(make: Make) -> None:
    """A correction is refused because the method takes none, or learnt, kept and not a step."""
    task = make_task()
    stream = make_stream(task, 80, 8)
    adapter = make(task)
    run(adapter, stream[:40])
    for number, views in enumerate(stream[40:50]):
        name = task.class_names[number % task.n_classes]
        try:
            adapter.correct(views[0], name, f"corrected {number}")
        except InputError as error:
            sentence = f"A correction was refused without saying that none are taken: {error}"
            return require("cannot be corrected" in str(error), sentence)
        require(adapter.n_steps == 40, "A correction was counted as a step")
    copied = copy.deepcopy(adapter)
    for views in stream[50:]:
        require_sound(copied.step(views), task, " after a correction")
    what = "a saved and loaded adapter that was corrected"
    _require_equal_futures(adapter, _saved_and_loaded(adapter), stream[50:], what)


def _require_takes_up_again(make: Make, again: Callable[[Adapter], Adapter], what: str) -> None:
    task = make_task()
    stream = mixed_stream(task, 170)
    for pause in (0, 1, 70):
        adapter = make(task)
        run(adapter, stream[:pause])
        _require_equal_futures(adapter, again(adapter), stream[pause : pause + 30], what)
    adapter.add_class(ADDED, another_direction(task))  # the last one goes on
    run(adapter, stream[100:120])
    adapter.remove_class("class 1")
    run(adapter, stream[120:140])
    _require_equal_futures(adapter, again(adapter), stream[140:], what + " of changed classes")


def _require_equal_futures(original: Adapter, other: Adapter, stream: Any, what: str) -> None:
    require(other.n_steps == original.n_steps, f"The step count of {what} is wrong")
    require(other.config == original.config, f"The options of {what} are wrong")
    names = other.task.class_names
    require(names == original.task.class_names, f"The classes of {what} are wrong")
    # The copy goes first: had it shared anything, the original would now be elsewhere.
    ours, theirs = run(other, stream), run(original, stream)
    require_same(theirs, ours, f"The logits of {what} differ from the original's")


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


def order_of_classes_does_not_matter(make: Make) -> None:
    """Classes in another order give the same logits in that order."""
    task = make_task()
    order = np.random.default_rng(5).permutation(task.n_classes)
    names = tuple(task.class_names[k] for k in order)
    shuffled = Task(names, task.text_features[order], task.logit_scale)
    stream = mixed_stream(task, 100)
    expected = [logits[order] for logits in run(make(task), stream)]
    sentence = "Classes in another order gave other logits"
    require_same(expected, run(make(shuffled), stream), sentence, 1e-7)


def classes_changed_at_once_count_as_given(make: Make) -> None:
    """A class added before the first sample counts as given, a removed one as never given."""
    task = make_task()
    larger, smaller = task.with_class(ADDED, another_direction(task)), task.without_class("class 2")
    grown, shrunk = make(task), make(task)
    grown.add_class(ADDED, another_direction(task))
    shrunk.remove_class("class 2")
    for adapter, given, what in ((grown, larger, "added"), (shrunk, smaller, "removed")):
        stream = make_stream(given, 60, 8)
        sentence = f"A class {what} before the first sample left a trace"
        require_same(run(make(given), stream), run(adapter, stream), sentence, 1e-9)


def classes_may_come_and_go(make: Make) -> None:
    """Adding and removing classes in mid-stream keeps predictions sound and names right."""
    for dtype in ("float32", "float64"):
        task = make_task(dtype)
        larger = task.with_class(ADDED, another_direction(task))
        stream = make_stream(larger, 120, 8)
        adapter = make(task)
        run(adapter, stream[:30])
        adapter.add_class(ADDED, another_direction(task))
        require(adapter.task.class_names == larger.class_names, "Adding mixed up the names")
        for views in stream[30:60]:
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
