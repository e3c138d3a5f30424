"""What an adapter lets in and what it refuses, beyond the checks that every method passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crg
from sentences import check_refused
from streams import clustered

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
