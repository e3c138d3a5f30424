"""Generated views are for the methods that ask for them."""

from __future__ import annotations

import numpy as np

import crg
from crg import Features, Task


def test_other_methods_do_not_see_generated_views() -> None:
    """A method that does not ask for generated views answers as if they were not there."""
    rng = np.random.default_rng(0)
    task = Task(["a", "b", "c"], rng.standard_normal((3, 8)))
    views, labels = rng.standard_normal((40, 6, 8)), np.arange(40) % 3
    ordinary = crg.evaluate.run(Features(views[:, :4], task, labels), "tda")
    with_more = crg.evaluate.run(Features(views, task, labels, generated=2), "tda")
    all_seen = crg.evaluate.run(Features(views, task, labels), "tda")
    assert ordinary.metrics["nll"] == with_more.metrics["nll"] != all_seen.metrics["nll"]
