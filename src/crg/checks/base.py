"""The form of a check, the claims that checks share, and the small seeded streams they run on.

The logit scale is 20 where rounding must not matter: at 100 so narrow a task is nearly
always certain, and entropies of almost zero are put in order by their rounding errors.

Only the classes that every task of the checks begins with have labelled images, so that a
class that is added later has none, as for a user.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from crg.adapter import Adapter
from crg.resources import FEW, GENERATED, TEXT_ENCODER, FewShot
from crg.types import Array, Task, like

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
    line: int = 0  # where it failed in the method's own file, or else where its class begins


def require(holds: bool, sentence: str) -> None:
    """Fail the check with ``sentence`` unless the claim holds."""
    if not holds:
        raise CheckFailed(sentence)


def run(adapter: Adapter, stream: Iterable[Array]) -> Logits:
    """The logits of each sample, on the host."""
    return [on_host(adapter.step(views).logits) for views in stream]


def run_with_changing_classes(adapter: Adapter, stream: Sequence[Array]) -> Logits:
    """The logits of a stream, where a class is added after a third and one removed after two."""
    third = len(stream) // 3
    logits = run(adapter, stream[:third])
    adapter.add_class(ADDED, another_direction(adapter.task))
    logits += run(adapter, stream[third : 2 * third])
    adapter.remove_class("class 1")
    return logits + run(adapter, stream[2 * third :])


def on_host(array: Array) -> np.ndarray[Any, Any]:
    """A copy as a NumPy array, whatever library it came from."""
    host = array if isinstance(array, np.ndarray) else array.detach().cpu().numpy()
    return np.array(host)


def require_same(left: Logits, right: Logits, sentence: str, tolerance: float = 0.0) -> None:
    """The two runs agree to the last bit, or up to ``tolerance`` times the largest logit."""
    require(len(left) == len(right), sentence)
    for step, (one, other) in enumerate(zip(left, right, strict=True)):
        require(one.shape == other.shape, f"{sentence} (shapes differ at step {step})")
        size = max(1.0, float(np.max(np.abs(one))))
        gap = float(np.max(np.abs(one.astype(np.float64) - other)))
        same = gap <= tolerance * size if tolerance else one.tobytes() == other.tobytes()
        require(same, f"{sentence} (off by {gap:.3g} at step {step})")


Floats = np.ndarray[Any, Any]

VIEW_COUNTS = (1, 8)
ADDED = "one more"  # the class that checks add, in the direction of ``another_direction``


def make_task(
    dtype: str = "float64", *, n_classes: int = 5, width: int = 16, logit_scale: float = 20.0
) -> Task:
    """Classes with random directions as text features."""
    text = np.random.default_rng(0).standard_normal((n_classes, width))
    names = [f"class {k}" for k in range(n_classes)]
    return Task(tuple(names), _unit(text).astype(dtype), logit_scale)


def make_stream(task: Task, n: int, views: int = 1, *, noise: float = 1.5, seed: int = 1) -> Floats:
    """Noisy images of every class in turn, (N, V, D): from clear to hardly recognisable."""
    rng = np.random.default_rng(seed)
    text = np.asarray(task.text_features)  # (K, D)
    labels = np.arange(n) % task.n_classes
    strength = noise * rng.uniform(0.1, 1.0, size=(n, 1)) / np.sqrt(task.width)
    images = text[labels] + strength * rng.standard_normal((n, task.width))
    jitter = 0.5 * strength[:, None] * rng.standard_normal((n, views, task.width))
    jitter[:, 0] = 0.0  # row 0 is the original
    return _unit(images[:, None] + jitter).astype(text.dtype)


def mixed_stream(task: Task, n: int, *, noise: float = 1.5, seed: int = 1) -> list[Floats]:
    """Images of one view and of several in turn, as ``make_stream`` makes them."""
    stream = make_stream(task, n, max(VIEW_COUNTS), noise=noise, seed=seed)
    return [views[: VIEW_COUNTS[place % 2]] for place, views in enumerate(stream)]


def another_direction(task: Task, seed: int = 9) -> Floats:
    """A text feature that the task does not have yet, (D,)."""
    row = np.random.default_rng(seed).standard_normal(task.width)
    return _unit(row).astype(np.asarray(task.text_features).dtype)


def _unit(rows: Floats) -> Floats:
    unit: Floats = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return unit


_SHOTS = 3
_CONTEXT_WIDTH = 6
_GENERATED = 3  # of eight views; where a check gives one view, it is the original
_LABELLED = frozenset(f"class {k}" for k in range(5))


def furnished(task: Task, needs: Iterable[str]) -> Task:
    """The task with what is needed and not there yet."""
    makers: dict[str, Callable[[Task], Any]] = {
        FEW: _few, TEXT_ENCODER: _text_encoder, GENERATED: lambda _: _GENERATED
    }  # fmt: skip
    missing = [need for need in needs if need in makers and need not in task.resources]
    return task.with_resources({need: makers[need](task) for need in missing})


class WordHashes:
    """A text encoder that knows the classes of the checks' tasks, and bends them by the context.

    Any other text has a random direction that depends on the text alone.
    """

    name = "word-hashes"

    def __init__(self, task: Task) -> None:
        self.width = task.width
        rows = np.asarray(task.text_features, dtype=np.float64)
        self.known = dict(zip(task.class_names, rows, strict=True))
        self.known.setdefault(ADDED, np.asarray(another_direction(task), dtype=np.float64))
        self._made: dict[tuple[str, ...], tuple[Any, Any]] = {}

    def context_of(self, words: str) -> Any:
        """One vector per word, (M, E)."""
        import torch

        rows = [_direction(f"context {word}", _CONTEXT_WIDTH) for word in words.split()]
        return torch.from_numpy(np.reshape(rows, (-1, _CONTEXT_WIDTH)))

    def encode(self, context: Any, endings: Sequence[str]) -> Any:
        """normalize(e_k + tanh(mean of the context times a matrix that depends on k))."""
        key = tuple(endings)
        ends, matrices = self._made.get(key) or self._made.setdefault(key, self._constants(key))
        bent = ends + (context.mean(dim=-2).to(ends.dtype) @ matrices).reshape(ends.shape).tanh()
        return bent / bent.norm(dim=-1, keepdim=True)

    def _constants(self, endings: Sequence[str]) -> tuple[Any, Any]:
        """All e_k, (K, D), and the matrices of all k side by side, (E, K D)."""
        import torch

        names, size = [end.rstrip(".") for end in endings], _CONTEXT_WIDTH * self.width
        ends = np.stack([self.known.get(name, _direction(name, self.width)) for name in names])
        bends = np.stack([_direction(f"bend {end}", size) for end in endings])
        matrices = bends.reshape(-1, _CONTEXT_WIDTH, self.width).transpose(1, 0, 2)
        return torch.tensor(ends), torch.tensor(matrices.reshape(_CONTEXT_WIDTH, -1))


def _few(task: Task) -> FewShot:
    pairs = [(k, name) for k, name in enumerate(task.class_names) if name in _LABELLED]
    text = np.asarray(task.text_features)[[k for k, _ in pairs]]
    shots = [f"{name} {shot}" for _, name in pairs for shot in range(_SHOTS)]
    noise = [_direction(shot, task.width) for shot in shots]
    rows = np.repeat(text, _SHOTS, axis=0) + 0.3 * np.stack(noise)
    labels = np.repeat([k for k, _ in pairs], _SHOTS)
    return FewShot(like(rows, task.text_features), tuple(labels.tolist()))


def _text_encoder(task: Task) -> WordHashes:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise CheckSkipped("The method tunes prompts and torch is not installed.") from None
    return WordHashes(task)


@functools.cache
def _direction(text: str, width: int) -> np.ndarray[Any, Any]:
    """A unit vector that depends on the text alone."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    seed = int.from_bytes(digest[:8], "little")
    return _unit(np.random.default_rng(seed).standard_normal(width))
