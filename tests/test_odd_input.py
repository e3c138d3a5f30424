"""Unusable input is refused as an InputError, in one sentence, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import crg
from crg.checks.base import on_host
from sentences import check_refused

torch = pytest.importorskip("torch")

HUGE = 10**400
FEATURES: dict[str, Callable[[], Any]] = {
    "sparse": lambda: torch.eye(4).to_sparse(),
    "meta": lambda: torch.empty(4, device="meta"),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "void": lambda: np.zeros(4, dtype="V8"),
    "structured": lambda: np.ones(4, dtype=[("a", "f4")]),
    "bytes": lambda: np.array([b"1"] * 4),
    "big-endian text": lambda: np.array(["1"] * 4, dtype=">U3"),
    "dates": lambda: np.array(["2020-01-01"] * 4, dtype="datetime64[D]"),
    "durations": lambda: np.array([1] * 4, dtype="timedelta64[D]"),
    "masked": lambda: np.ma.masked_array([1.0, 2, 3, 4], mask=[False, True, False, False]),
    "huge integers": lambda: [HUGE, 1, 1, 1],
    "huge for the task": lambda: np.full(4, 1e300),
    "huge numbers in a list": lambda: [1e300, 1.0, 1.0, 1.0],
    "complex": lambda: np.ones(4, dtype=complex),
    "nothing": lambda: None,
}


@pytest.mark.filterwarnings("ignore:.*(quantize|nested)")  # of torch, where these are made
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("kind", FEATURES)
def test_features_that_are_no_numbers_are_refused(kind: str, library: str) -> None:
    """Whatever the task is made of; the adapter stays as it was."""
    text = np.eye(2, 4, dtype="f4") if library == "numpy" else torch.eye(2, 4)
    adapter = crg.create("anchored", crg.Task(["a", "b"], text))
    check_refused((), adapter.step, FEATURES[kind]())
    assert adapter.n_steps == 0


def test_negative_strides_are_read() -> None:
    """A reversed NumPy array works with a task on torch."""
    adapter = crg.create("anchored", crg.Task(["a", "b"], torch.eye(2, 4)))
    assert adapter.step(np.array([0.0, 0.0, 0.1, 1.0])[::-1]).class_name == "a"


def test_other_arguments_are_refused() -> None:
    """Scales, methods, options and ids of the wrong kind."""
    text, adapter = np.eye(2, 4), crg.create("anchored", crg.Task(["a", "b"], np.eye(2, 4)))
    wrong: list[Callable[[], Any]] = [
        lambda: crg.Task(["a", "b"], text, HUGE),
        lambda: crg.create(["crg"], adapter.task),  # type: ignore[arg-type]
        lambda: crg.create("anchored", adapter.task, memory=HUGE),
        lambda: crg.create("anchored", adapter.task, ready=HUGE),
        lambda: adapter.step(np.ones(4), HUGE),
        lambda: adapter.step_many(np.ones((2, 4)), (str(i) for i in range(2))),  # type: ignore[arg-type]
    ]
    for each in wrong:
        check_refused((), each)
    assert adapter.n_steps == 0


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "packed": lambda images: images,
    "column by column": np.asfortranarray,
    "backwards": lambda images: images[::-1, ::-1],
    "with one that overflows": lambda images: np.concatenate([images, images[:1] * 1e30]),
    "with one that underflows": lambda images: np.concatenate([images, images[:1] * 1e-30]),
    "torch": lambda images: torch.from_numpy(images),
    "torch, column by column": lambda images: torch.from_numpy(images.T.copy()).T,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zero_shot_of_many_equals_its_steps_to_the_bit(dtype: str, layout: str) -> None:
    """A batch is nothing but its images, whatever lies beside them and however they lie."""
    rng = np.random.default_rng(0)
    images = LAYOUTS[layout](rng.normal(size=(20, 513)).astype(dtype))
    text = rng.normal(size=(37, 513)).astype(dtype)
    if layout.startswith("torch"):
        text = torch.from_numpy(text)
    task = crg.Task([str(k) for k in range(37)], text)
    many = crg.create("zero_shot", task).step_many(images)
    for image, answer in zip(images, many, strict=True):
        single = crg.create("zero_shot", task).step(image)
        assert on_host(single.logits).tobytes() == on_host(answer.logits).tobytes()
