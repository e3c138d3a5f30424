"""Corrections: a person says what an image shows, and methods that learn take it in."""

from __future__ import annotations

import numpy as np
import pytest

import crg
from crg.parts.cache import Cache
from synthetic import clustered

QUEUES = ("tda", "dpe", "crg")


def fed(method: str, n: int = 60) -> tuple[crg.Adapter, np.ndarray]:
    """An adapter after ``n`` images, and the images."""
    text, stream = clustered(seed=2, n=n, n_classes=6, width=24)
    adapter = crg.create(method, crg.Task([f"class {k}" for k in range(6)], text, 20.0))
    for views in stream:
        adapter.step(views)
    return adapter, stream


@pytest.mark.parametrize("method", QUEUES)
def test_a_corrected_image_moves_to_the_right_queue(method: str) -> None:
    """It stands at entropy 0 in that one alone, which makes room for more if it is full."""
    adapter, stream = fed(method)
    home, entry = next((k, e) for k, q in adapter.cache.items() for e in q if e.sample_id)
    target = next(name for name in adapter.cache if name != home)
    adapter.correct(entry.sample_id, target)
    where = {k: e.entropy for k, q in adapter.cache.items() for e in q
             if e.sample_id == entry.sample_id}  # fmt: skip
    assert where == {target: 0.0}
    for number, views in enumerate(stream[:20]):
        adapter.correct(views, target, sample_id=f"corrected {number}")
    queue = adapter.cache[target]
    assert all(entry.entropy == 0.0 for entry in queue)
    assert "corrected 19" in {entry.sample_id for entry in queue}


@pytest.mark.parametrize("method", [*QUEUES, "anchored"])
def test_an_image_that_is_corrected_is_answered_so_afterwards(method: str) -> None:
    """Ten images of one class, corrected, move the answer for one like them."""
    adapter, stream = fed(method)
    image = stream[-1, 0]
    before = adapter.step(image)
    target = (before.label + 1) % 6
    rng = np.random.default_rng(0)
    for number in range(10):
        near = image + 0.02 * rng.normal(size=24)
        adapter.correct(near, f"class {target}", sample_id=f"near {number}")
    after = adapter.step(image)
    assert after.probs[target] > before.probs[target]


def test_a_seeded_queue_that_loses_its_only_image_gets_its_seed_back() -> None:
    """CRG never has an empty queue."""
    text = np.eye(3, 4)
    cache = Cache(text, 1, seeded=True)
    cache.offer(0, np.array([0.0, 0.0, 0.0, 1.0]), 0.5, "image")
    cache.forget("image", text)
    assert cache.counts.tolist() == [1, 1, 1] and cache.fill == 0.0
    assert cache.entries(0)[0].feature.tolist() == [1.0, 0.0, 0.0, 0.0]
