"""What is measured: everything that can take one step on one image of a scene."""

from __future__ import annotations

import contextlib
import copy
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import crg
from crg import parts
from crg.adapter import Adapter
from warm import Scene, warm_adapter

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from oracle import Entry, Oracle

CRG, PLAIN, TORCH, ORACLE = "CRG", "CRG without numba", "CRG on torch tensors", "plain form"
ANCHORED, TDA, DPE, ZERO_SHOT, LEAST = "anchored", "TDA", "DPE", "zero-shot", "the least"
ALL = (CRG, PLAIN, TORCH, ORACLE, ANCHORED, TDA, DPE, ZERO_SHOT, LEAST)


class Contender(ABC):
    """One row of the table."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def step(self, place: int) -> Any:
        """Take the image at ``place`` of the scene."""

    def running(self) -> AbstractContextManager[None]:
        """What must be so while it runs; entered outside the measured time."""
        return contextlib.nullcontext()

    def facts(self, answer: Any) -> tuple[bool, bool]:
        """Whether a cache changed in the step just taken, and whether the text evolved."""
        return False, False

    def logits(self, answer: Any) -> np.ndarray[Any, Any]:
        """The answer as logits (K,) in double precision."""
        return np.asarray(answer.logits, dtype=np.float64)


class Adapting(Contender):
    """A method of the package, through the adapter that people use."""

    def __init__(self, name: str, adapter: Adapter, views: Any) -> None:
        super().__init__(name)
        self.adapter, self.views = adapter, views
        self._n_updates = self._text_updates()

    def step(self, place: int) -> Any:
        """With all checks of what comes in."""
        return self.adapter.step(self.views[place % len(self.views)])

    def facts(self, answer: Any) -> tuple[bool, bool]:
        """As the method's diagnostics and its count of text updates say."""
        before, self._n_updates = self._n_updates, self._text_updates()
        return bool(answer.diagnostics.cache_changed), self._n_updates > before

    def _text_updates(self) -> int:
        text = getattr(self.adapter._method, "text", None)
        return 0 if text is None else int(text.n_updates)


class Uncompiled(Adapting):
    """CRG in plain NumPy, as with CRG_COMPILED=0."""

    def running(self) -> AbstractContextManager[None]:
        """Without kernels, in this process and for this contender only."""
        return without_kernels()


class Learning(Adapting):
    """The anchored Gaussian, which has no queues to fill and so begins at the first image."""

    def __init__(self, scene: Scene, n_warm: int) -> None:
        super().__init__(ANCHORED, crg.create("anchored", scene.task), scene.views)
        self.step(0)
        self.slowest = max(map(self._milliseconds, range(1, n_warm)), default=0.0)  # a refresh

    def _milliseconds(self, place: int) -> float:
        begin = time.perf_counter_ns()
        self.step(place)
        return (time.perf_counter_ns() - begin) / 1e6


class Plain(Contender):
    """The plain form of the tests, in single precision, with the pseudo-inverse."""

    def __init__(self, adapter: Adapter, scene: Scene) -> None:
        super().__init__(ORACLE)
        self.views = torch.from_numpy(scene.views)
        self.oracle = oracle_like(adapter)

    def step(self, place: int) -> Any:
        """Everything from scratch."""
        return self.oracle.step(self.views[place % len(self.views)])

    def logits(self, answer: Any) -> np.ndarray[Any, Any]:
        """They are the answer."""
        return np.asarray(answer.numpy(), dtype=np.float64)


class Least(Contender):
    """What cannot be avoided: P @ x (D, D), and three times C = A + B over (K, D), float32.

    P x is the least that a Gaussian with a shared covariance needs. Each of the three kinds
    of prototype is moved once, which reads it and its gradient and writes it. The three
    passes share their arrays, so that these stay in the processor's cache if they can.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(LEAST)
        k, d = scene.size.n_classes, scene.size.width
        rng = np.random.default_rng(0)
        self.x, self.precision = (
            rng.standard_normal(shape).astype(np.float32) for shape in (d, (d, d))
        )
        self.a, self.b = (rng.standard_normal((k, d)).astype(np.float32) for _ in range(2))
        self.c, self.y = np.empty_like(self.a), np.empty_like(self.x)

    def step(self, place: int) -> Any:
        """Four calls of NumPy."""
        np.dot(self.precision, self.x, out=self.y)
        for _ in range(3):
            np.add(self.a, self.b, out=self.c)


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """The package as if numba were not installed."""
    known = parts._kernels
    parts._kernels = _none
    try:
        yield
    finally:
        parts._kernels = known


def _none() -> None:
    return None


def contenders(scene: Scene, names: tuple[str, ...], n_warm: int) -> list[Contender]:
    """The named contenders, after ``n_warm`` real steps; all forms of CRG in one state."""
    adapter = warm_adapter("crg", scene)
    warmed = Adapting(CRG, adapter, scene.views)
    for place in range(n_warm):
        warmed.step(place)
    made = (_contender(name, adapter, scene, n_warm) for name in names if name != CRG)
    return [*([Adapting(CRG, adapter, scene.views)] if CRG in names else []), *made]


def _contender(name: str, adapter: Adapter, scene: Scene, n_warm: int) -> Contender:
    if name == ORACLE:
        return Plain(adapter, scene)
    if name == LEAST:
        return Least(scene)
    if name == PLAIN:
        return _uncompiled(adapter, scene)
    if name == TORCH:
        tensors = torch.from_numpy(scene.task.text_features.copy())
        task = crg.Task(scene.task.class_names, tensors, scene.task.logit_scale)
        return Adapting(TORCH, twin(adapter, task), torch.from_numpy(scene.views))
    if name == ANCHORED:
        return Learning(scene, n_warm)
    method = {TDA: "tda", DPE: "dpe", ZERO_SHOT: "zero_shot"}[name]
    return Adapting(name, warm_adapter(method, scene), scene.views)


def _uncompiled(adapter: Adapter, scene: Scene) -> Uncompiled:
    with without_kernels():
        return Uncompiled(PLAIN, twin(adapter, adapter.task), scene.views)


def twin(adapter: Adapter, task: crg.Task) -> Adapter:
    """Another adapter in the same state, on the arrays of ``task``."""
    other = crg.create(adapter.name, task)
    other._method.restore(copy.deepcopy(adapter._method.state()))
    other.n_steps = adapter.n_steps
    return other


def oracle_like(adapter: Adapter) -> Oracle:
    """The plain form in the state of a CRG adapter."""
    method: Any = adapter._method
    cache = method.cache

    def tensor(rows: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(rows))

    oracle = Oracle(tensor(adapter.task.text_features), adapter.task.logit_scale)
    oracle.invert = torch.linalg.pinv
    oracle.t, oracle.reference = tensor(method.text.rows), tensor(method.residual.reference)
    oracle.n_updates, oracle.n_offers = method.text.n_updates, cache.n_offers
    oracle.queues = [
        sorted(
            (
                Entry(float(cache.entropies[k, m]), int(cache.arrivals[k, m]), tensor(row))
                for m, row in enumerate(cache.features[k, : cache.counts[k]])
            ),
            key=lambda entry: (entry.entropy, entry.arrival),
        )
        for k in range(len(cache.counts))
    ]
    return oracle
