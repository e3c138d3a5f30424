"""Checks of options, input and answers.

Options are documented; answers are finite, the same for the same input, and depend neither on the
array library nor, on clear images, on the precision. Good input is not modified, and bad input is
refused and changes nothing.
"""

from __future__ import annotations

import dataclasses
import importlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from crg.adapter import Adapter
from crg.checks.base import (
    VIEW_COUNTS,
    CheckFailed,
    CheckSkipped,
    Floats,
    Logits,
    Make,
    another_direction,
    make_stream,
    make_task,
    mixed_stream,
    on_host,
    require,
    require_same,
    run,
    run_with_changing_classes,
)
from crg.types import InputError, Prediction, Task


def options_are_documented(make: Make) -> None:
    """The Config is a frozen dataclass and every option has one line of help."""
    config = make(make_task()).config
    require(dataclasses.is_dataclass(config), "Config is not a dataclass")
    require(type(config).__dataclass_params__.frozen, "Config is not frozen")
    for field in dataclasses.fields(config):
        text = str(field.metadata.get("help", "")).strip()
        require(bool(text), f"Option {field.name!r} has no help: declare it with crg.option")
        require("\n" not in text, f"The help of option {field.name!r} has more than one line")


def options_may_be_given_as_text(make: Make) -> None:
    """The default options, written out as text as on a command line, build the same Config."""
    task = make_task()
    config = make(task).config
    as_text = {name: str(value) for name, value in dataclasses.asdict(config).items()}
    require(make(task, **as_text).config == config, "Options given as text built another Config")


def unknown_options_are_refused(make: Make) -> None:
    """An option that the method does not have raises InputError."""
    try:
        make(make_task(), no_such_option=1)
    except InputError:
        return
    raise CheckFailed("An unknown option was accepted in silence")


def predictions_are_consistent(make: Make) -> None:
    """Logits (K,) in the task's dtype, probabilities that sum to one, label and name that agree."""
    for dtype in ("float32", "float64"):
        task = make_task(dtype)
        for views in VIEW_COUNTS:
            adapter = make(task)
            for sample in make_stream(task, 60, views):
                require_sound(adapter.step(sample), task)
            require(adapter.n_steps == 60, f"After 60 steps n_steps is {adapter.n_steps}")


def adversarial_streams_give_finite_logits(make: Make) -> None:
    """Whatever finite samples come, in whatever task, the logits are finite."""
    for name, task, stream in _adversarial():
        adapters = [make(task)]
        fields = dataclasses.fields(adapters[0].config)  # queues with a single slot, by their names
        sizes = [field for field in fields if field.name.endswith("_size")]
        if small := {each.name: 1 for each in sizes if each.metadata.get("at_least") == 1}:
            adapters.append(make(task, **small))
        for adapter in adapters:
            for views in stream:
                require_sound(adapter.step(views), task, f" (stream: {name})")


def require_sound(prediction: Prediction, task: Task, where: str = "") -> None:
    """One prediction holds together and fits the task."""
    logits, probs = on_host(prediction.logits), on_host(prediction.probs)
    shapes = {logits.shape, probs.shape}
    require(shapes == {(task.n_classes,)}, f"Logits or probs have shape {logits.shape}{where}")
    dtype = on_host(task.text_features).dtype
    require(logits.dtype == dtype, f"Logits are {logits.dtype}, not {dtype} as the task is{where}")
    require(bool(np.all(np.isfinite(logits))), f"Logits are not finite: {logits}{where}")
    total, rounding = float(probs.astype(np.float64).sum()), 16 * float(np.finfo(probs.dtype).eps)
    require(abs(total - 1.0) <= rounding * task.n_classes, f"Probs sum to {total}{where}")
    require(bool(np.all(probs >= 0)), f"A probability is negative{where}")
    label = prediction.label
    require(isinstance(label, int), f"The label is a {type(label).__name__}, not an int{where}")
    require(logits[label] == logits.max(), f"Label {label} has not the largest logit{where}")
    name = task.class_names[label]
    require(prediction.class_name == name, f"Label {label} is not {prediction.class_name!r}{where}")


