"""Where the time of one CRG step goes: timers around its parts, each without those inside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import crg.methods.crg as method
from crg.adapter import Adapter
from crg.parts import kernels, residual
from crg.parts.cache import Cache
from crg.parts.gaussian import Gaussian
from crg.parts.prototypes import VisualPrototypes
from warm import Size, make_scene, warm_adapter

REST = "rest"
# Who holds the function, its name, and the part that it belongs to, in the order of a step.
_PARTS: tuple[tuple[Any, str, str], ...] = (
    (Adapter, "_sample", "input check"),
    (method, "_confident_views", "select"),
    (Cache, "offer", "cache and prototypes"),
    (VisualPrototypes, "update", "cache and prototypes"),
    (Gaussian, "update", "Gaussian update"),
    (Gaussian, "project", "Gaussian projection"),
    (residual, "move", "around the kernels"),
    (kernels, "measure", "measure and weigh"),
    (kernels, "weigh", "measure and weigh"),
    (kernels, "move_text", "move text"),
    (kernels, "move_visual", "move positive and negative"),
    (kernels, "expand", "expansion"),
    (Gaussian, "logits", "second order and reference"),
    (method.CRG, "_evolve", "evolve"),
    (Adapter, "step", REST),
)
PARTS = tuple(dict.fromkeys(part for _, _, part in _PARTS))


class Clock:
    """Own time of each part: what runs inside another part is taken off it."""

    def __init__(self) -> None:
        self.own = dict.fromkeys(PARTS, 0.0)
        self._inner = [0.0]  # time of the parts inside each part that is running

    def around(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        """The function with a timer."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter() - begin
                self.own[part] += spent - self._inner.pop()
                self._inner[-1] += spent

        return timed

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """Timers around all parts while the block runs."""
        with ExitStack() as stack:
            for owner, name, part in _PARTS:
                timed = self.around(getattr(owner, name), part)
                stack.enter_context(patch.object(owner, name, timed))
            yield


def anatomy(size: Size, n_warm: int, n_steps: int) -> dict[str, float]:
    """Milliseconds per step of each part, a mean over warm steps."""
    scene = make_scene(size, n_warm + n_steps)
    adapter, clock = warm_adapter("crg", scene), Clock()
    for views in scene.views[:n_warm]:
        adapter.step(views)
    with clock.everywhere():
        for views in scene.views[n_warm:]:
            adapter.step(views)
    return {part: 1e3 * seconds / n_steps for part, seconds in clock.own.items()}
