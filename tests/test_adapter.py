"""An adapter: what it refuses; a step happens wholly or not at all, one thread at a time."""

from __future__ import annotations

import copy
import itertools
import pickle
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import crg
from crg.parts.gaussian import Gaussian
from crg.parts.state import Stateful
from sentences import check_refused
from synthetic import clustered

METHODS = ("anchored", "crg", "dpe", "tda")
INSIDE = ("/crg/methods/", "/crg/parts/", "/crg/ops.py", "/crg/adapter.py")


def fed(method: str, n: int = 25) -> tuple[crg.Adapter, Any]:
    """An adapter after ``n`` images, and those that follow."""
    text, stream = clustered(seed=2, n=n + 10, n_classes=6, width=24, n_views=3)
    adapter = crg.create(method, crg.Task([f"class {k}" for k in range(6)], text, 20.0))
    adapter.decide("auto", 0.9)
    for views in stream[:n]:
        adapter.step(views)
    return adapter, stream[n:]


def content(part: Stateful) -> dict[str, Any]:
    """Everything that the next step depends on, comparable."""
    return {
        name: value.tobytes() if isinstance(value, np.ndarray) else copy.deepcopy(value)
        for name, value in part.state().items()
    }


class Interrupt:
    """Raises ``error`` when line number ``place`` of the package's own steps is reached."""

    def __init__(self, place: int, error: BaseException) -> None:
        self.place, self.error, self.seen = place, error, 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not any(each in frame.f_code.co_filename for each in INSIDE):
            return None
        if event == "line":
            self.seen += 1
            if self.seen == self.place:
                sys.settrace(None)
                raise self.error
        return self