def _adversarial() -> Iterator[tuple[str, Task, Floats]]:
    n = 24  # images: a queue of one class is full after half of them, one of one slot at once
    for dtype in ("float32", "float64"):
        task = make_task(dtype, logit_scale=100.0)
        text, odd = np.asarray(task.text_features), another_direction(task)
        yield "one vector over and over", task, np.tile(odd, (n, 8, 1))
        yield "the text features themselves", task, np.tile(text, (5, 1))[:, None, :]
        yield "one class only", task, np.repeat(text[None, :1], n, axis=0)
        yield "antipodal views", task, np.stack([np.stack([odd, -odd])] * n)
        yield "opposite of every text feature", task, np.tile(-text, (5, 1))[:, None, :]
        yield "pure noise", task, make_stream(task, n, 8, noise=1e6)
        extremes = np.array([np.finfo(dtype).tiny, np.finfo(dtype).max / 4], dtype=dtype)
        sizes = extremes[:, None, None]
        yield "subnormal and enormous views", task, make_stream(task, 2) * sizes
        nearly = Task(task.class_names, text[:1] + 1e-4 * text, 100.0)
        yield "nearly equal classes", nearly, make_stream(nearly, n, 8)
        equal = Task(task.class_names, np.tile(text[:1], (5, 1)), 100.0)
        yield "equal classes", equal, make_stream(task, n, 8)
        for scale in (1e-3, 1e6):
            steep = make_task(dtype, logit_scale=scale)
            yield f"logit scale {scale}", steep, make_stream(steep, n, 8)
        for n_classes, width in ((2, 16), (2, 1), (2, 2), (30, 3)):
            small = make_task(dtype, n_classes=n_classes, width=width)
            yield f"K = {n_classes}, D = {width}", small, make_stream(small, n, 8)


def same_stream_gives_same_logits(make: Make) -> None:
    """The same stream twice gives the same logits to the last bit."""
    task = make_task()
    stream = mixed_stream(task, 100)
    first, second = run(make(task), stream), run(make(task), stream)
    require_same(first, second, "The same stream gave other logits the second time")


def adapters_are_independent(make: Make) -> None:
    """Two adapters that take turns answer as each would alone."""
    task = make_task()
    streams = [make_stream(task, 60, 8, seed=seed) for seed in (1, 2)]
    alone = [run(make(task), stream) for stream in streams]
    one, other = make(task), make(task)
    both = [(one.step(a).logits, other.step(b).logits) for a, b in zip(*streams, strict=True)]
    for place in (0, 1):
        together = [np.array(pair[place]) for pair in both]
        require_same(alone[place], together, "Another adapter's samples changed the logits")


def global_random_state_is_left_alone(make: Make) -> None:
    """The global generators of random and NumPy are neither read nor moved."""
    states = random.getstate(), np.random.get_state()
    try:
        left, right = _run_after_seeding(make, 1), _run_after_seeding(make, 2)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    require_same(left, right, "The logits depend on the global random generators")


def reset_returns_to_the_start(make: Make) -> None:
    """After reset an adapter answers as a new one, to the last bit."""
    task = make_task()
    used, stream = make(task), mixed_stream(task, 60)
    run(used, mixed_stream(task, 80, seed=3))
    used.reset()
    require(used.n_steps == 0, f"After reset n_steps is {used.n_steps}, not 0")
    require_same(run(make(task), stream), run(used, stream), "Reset left something behind")


def _run_after_seeding(make: Make, seed: int) -> Logits:
    task = make_task()
    random.seed(seed)
    np.random.seed(seed)
    logits = run(make(task), make_stream(task, 40, 8))
    drawn = random.random(), np.random.random_sample()
    expected = random.Random(seed).random(), np.random.RandomState(seed).random_sample()
    require(drawn == expected, "The method moved a global random generator: give it its own")
    return logits


