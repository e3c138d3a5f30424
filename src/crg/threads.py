"""How many threads a matrix product may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Products of NumPy use one thread meanwhile.

    The arrays of one picture are so small that threads cost more in waiting for each other
    than they save, above all where something else needs the processors too; and sums that
    are split otherwise are rounded otherwise. Torch is left as it is.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
