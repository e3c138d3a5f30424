"""Checks of arithmetic: the answer does not depend on the array library or on the precision."""

from __future__ import annotations

import importlib
from typing import Any

from crg.adapter import Adapter
from crg.checks.base import (
    Check,
    CheckSkipped,
    Logits,
    Make,
    on_host,
    require,
    require_close,
    run,
)
from crg.checks.fixtures import VIEW_COUNTS, another_direction, make_stream, make_task
from crg.types import Array, Task


def torch_agrees_with_numpy(make: Make) -> None:
    """Torch tensors in float64 give the logits of NumPy arrays to 1e-9."""
    torch = _torch()
    task = make_task()
    tensors = Task(task.class_names, torch.asarray(task.text_features), task.logit_scale)
    for views in VIEW_COUNTS:
        stream = make_stream(task, 80, views)
        adapter = make(tensors)
        first = adapter.step(torch.asarray(stream[0]))
        require(isinstance(first.logits, torch.Tensor), "A torch task gave other logits than torch")
        logits = [on_host(first.logits), *run(adapter, torch.asarray(stream[1:]))]
        require_close(
            run(make(task), stream), logits, 1e-9, "Torch and NumPy gave different logits"
        )


def torch_classes_may_come_and_go(make: Make) -> None:
    """Adding and removing classes does the same on torch tensors as on NumPy arrays."""
    torch = _torch()
    task = make_task()
    stream, row = make_stream(task, 60, 8), another_direction(task)
    tensors = Task(task.class_names, torch.asarray(task.text_features), task.logit_scale)
    expected = _run_with_changing_classes(make(task), stream, row)
    logits = _run_with_changing_classes(make(tensors), torch.asarray(stream), row)
    require_close(expected, logits, 1e-9, "Torch and NumPy differ once classes have changed")


def single_precision_stays_near_double(make: Make) -> None:
    """On clear images float32 gives the labels of float64, and nearly its probabilities."""
    single, double = make_task("float32"), make_task("float64")
    for views in VIEW_COUNTS:
        stream = make_stream(double, 80, views, noise=0.4)
        near, exact = make(single), make(double)
        for sample in stream:
            ours, theirs = near.step(sample), exact.step(sample)
            require(ours.label == theirs.label, "Single precision gave another label")
            gap = float(abs(on_host(ours.probs) - on_host(theirs.probs)).max())
            require(gap < 0.01, f"Single precision moved a probability by {gap:.3g}")


def _run_with_changing_classes(adapter: Adapter, stream: Array, row: Array) -> Logits:
    logits = run(adapter, stream[:20])
    adapter.add_class("one more", row)
    logits += run(adapter, stream[20:40])
    adapter.remove_class("class 1")
    return logits + run(adapter, stream[40:])


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise CheckSkipped("torch is not installed: install crg-tta[torch] to check it.") from None


CHECKS: list[Check] = [
    torch_agrees_with_numpy,
    torch_classes_may_come_and_go,
    single_precision_stays_near_double,
]
