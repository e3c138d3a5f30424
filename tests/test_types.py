"""Task and the checks on raw vectors."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from crg import Task
from crg.types import like, unit_rows
from sentences import check_refused

TEXT = np.eye(3, 4)
NAMES = ("cat", "dog", "owl")


@pytest.mark.parametrize(
    ("names", "text", "scale", "words"),
    [
        (NAMES, np.zeros((3, 4)), 100.0, "all zeros"),
        (NAMES, np.full((3, 4), np.nan), 100.0, "Row 0"),
        (NAMES, np.where(np.eye(3, 4) == 1, np.inf, 1.0), 100.0, "infinite"),
        (NAMES, np.ones(4), 100.0, "one row per class"),
        (NAMES[:2], TEXT, 100.0, "2 class names but 3"),
        (NAMES[:1], TEXT[:1], 100.0, "at least two"),
        (("cat", "dog", "cat"), TEXT, 100.0, "'cat' occurs more than once"),
        (NAMES, TEXT, 1e8, "at most 1,000,000"),
        *((NAMES, TEXT, scale, "logit_scale") for scale in (0.0, -1.0, np.nan, np.inf, "x")),
        ("abc", TEXT, 100.0, "list of names"),
        (3, TEXT, 100.0, "list of names"),
        (("cat", "", "owl"), TEXT, 100.0, "empty"),
        (NAMES, np.zeros((3, 0)), 100.0, "shape"),
        (NAMES, [["a", "b"]] * 3, 100.0, "numbers"),
        (NAMES, [[1.0], [1.0, 2.0], [1.0]], 100.0, "equal width"),
        (NAMES, TEXT * 1j, 100.0, "real numbers"),
    ],
)
def test_bad_tasks_are_refused(names: Any, text: Any, scale: Any, words: str) -> None:
    """A task that makes no sense is refused in one sentence that says what is wrong."""
    check_refused(words, Task, names, text, scale)


def test_a_task_cannot_be_changed() -> None:
    """A task is frozen and does not share the caller's array."""
    text = TEXT.copy()
    task = Task(NAMES, text, np.array([50.0]))  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.logit_scale = 1.0  # type: ignore[misc]
    text[:] = 5.0
    np.testing.assert_array_equal(task.text_features, TEXT)
    assert task.logit_scale == 50.0


@pytest.mark.parametrize(
    ("given_dtype", "kept"),
    [("float16", "float32"), ("int64", "float32"), ("float32", "float32"), ("float64", "float64")],
)
def test_precision_of_the_task(given_dtype: str, kept: str) -> None:
    """Single and double precision stay; half precision, integers and lists become single."""
    text = TEXT.astype(given_dtype)
    assert Task(NAMES, text).text_features.dtype == kept
    assert Task(NAMES, text.tolist()).text_features.dtype == "float32"


def test_class_is_added_at_the_end_and_removed_by_name() -> None:
    """Adding appends a unit row, removing takes out the right one, and the original stays."""
    task = Task(NAMES, TEXT)
    larger = task.with_class("bat", [0.0, 0.0, 0.0, 3.0])
    assert larger.class_names == (*NAMES, "bat")
    np.testing.assert_allclose(larger.text_features[-1], [0, 0, 0, 1])
    smaller = larger.without_class("dog")
    assert smaller.class_names == ("cat", "owl", "bat")
    np.testing.assert_array_equal(smaller.text_features, larger.text_features[[0, 2, 3]])
    assert task.class_names == NAMES and larger.logit_scale == task.logit_scale


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda task: task.with_class("dog", np.ones(4)), "more than once"),
        (lambda task: task.with_class("bat", np.ones(5)), "width 4"),
        (lambda task: task.with_class("bat", np.ones((1, 4))), "one vector"),
        (lambda task: task.with_class("bat", np.zeros(4)), "zeros"),
        (lambda task: task.without_class("bat"), "no class 'bat'"),
        (lambda task: task.without_class("owl").without_class("cat"), "at least two"),
        (lambda task: task.index_of("bat"), "the classes are cat, dog, owl"),
    ],
)
def test_bad_changes_are_refused(change: Any, words: str) -> None:
    """A change of classes that makes no sense is refused in one sentence."""
    check_refused(words, change, Task(NAMES, TEXT))


ROWS = arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 5)),
    elements=st.floats(-1e3, 1e3).filter(lambda x: abs(x) > 1e-3),
)


@given(ROWS, st.sampled_from(["float32", "float64"]))
def test_unit_rows_are_unit_and_stay_so(rows: Any, dtype: str) -> None:
    """Rows come out of unit length, unit rows to the last bit, and bad rows are named."""
    unit = unit_rows(rows.astype(dtype), "views")
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1.0, rtol=1e-5)
    assert unit_rows(unit, "views").tobytes() == unit.tobytes()
    for size in (1e-300, 1e-200, 1e200, 1e300):  # the square of which leaves the range
        np.testing.assert_allclose(unit_rows(np.array([[3.0, 4.0]]) * size, "x"), [[0.6, 0.8]])
    for bad in (np.nan, np.inf, -np.inf):
        check_refused(("Row 1", "views"), unit_rows, np.array([[1.0, 1.0], [1.0, bad]]), "views")


def test_like_moves_between_libraries() -> None:
    """An array takes the library and precision of the reference, in both directions."""
    torch = pytest.importorskip("torch")
    host, tensor = np.ones(3, dtype=np.float32), torch.ones(3, dtype=torch.float64)
    assert like(host, tensor).dtype == torch.float64
    moved = like(tensor, host)
    assert isinstance(moved, np.ndarray) and moved.dtype == np.float32
    assert like(host, host) is host
