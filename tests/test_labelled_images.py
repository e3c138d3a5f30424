"""What methods that live on labelled images have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crg
from crg.resources import FEW, FewShot
from sentences import refused_in_one_sentence
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
def test_without_labelled_images_it_is_refused(method: str) -> None:
    """A task that has none is refused before any work, with the remedy."""
    with refused_in_one_sentence("labelled images", "few_features"):
        crg.create(method, crg.Task(NAMES, TEXT))


@pytest.mark.parametrize("method", METHODS)
def test_labelled_images_that_do_not_fit_are_refused(method: str) -> None:
    """Another width and labels of classes that are not there."""
    with refused_in_one_sentence("5 wide", "same model"):
        crg.create(method, task_with(ROWS[:, :5], LABELS))
    for wrong, said in ((3, "label 3"), (-1, "whole number from 0")):
        with refused_in_one_sentence(said):
            crg.create(method, task_with(ROWS, (*LABELS[:-1], wrong)))


@pytest.mark.parametrize("method", METHODS)
def test_bad_options_are_refused(method: str) -> None:
    """Shots are whole and not negative, the weight neither."""
    task = task_with(ROWS, LABELS)
    for options in ({"shots": -1}, {"shots": 1.5}, {"alpha": -0.1}):
        with refused_in_one_sentence(f"{next(iter(options))!r}"):
            crg.create(method, task, **options)


@pytest.mark.parametrize("method", METHODS)
def test_order_of_labelled_images_does_not_matter(method: str) -> None:
    """All shots in another order give the same logits up to rounding."""
    order = np.random.default_rng(1).permutation(len(LABELS))
    shuffled = task_with(ROWS[order], [LABELS[row] for row in order])
    expected = logits_of(crg.create(method, task_with(ROWS, LABELS)))
    np.testing.assert_allclose(logits_of(crg.create(method, shuffled)), expected, rtol=1e-10)


def test_labelled_images_are_used(adapter: crg.Adapter) -> None:
    """The logits are not those of zero-shot."""
    assert np.abs(logits_of(adapter) - zero_shot([0, 1, 2])).max() > 0.1


def test_images_leave_no_trace(adapter: crg.Adapter) -> None:
    """A stream that was seen before is answered alike, to the last bit."""
    first = logits_of(adapter)
    np.testing.assert_array_equal(logits_of(adapter), first)
    assert adapter.cache == {}


def test_a_removed_class_takes_its_images_along(adapter: crg.Adapter) -> None:
    """In mid-stream it counts as if neither the class nor its images had ever been there."""
    logits_of(adapter)
    adapter.remove_class("b")
    kept = [row for row, label in enumerate(LABELS) if label != 1]
    few = FewShot(ROWS[kept], tuple(LABELS[row] // 2 for row in kept))  # c is 1 now
    fresh = crg.create(adapter.name, crg.Task(("a", "c"), TEXT[[0, 2]], 20.0, {FEW: few}))
    np.testing.assert_array_equal(logits_of(adapter), logits_of(fresh))


def test_a_class_that_comes_back_has_no_images(adapter: crg.Adapter) -> None:
    """A class that was removed comes back without its images."""
    adapter.remove_class("c")
    adapter.add_class("c", TEXT[2])
    kept = [row for row, label in enumerate(LABELS) if label != 2]
    fresh = crg.create(adapter.name, task_with(ROWS[kept], [LABELS[row] for row in kept]))
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
