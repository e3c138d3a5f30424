"""Threads and signals: how many threads libraries may use, and when signals take effect."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

# Variables that array libraries look at when they are imported.
_LIBRARIES = ("OPENBLAS_NUM", "OMP_NUM", "MKL_NUM", "NUMBA_NUM", "VECLIB_MAXIMUM")
ONE_THREAD = {f"{library}_THREADS": "1" for library in _LIBRARIES}

_blas_lock = threading.Lock()
_blas_users = 0  # that are inside one_blas_thread
_blas_limits: list[Any] = []
_libraries = functools.cache(ThreadpoolController)  # to look for NumPy's takes milliseconds


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit NumPy's products to one thread within the ``with`` block.

    The arrays of one image are so small that threads cost more in waiting than they save, and
    sums that are split otherwise are rounded otherwise. The limit belongs to the whole process:
    the first to come sets it, and the last to leave takes it away.
    """
    global _blas_users
    with _blas_lock:
        if _blas_users == 0:
            _blas_limits.append(_libraries().limit(limits=1, user_api="blas"))
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                _blas_limits.pop().restore_original_limits()


class HeldSignals:
    """SIGINT and SIGTERM wait until the end of the ``with`` block, in the main thread.

    Hold them for a moment, around what must not be cut in two. Other threads get no signals.
    """

    def __enter__(self) -> None:
        self._waiting: list[int] = []
        self._handlers: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if handler is not None:  # one that is not Python's cannot be put back
                    self._handlers[number] = handler
                    signal.signal(number, lambda held, _: self._waiting.append(held))

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for number in self._waiting:
            signal.raise_signal(number)


def processors() -> int:
    """The number of processors that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process within the ``with`` block."""
    kept = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]
        os.environ.update({name: value for name, value in kept.items() if value is not None})


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Limit torch to one thread within the ``with`` block, also if it is imported only there.

    With as many threads as there are processors its sums would depend on the machine.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # numba does not like to see its own change
    torch = sys.modules.get("torch")
    count = torch.get_num_threads() if torch else 0
    if torch:
        torch.set_num_threads(1)
    try:
        with environment({name: ONE_THREAD[name] for name in names}):
            yield
    finally:
        if torch:
            torch.set_num_threads(count)
