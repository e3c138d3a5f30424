"""What methods that live on labelled images have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crg
from crg.resources import FEW, FewShot
from sentences import check_refused
from streams import clustered

METHODS = ("tip_adapter", "gda")
NAMES = ("a", "b", "c")
TEXT, VIEWS = clustered(seed=5, n=40, n_classes=3, width=8)
STREAM, ROWS = VIEWS[:22, 0], VIEWS[22:, 0]
LABELS = tuple(int(k) for k in np.argmax(ROWS @ TEXT.T, axis=1))


def task_with(rows: Any, labels: Any) -> crg.Task:
    """Three classes with these labelled images."""
    return crg.Task(NAMES, TEXT, 20.0, {FEW: FewShot(rows, tuple(labels))})


def logits_of(adapter: crg.Adapter, stream: Any = STREAM) -> Any:
    """All logits, (N, K)."""
    return np.stack([np.asarray(p.logits) for p in adapter.step_many(stream)])


def zero_shot(rows: list[int]) -> Any:
    """The zero-shot logits of some classes."""
    return 20.0 * STREAM @ TEXT[rows].T


@pytest.fixture(params=METHODS)
def adapter(request: pytest.FixtureRequest) -> crg.Adapter:
    """Each method at its defaults."""
    return crg.create(request.param, task_with(ROWS, LABELS))


@pytest.mark.parametrize("method", METHODS)
def test_bad_input_is_refused(method: str) -> None:
    """No labelled images, ones that do not fit the task, and options out of range."""
    task = task_with(ROWS, LABELS)
    check_refused(("labelled images", "few_features"), crg.create, method, crg.Task(NAMES, TEXT))
    check_refused(("5 wide", "same model"), crg.create, method, task_with(ROWS[:, :5], LABELS))
    check_refused("label 3", crg.create, method, task_with(ROWS, (*LABELS[:-1], 3)))
    check_refused("whole number from 0", task_with, ROWS, (*LABELS[:-1], -1))
    for name, value in (("shots", -1), ("shots", 1.5), ("alpha", -0.1)):
        check_refused(repr(name), crg.create, method, task, **{name: value})


@pytest.mark.parametrize("method", METHODS)
def test_order_of_labelled_images_does_not_matter(method: str) -> None:
    """All shots in another order give the same logits up to rounding."""
    order = np.random.default_rng(1).permutation(len(LABELS))
    shuffled = task_with(ROWS[order], [LABELS[row] for row in order])
    expected = logits_of(crg.create(method, task_with(ROWS, LABELS)))
    np.testing.assert_allclose(logits_of(crg.create(method, shuffled)), expected, rtol=1e-10)


def test_labelled_images_are_used_and_others_leave_no_trace(adapter: crg.Adapter) -> None:
    """The logits are not those of zero-shot, and the same to the last bit when seen again."""
    first = logits_of(adapter)
    assert np.abs(first - zero_shot([0, 1, 2])).max() > 0.1
    np.testing.assert_array_equal(logits_of(adapter), first)
    assert adapter.cache == {}


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_removed_class_takes_its_images_along(adapter: crg.Adapter, comes_back: bool) -> None:
    """In mid-stream it counts as if its images, and the class if it stays away, had never been."""
    logits_of(adapter)
    adapter.remove_class("b")
    kept = [row for row, label in enumerate(LABELS) if label != 1]
    few = {FEW: FewShot(ROWS[kept], tuple(LABELS[row] // 2 for row in kept))}  # c is 1 now
    if comes_back:
        adapter.add_class("b", TEXT[1])
    names, text = ("a", "c", "b")[: 2 + comes_back], TEXT[[0, 2, 1][: 2 + comes_back]]
    fresh = crg.create(adapter.name, crg.Task(names, text, 20.0, few))
    np.testing.assert_array_equal(logits_of(adapter), logits_of(fresh))


def test_an_added_class_leaves_the_others_alone(adapter: crg.Adapter) -> None:
    """The logits of classes that have images do not feel one that has none."""
    before = logits_of(adapter)
    adapter.add_class("d", -TEXT[0])
    np.testing.assert_allclose(logits_of(adapter)[:, :3], before, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_without_any_image_left_it_is_zero_shot(method: str) -> None:
    """When the only class with labelled images goes, the others are classified by text."""
    adapter = crg.create(method, task_with(ROWS[:4], (0, 0, 0, 0)))
    adapter.remove_class("a")
    np.testing.assert_allclose(logits_of(adapter), zero_shot([1, 2]), rtol=1e-12)


def test_a_saved_adapter_has_its_images_again(adapter: crg.Adapter, tmp_path: Path) -> None:
    """The labelled images are in the state file, those of removed classes are not."""
    adapter.remove_class("a")
    logits_of(adapter)
    adapter.save(tmp_path / "state")
    again = crg.load(tmp_path / "state")
    assert set(again.task.resources[FEW].labels) == {0, 1}
    np.testing.assert_array_equal(logits_of(again), logits_of(adapter))


@pytest.mark.parametrize("method", METHODS)
def test_images_are_taken_in_the_precision_of_the_task(method: str) -> None:
    """Labelled images in double precision beside text in single give single logits."""
    few = {FEW: FewShot(ROWS, LABELS)}
    single = crg.create(method, crg.Task(NAMES, TEXT.astype(np.float32), 20.0, few))
    assert single.step(STREAM[0]).logits.dtype == np.float32
    double = logits_of(crg.create(method, task_with(ROWS, LABELS)))
    np.testing.assert_allclose(logits_of(single), double, rtol=0, atol=1e-3)