def interrupted(adapter: crg.Adapter, views: Any, interrupt: Interrupt) -> bool:
    """Whether a step was cut short."""
    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        adapter.step(views)
    except (MemoryError, KeyboardInterrupt):
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_at_any_line_leaves_the_state_as_it_was(method: str) -> None:
    """The state is that of before, and the image is then answered as if nothing had happened."""
    adapter, left = fed(method)
    twin = copy.deepcopy(adapter)
    twin.step(left[0])
    n_lines = Interrupt(-1, MemoryError())
    interrupted(copy.deepcopy(adapter), left[0], n_lines)
    assert n_lines.seen > 30
    before, judged = content(adapter._method), content(adapter.decisions)
    early = range(1, n_lines.seen - 20, max(1, n_lines.seen // 60))
    for place in (*early, *range(n_lines.seen - 20, n_lines.seen + 1)):
        error = MemoryError() if place % 2 else KeyboardInterrupt()
        assert interrupted(adapter, left[0], Interrupt(place, error))
        if adapter.n_steps == 26:  # only the answer was still to be returned
            break
        assert content(adapter._method) == before and adapter.n_steps == 25
        assert content(adapter.decisions) == judged
    assert place > n_lines.seen - 5
    assert content(adapter._method) == content(twin._method)
    assert adapter.step(left[1]).logits.tobytes() == twin.step(left[1]).logits.tobytes()


def failing_once(adapter: crg.Adapter, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Steps of the method fail at these calls, counted from now."""
    original, count = type(adapter._method).step, itertools.count()

    def step(self: Any, sample: crg.Sample) -> crg.Prediction:
        answer = original(self, sample)
        if next(count) in numbers:
            raise MemoryError
        return answer

    monkeypatch.setattr(type(adapter._method), "step", step)


def test_views_may_be_written_over_after_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure the samples are learnt again as given, even if the caller changed them."""
    adapter, left = fed("crg")
    unit = left / np.linalg.norm(left, axis=-1, keepdims=True)
    place = np.array(unit[0], adapter.task.text_features.dtype)  # is taken as it is
    adapter.step(place)
    before = content(adapter._method)
    place[:] = unit[1]
    failing_once(adapter, monkeypatch, 0)
    with pytest.raises(MemoryError):
        adapter.step(place)
    assert content(adapter._method) == before


@pytest.mark.parametrize("then", ["answer", "save", "step", "pickle"])
def test_a_failure_while_going_back_is_mended_by_the_next_use(
    then: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Memory may be short for more than one step."""
    adapter, left = fed("anchored")
    twin = copy.deepcopy(adapter)
    failing_once(adapter, monkeypatch, 0, 1)
    with pytest.raises(MemoryError):
        adapter.step(left[0])
    uses: dict[str, Callable[[crg.Adapter], Any]] = {
        "answer": lambda each: each.answer(left[1]),
        "save": lambda each: each.save(tmp_path / "state"),
        "step": lambda each: each.step(left[1]),
        "pickle": pickle.dumps,
    }
    for each in (adapter, twin):
        uses[then](each)
    assert content(adapter._method) == content(twin._method)
    assert adapter.n_steps == twin.n_steps


@pytest.mark.parametrize("change", ["correct", "add_class", "remove_class", "reset"])
def test_other_changes_happen_wholly_too(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that fails at its end leaves classes and state as they were."""
    adapter, left = fed("anchored")
    before, names = content(adapter._method), adapter.task.class_names
    arguments: dict[str, tuple[Any, ...]] = {
        "correct": (left[0], "class 1"),
        "add_class": ("new", left[0, 0]),
        "remove_class": ("class 2",),
        "reset": (),
    }
    kind, original = type(adapter._method), getattr(type(adapter._method), change)

    def failing(self: Any, *given: Any) -> None:
        original(self, *given)
        raise MemoryError

    monkeypatch.setattr(kind, change, failing)
    with pytest.raises(MemoryError):
        getattr(adapter, change)(*arguments[change])
    assert content(adapter._method) == before
    assert adapter.task.class_names == names and adapter.n_steps == 25


class Counting(crg.Method):
    """Counts in two places, with a signal in between for images named ``signal``."""

    name = "counting_for_signals"
    paper = "a test"

    @dataclass(frozen=True)
    class Config:
        """No options."""

    def reset(self) -> None:
        self.first = self.second = 0

    def step(self, sample: crg.Sample) -> crg.Prediction:
        self.first += 1
        if sample.id == "signal":
            signal.raise_signal(signal.SIGINT)
        self.second += 1
        logits = self.task.text_features @ sample.views[0, :]
        return self._predicted(logits, crg.Diagnostics(0.0, 0))


def test_a_signal_takes_effect_at_once_and_nothing_is_learnt() -> None:
    """Ctrl-C ends a step or a batch where it is, and none of its images are learnt."""
    adapter = crg.Adapter(Counting(crg.Task(["a", "b"], np.eye(2, 4)), Counting.Config()))
    adapter.step(np.ones(4))
    for take in (lambda: adapter.step(np.ones(4), "signal"),
                 lambda: adapter.step_many(np.ones((3, 4)), ["x", "signal", "y"])):  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            take()
        assert adapter.n_steps == 1 and adapter._method.state() == {"first": 1, "second": 1}


def test_two_threads_take_turns() -> None:
    """Steps of two threads do not mix: what is derived from the cache still fits it."""
    text, stream = clustered(seed=2, n=400, n_classes=6, width=24)
    adapter = crg.create("crg", crg.Task([f"class {k}" for k in range(6)], text, 20.0))
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(adapter.step, stream))
    finally:
        sys.setswitchinterval(switch)
    assert adapter.n_steps == 400
    inner: Any = adapter._method
    ours, theirs = (g.precision.solve(np.eye(24)) for g in (inner.gaussian, Gaussian(inner.cache)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


TEXT, STREAM = clustered(seed=21, n=30, n_classes=5, width=8)
TASK = crg.Task([f"class {k}" for k in range(5)], TEXT, 20.0)


@pytest.mark.parametrize("method", ["zero_shot", "tda", "dpe", "crg"])
def test_gradients_are_left_behind(method: str) -> None:
    """Tensors that carry a graph give logits without one, so that no graph is remembered."""
    torch = pytest.importorskip("torch")
    tracked = torch.tensor(TASK.text_features, requires_grad=True)
    adapter = crg.create(method, crg.Task(TASK.class_names, tracked, 20.0))
    for views in STREAM:
        prediction = adapter.step(torch.tensor(views, requires_grad=True) * 1.0)
        assert not prediction.logits.requires_grad
    state = adapter._method.state().values()
    assert not any(getattr(value, "requires_grad", False) for value in state)


def test_sample_ids_can_be_saved(tmp_path: Path) -> None:
    """NumPy's integers become plain ones; what could not be saved is refused at once."""
    adapter = crg.create("crg", TASK)
    adapter.step(STREAM[0], sample_id=np.int64(7))  # type: ignore[arg-type]
    for wrong in ((1, 2), 1.5, object()):
        check_refused("sample id", adapter.step, STREAM[1], sample_id=wrong)
    assert adapter.n_steps == 1
    adapter.save(tmp_path / "state")
    cached = [
        entry.sample_id for queue in crg.load(tmp_path / "state").cache.values() for entry in queue
    ]
    assert 7 in cached


def test_step_many_names_the_image_and_takes_none() -> None:
    """One bad image refuses the whole block, by its number, and changes nothing."""
    adapter, untouched = crg.create("crg", TASK), crg.create("crg", TASK)
    broken = STREAM.copy()
    broken[2, 0, 3] = np.nan
    check_refused("image 3 of the stream", adapter.step_many, broken)
    check_refused("30 images but 3 ids", adapter.step_many, STREAM, [1, 2, 3])
    check_refused("shape", adapter.step_many, STREAM[0, 0])
    assert adapter.n_steps == 0
    check_refused("image 1 is not remembered", adapter.correct, 1, TASK.class_names[0])
    assert adapter.step_many(STREAM[:0]) == []
    expected = untouched.step(STREAM[0]).logits
    np.testing.assert_array_equal(adapter.step(STREAM[0]).logits, expected)
    check_refused("'never seen' is not remembered", adapter.correct, "never seen", "class 0")
    adapter.correct(1, TASK.class_names[0])  # images are counted from 1


def test_values_that_cannot_work_are_refused() -> None:
    """Options that fill the memory or overflow, and mixed-up arguments, get a sentence each."""
    adapter = crg.create("crg", TASK, queue_size=np.int64(8), lambda1=np.float32(3))
    assert (adapter.config.queue_size, adapter.config.lambda1) == (8, 3.0)
    for name, value in (("queue_size", 10**9), ("lambda2", 1e308), ("xi1", -1.0)):
        check_refused("must be", crg.create, "crg", TASK, **{name: value})
    check_refused("task", crg.create, "crg", "features.npz")
    check_refused("no method", crg.create, None, TASK)
    check_refused(("resources are a Task", "leave them out"), crg.load, "state", TASK)
