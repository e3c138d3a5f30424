"""A long run: whether later steps cost more time or memory than early ones."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import crg
from warm import Size, gaussian_stream

_WINDOW = 500  # steps around a mark that are summarised


def long_run(
    size: Size, n_images: int, marks: tuple[int, ...], method: str = "crg"
) -> list[dict[str, Any]]:
    """From the first image on; the stream repeats itself under fresh sample ids."""
    stream = gaussian_stream(n_images, size.n_classes, size.width)
    adapter = crg.create(method, stream.task)
    n_steps = marks[-1] + _WINDOW // 2
    times, changed = np.zeros(n_steps), np.zeros(n_steps, dtype=bool)
    memory = {}
    for i in range(n_steps):
        views = stream.image_features[i % n_images]
        begin = time.perf_counter_ns()
        prediction = adapter.step(views, i)
        times[i] = (time.perf_counter_ns() - begin) / 1e6
        changed[i] = prediction.diagnostics.cache_changed
        if i + 1 in marks:
            fill = prediction.diagnostics.cache_fill
            state = state_bytes(adapter._method.state())
            memory[i + 1] = {"rss": resident_bytes(), "state": state, "fill": fill}
    return [_window(mark, times, changed) | memory[mark] for mark in marks]


def _window(mark: int, times: Any, changed: Any) -> dict[str, Any]:
    half = min(_WINDOW // 2, mark // 2)
    place = slice(mark - half, mark + half)
    kept = times[place][~changed[place]]
    return {
        "step": mark,
        "median": float(np.median(times[place])),
        "median_kept": float(np.median(kept)) if len(kept) else None,
        "share_replaced": float(np.mean(changed[place])),
    }


def resident_bytes() -> int:
    """Memory of this process that is in use; where the system does not say, its peak."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def state_bytes(value: Any) -> int:
    """Bytes of the arrays and plain values of a method's state."""
    if isinstance(value, dict):
        return sum(state_bytes(each) for each in value.values())
    if isinstance(value, list | tuple):
        return sys.getsizeof(value) + sum(state_bytes(each) for each in value)
    return int(getattr(value, "nbytes", 0)) or sys.getsizeof(value)
