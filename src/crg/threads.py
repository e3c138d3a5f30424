"""How many threads libraries may use, and how many processors this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# Variables that array libraries look at when they are imported.
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Products of NumPy use one thread meanwhile.

    The arrays of one image are so small that threads cost more in waiting for each other
    than they save, above all where something else needs the processors too; and sums that
    are split otherwise are rounded otherwise. Torch is left as it is.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


def processors() -> int:
    """How many of them this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """The variables of this process with other values meanwhile."""
    kept = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Torch uses one thread meanwhile, even if it is imported only then; never for this alone.

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
