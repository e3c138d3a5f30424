"""What an adapter lets in and what it refuses, beyond the checks that every method passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import crg
from sentences import refused_in_one_sentence
from streams import clustered

METHODS = ("zero_shot", "tda", "dpe", "crg")


def small_task() -> tuple[crg.Task, Any]:
    """Five classes and thirty images."""
    text, stream = clustered(seed=21, n=30, n_classes=5, width=8)
    return crg.Task([f"class {k}" for k in range(5)], text, 20.0), stream


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_left_behind(method: str) -> None:
    """Tensors that carry a graph give logits without one, so that no graph is remembered."""
    torch = pytest.importorskip("torch")
    task, stream = small_task()
    tracked = torch.tensor(task.text_features, requires_grad=True)
    adapter = crg.create(method, crg.Task(task.class_names, tracked, 20.0))
    for views in stream:
        prediction = adapter.step(torch.tensor(views, requires_grad=True) * 1.0)
        assert not prediction.logits.requires_grad
    state = adapter._method.state().values()
    assert not any(getattr(value, "requires_grad", False) for value in state)


def test_sample_ids_can_be_saved(tmp_path: Path) -> None:
    """NumPy's integers become plain ones; what could not be saved is refused at once."""
    task, stream = small_task()
    adapter = crg.create("crg", task)
    adapter.step(stream[0], sample_id=np.int64(7))  # type: ignore[arg-type]
    for wrong in ((1, 2), 1.5, object()):
        with refused_in_one_sentence("sample id"):
            adapter.step(stream[1], sample_id=wrong)  # type: ignore[arg-type]
    assert adapter.n_steps == 1
    adapter.save(tmp_path / "state")
    cached = [
        entry.sample_id for queue in crg.load(tmp_path / "state").cache.values() for entry in queue
    ]
    assert 7 in cached


def test_a_flipped_byte_is_noticed(tmp_path: Path) -> None:
    """A state whose numbers were damaged is refused, even where the file still reads well."""
    task, stream = small_task()
    adapter = crg.create("crg", task)
    adapter.step_many(stream)
    path = tmp_path / "state"
    adapter.save(path)
    damaged = bytearray(path.read_bytes())
    damaged[-400] ^= 0x40
    path.write_bytes(damaged)
    with refused_in_one_sentence("damaged"):
        crg.load(path)


def test_a_state_without_its_checksum_is_refused(tmp_path: Path) -> None:
    """A header whose checksum was taken out does not get past the check."""
    task, _ = small_task()
    path = tmp_path / "state"
    crg.create("tda", task).save(path)
    with safe_open(path, framework="np") as file:
        header = json.loads(file.metadata()["crg"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    del header["sha256"]
    save_file(tensors, path, {"crg": json.dumps(header)})
    with refused_in_one_sentence("checksum"):
        crg.load(path)


def test_step_many_names_the_image_and_takes_none() -> None:
    """One bad image refuses the whole block, by its number, and changes nothing."""
    task, stream = small_task()
    adapter, untouched = crg.create("crg", task), crg.create("crg", task)
    broken = stream.copy()
    broken[2, 0, 3] = np.nan
    with refused_in_one_sentence("image 2 of the stream"):
        adapter.step_many(broken)
    with refused_in_one_sentence("30 images but 3 ids"):
        adapter.step_many(stream, [1, 2, 3])
    with refused_in_one_sentence("shape"):
        adapter.step_many(stream[0, 0])
    assert adapter.n_steps == 0
    assert adapter.step_many(stream[:0]) == []
    expected = untouched.step(stream[0]).logits
    np.testing.assert_array_equal(adapter.step(stream[0]).logits, expected)


def test_numbers_of_other_libraries_are_options() -> None:
    """A count that NumPy computed is as good as one that was typed."""
    task, _ = small_task()
    adapter = crg.create("crg", task, queue_size=np.int64(8), lambda1=np.float32(3))
    assert (adapter.config.queue_size, adapter.config.lambda1) == (8, 3.0)


@pytest.mark.parametrize("options", [{"queue_size": 10**9}, {"lambda2": 1e308}, {"xi1": -1.0}])
def test_values_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    """Options that would fill the memory or overflow the logits are out of range."""
    task, _ = small_task()
    with refused_in_one_sentence("must be"):
        crg.create("crg", task, **options)


def test_things_that_are_no_task_or_method_are_refused() -> None:
    """Mixed-up arguments get a sentence, not a traceback."""
    task, _ = small_task()
    with refused_in_one_sentence("task"):
        crg.create("crg", "features.npz")  # type: ignore[arg-type]
    with refused_in_one_sentence("no method"):
        crg.create(None, task)  # type: ignore[arg-type]
    with refused_in_one_sentence("list of names"):
        crg.Task("abc", np.eye(3))
    with refused_in_one_sentence("empty"):
        crg.Task(["a", ""], np.eye(2))
    with refused_in_one_sentence("shape"):
        crg.Task(["a", "b"], np.zeros((2, 0)))
    assert crg.Task(["a", "b"], np.eye(2), np.array([50.0])).logit_scale == 50.0  # type: ignore[arg-type]


def test_a_folder_is_no_state(tmp_path: Path) -> None:
    """Saving to a folder and loading from one say that it is a folder."""
    task, _ = small_task()
    with refused_in_one_sentence("folder"):
        crg.create("crg", task).save(tmp_path)
    with refused_in_one_sentence("folder"):
        crg.load(tmp_path)
