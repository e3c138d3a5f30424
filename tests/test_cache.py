"""The cache against the plainest thing that could be right: sort and slice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crg.parts.cache import Cache, Entry

N_CLASSES, WIDTH = 3, 4
TEXT = np.eye(N_CLASSES, WIDTH)

# Few different entropies, so that ties are common.
OFFERS = st.lists(
    st.tuples(st.integers(0, N_CLASSES - 1), st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0])),
    max_size=40,
)


@given(OFFERS, st.integers(1, 5), st.booleans())
def test_cache_holds_the_lowest_entropies(offers: Any, size: int, seeded: bool) -> None:
    """After any offers each queue holds its M lowest entropies, ties by arrival, seeds last.

    Each entry has the feature it came with, and fill and mean are those of the entries.
    """
    cache, images = _filled(offers, size, seeded), 0
    for label in range(N_CLASSES):
        entries = cache.entries(label)
        assert _shown(entries) == _sorted_and_sliced(offers, label, size, seeded)
        for entry in entries:
            expected = TEXT[label] if entry.sample_id is None else _feature(entry.sample_id)
            np.testing.assert_array_equal(entry.feature, expected)
        mean = np.mean([e.feature for e in entries], axis=0) if entries else np.zeros(WIDTH)
        np.testing.assert_allclose(cache.mean(label), mean, atol=1e-12)
        images += sum(entry.sample_id is not None for entry in entries)
    assert cache.fill == pytest.approx(images / (N_CLASSES * size))


def test_seeds_are_copies_and_entries_too() -> None:
    """Neither the caller's text features nor a handed-out entry reaches into the cache."""
    text = TEXT.copy()
    cache = Cache(text, 2, seeded=True)
    text[:] = 7.0
    cache.entries(0)[0].feature[:] = 9.0
    np.testing.assert_array_equal(cache.entries(0)[0].feature, TEXT[0])


@given(OFFERS, OFFERS, st.integers(0, N_CLASSES - 1), st.integers(1, 4), st.booleans())
def test_classes_come_and_go_with_their_queues(
    before: Any, after: Any, index: int, size: int, seeded: bool
) -> None:
    """A new class starts empty or with its seed; the other queues are unchanged, or move up."""
    cache = _filled(before, size, seeded)
    cache.add_class(np.full(WIDTH, 0.5))
    fresh = cache.entries(N_CLASSES)
    assert [entry.sample_id for entry in fresh] == ([None] if seeded else [])
    assert all((entry.feature == 0.5).all() for entry in fresh)
    for number, (label, entropy) in enumerate(after, start=len(before)):
        cache.offer(label, _feature(number), entropy, number)
    cache.remove_class(index)
    shown = [_shown(cache.entries(place)) for place in range(N_CLASSES)]
    left = [label for label in range(N_CLASSES) if label != index]
    expected = [_sorted_and_sliced(before + after, label, size, seeded) for label in left]
    assert shown == [*expected, _shown(fresh)]
    images = sum(name is not None for queue in shown for _, name in queue)
    assert cache.fill == pytest.approx(images / (N_CLASSES * size))


def _filled(offers: list[tuple[int, float]], size: int, seeded: bool) -> Cache:
    """A cache after these offers; another one took over its state half-way."""
    cache = Cache(TEXT, size, seeded)
    for number, (label, entropy) in enumerate(offers):
        if number == len(offers) // 2:
            state, cache = cache.state(), Cache(TEXT, size, seeded)
            cache.restore(state)
        cache.offer(label, _feature(number), entropy, number)
    return cache


def _feature(number: int | str) -> Any:
    row = np.random.default_rng(int(number) + 1).standard_normal(WIDTH)
    return row / np.linalg.norm(row)


def _sorted_and_sliced(
    offers: list[tuple[int, float]], label: int, size: int, seeded: bool
) -> list[tuple[float, int | None]]:
    mine = [(entropy, number) for number, (k, entropy) in enumerate(offers) if k == label]
    seed: list[tuple[float, int | None]] = [(math.inf, None)] if seeded else []
    return [*sorted(mine), *seed][:size]


def _shown(entries: tuple[Entry, ...]) -> list[tuple[float, Any]]:
    return [(entry.entropy, entry.sample_id) for entry in entries]