def torch_agrees_with_numpy(make: Make) -> None:
    """Torch tensors in float64 give the logits of NumPy arrays to 1e-9, also of other classes."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        raise CheckSkipped("torch is not installed: the extra torch has it.") from None
    task = make_task()
    tensors = Task(task.class_names, torch.asarray(task.text_features), task.logit_scale)
    adapter, stream = make(tensors), mixed_stream(task, 90)
    first = adapter.step(torch.asarray(stream[0]))
    require(isinstance(first.logits, torch.Tensor), "A torch task gave other logits than torch")
    adapter.reset()
    logits = run_with_changing_classes(adapter, [torch.asarray(views) for views in stream])
    expected = run_with_changing_classes(make(task), stream)
    require_same(expected, logits, "Torch and NumPy gave different logits", 1e-9)


def single_precision_stays_near_double(make: Make) -> None:
    """On clear images float32 gives the labels of float64, and nearly its probabilities."""
    single, double = make_task("float32"), make_task("float64")
    near, exact = make(single), make(double)
    for sample in mixed_stream(double, 80, noise=0.4):
        ours, theirs = near.step(sample), exact.step(sample)
        require(ours.label == theirs.label, "Single precision gave another label")
        gap = float(abs(on_host(ours.probs) - on_host(theirs.probs)).max())
        require(gap < 0.01, f"Single precision moved a probability by {gap:.3g}")


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
    adapter = make(make_task())
    steps = map(adapter.step, make_stream(adapter.task, 60, 8))
    both = [(step.logits, on_host(step.logits)) for step in steps]
    copies, now = [copy for _, copy in both], [on_host(logits) for logits, _ in both]
    require_same(copies, now, "A later step modified an earlier prediction")


def form_of_views_does_not_matter(make: Make) -> None:
    """Neither length nor half precision nor a vector in place of a row changes an answer."""
    task, single = make_task(), make_task("float32")
    stream, lengths = mixed_stream(task, 60), np.random.default_rng(4)
    longer = [views * lengths.uniform(0.01, 100.0, size=(len(views), 1)) for views in stream]
    unit, scaled = run(make(task), stream), run(make(task), longer)
    require_same(unit, scaled, "Longer or shorter views gave other logits", 1e-6)
    half = [views.astype(np.float16) for views in mixed_stream(single, 40)]
    wide = [views.astype(np.float32) for views in half]
    require_same(run(make(single), half), run(make(single), wide), "Half precision went wrong")
    rows = make_stream(task, 60)
    as_rows, as_vectors = run(make(task), rows), run(make(task), rows[:, 0, :])
    require_same(as_rows, as_vectors, "A vector and a single row gave different logits")


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
        require_same(left, right, "step_many gave other logits than step", 1e-9)
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
        require_same(run(undisturbed, part), run(adapter, part), sentence)


def refused_class_changes_change_nothing(make: Make) -> None:
    """After a bad add_class or remove_class an adapter continues as if it had not been asked."""
    for task in (make_task(), make_task(n_classes=2)):  # neither of two classes can be removed
        stream, row = make_stream(task, 40, 8), another_direction(task)
        adapter, undisturbed = make(task), make(task)
        run(adapter, stream[:20])
        run(undisturbed, stream[:20])
        for what, change in _bad_changes(adapter, row).items():
            _require_refused(adapter, change, what)
        require(adapter.task.class_names == task.class_names, "A refused change altered names")
        left, right = run(undisturbed, stream[20:]), run(adapter, stream[20:])
        require_same(left, right, "A refused change of classes changed the logits")


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
    alone = adapter.task.n_classes == 2
    return {
        "A class name that exists": lambda: adapter.add_class("class 1", row),
        "A text feature of zeros": lambda: adapter.add_class("new", 0 * row),
        "A text feature of NaN": lambda: adapter.add_class("new", np.nan * row),
        "A text feature of another width": lambda: adapter.add_class("new", row[1:]),
        "An unknown class": lambda: adapter.remove_class("no such class"),
        **({"One of two classes": lambda: adapter.remove_class("class 0")} if alone else {}),
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
