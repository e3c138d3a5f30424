"""What a check is, and the few claims that checks make."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from crg.adapter import Adapter
from crg.types import Array, Task

Logits: TypeAlias = list[np.ndarray[Any, Any]]


class CheckFailed(AssertionError):  # noqa: N818 - the name says what happened
    """A method fails a check; the sentence says how."""


class CheckSkipped(Exception):  # noqa: N818 - being skipped is no error
    """A check cannot be run here; the sentence says why."""


class Make(Protocol):
    """How checks get a new adapter; a method that needs more than a task is given it here."""

    def __call__(self, task: Task, /, **options: Any) -> Adapter:
        """A new adapter of the method under check."""
        ...


Check: TypeAlias = Callable[[Make], None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check; a check that passes is neither failed nor skipped."""

    check: str
    failed: str = ""
    skipped: str = ""


def require(holds: bool, sentence: str) -> None:
    """Fail the check with ``sentence`` unless the claim holds."""
    if not holds:
        raise CheckFailed(sentence)


def run(adapter: Adapter, stream: Iterable[Array]) -> Logits:
    """The logits of each sample, on the host."""
    return [on_host(adapter.step(views).logits) for views in stream]


def on_host(array: Array) -> np.ndarray[Any, Any]:
    """A copy as a NumPy array, whatever library it came from."""
    host = array if isinstance(array, np.ndarray) else array.detach().cpu().numpy()
    return np.array(host)


def require_same_bits(left: Logits, right: Logits, sentence: str) -> None:
    """The two runs agree to the last bit."""
    require(len(left) == len(right), sentence)
    for step, (one, other) in enumerate(zip(left, right, strict=True)):
        same = one.shape == other.shape and one.tobytes() == other.tobytes()
        require(same, f"{sentence} (first at step {step})")


def require_close(left: Logits, right: Logits, tolerance: float, sentence: str) -> None:
    """The two runs agree up to ``tolerance``, relative to the largest logit of each step."""
    require(len(left) == len(right), sentence)
    for step, (one, other) in enumerate(zip(left, right, strict=True)):
        require(one.shape == other.shape, f"{sentence} (shapes differ at step {step})")
        size = max(1.0, float(np.max(np.abs(one))))
        gap = float(np.max(np.abs(one.astype(np.float64) - other)))
        require(gap <= tolerance * size, f"{sentence} (off by {gap:.3g} at step {step})")
