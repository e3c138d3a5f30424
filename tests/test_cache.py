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
    """After any offers each queue holds its M lowest entropies, ties by arrival, seeds last."""
    cache = _filled(offers, size, seeded)
    for label in range(N_CLASSES):
        assert _shown(cache.entries(label)) == _sorted_and_sliced(offers, label, size, seeded)


@given(OFFERS, st.integers(1, 5), st.booleans())
def test_features_follow_their_entries(offers: Any, size: int, seeded: bool) -> None:
    """Each entry has the feature it came with, and the mean is the mean of the entries."""
    cache = _filled(offers, size, seeded)
    for label in range(N_CLASSES):
        entries = cache.entries(label)
        for entry in entries:
            expected = TEXT[label] if entry.sample_id is None else _feature(entry.sample_id)
            np.testing.assert_array_equal(entry.feature, expected)
        mean = np.mean([e.feature for e in entries], axis=0) if entries else np.zeros(WIDTH)
        np.testing.assert_allclose(cache.mean(label), mean, atol=1e-12)


@given(OFFERS, st.integers(1, 5), st.booleans())
def test_fill_counts_images_only(offers: Any, size: int, seeded: bool) -> None:
    """The fill is the fraction of places that hold an image; seeds do not count."""
    cache = _filled(offers, size, seeded)
    entries = [entry for label in range(N_CLASSES) for entry in cache.entries(label)]
    images = sum(entry.sample_id is not None for entry in entries)
    assert cache.fill == pytest.approx(images / (N_CLASSES * size))


@given(OFFERS, st.integers(1, 5), st.booleans())
def test_changes_tell_what_happened(offers: Any, size: int, seeded: bool) -> None:
    """Replaying what each offer reported gives the features that the cache holds."""
    cache = Cache(TEXT, size, seeded)
    replayed = [[TEXT[k]] if seeded else [] for k in range(N_CLASSES)]
    for number, (label, entropy) in enumerate(offers):
        change = cache.offer(label, _feature(number), entropy, number)
        if change is None:
            continue
        queue = replayed[change.label]
        if change.removed is not None:
            queue[:] = [row for row in queue if not np.array_equal(row, change.removed)]
        queue.append(change.added)
        assert change.count == len(queue)
    for label in range(N_CLASSES):
        held = {entry.feature.tobytes() for entry in cache.entries(label)}
        assert held == {row.tobytes() for row in replayed[label]}


def test_seed_goes_first() -> None:
    """In a full queue the seed makes way even for an image of the highest entropy."""
    cache = Cache(TEXT, 2, seeded=True)
    cache.offer(0, _feature(0), 0.1, "first")
    change = cache.offer(0, _feature(1), 5.0, "second")
    assert change is not None and change.removed is not None
    np.testing.assert_array_equal(change.removed, TEXT[0])
    assert [entry.sample_id for entry in cache.entries(0)] == ["first", "second"]


def test_ties_keep_what_is_there() -> None:
    """An offer of the same entropy as the worst entry of a full queue is discarded."""
    cache = Cache(TEXT, 1, seeded=False)
    cache.offer(0, _feature(0), 0.5, "first")
    assert cache.offer(0, _feature(1), 0.5, "second") is None
    assert [entry.sample_id for entry in cache.entries(0)] == ["first"]


def test_seeds_are_copies_and_entries_too() -> None:
    """Neither the caller's text features nor a handed-out entry reaches into the cache."""
    text = TEXT.copy()
    cache = Cache(text, 2, seeded=True)
    text[:] = 7.0
    cache.entries(0)[0].feature[:] = 9.0
    np.testing.assert_array_equal(cache.entries(0)[0].feature, TEXT[0])


@given(OFFERS, OFFERS, st.integers(1, 4), st.booleans())
def test_added_class_gets_a_queue_of_its_own(
    before: Any, after: Any, size: int, seeded: bool
) -> None:
    """A new class starts empty or with its seed, and the other queues are unchanged."""
    cache = _filled(before, size, seeded)
    cache.add_class(np.full(WIDTH, 0.5))
    fresh = cache.entries(N_CLASSES)
    assert [entry.sample_id for entry in fresh] == ([None] if seeded else [])
    for number, (label, entropy) in enumerate(after, start=len(before)):
        cache.offer(label, _feature(number), entropy, number)
    for label in range(N_CLASSES):
        expected = _sorted_and_sliced(before + after, label, size, seeded)
        assert _shown(cache.entries(label)) == expected


@given(OFFERS, st.integers(0, N_CLASSES - 1), st.integers(1, 4), st.booleans())
def test_removed_class_takes_its_queue_with_it(
    offers: Any, index: int, size: int, seeded: bool
) -> None:
    """The other queues move up unchanged, and the fill counts what is left."""
    cache = _filled(offers, size, seeded)
    cache.remove_class(index)
    left = [label for label in range(N_CLASSES) if label != index]
    for place, label in enumerate(left):
        shown = _shown(cache.entries(place))
        assert shown == _sorted_and_sliced(offers, label, size, seeded)
    images = sum(e.sample_id is not None for place in (0, 1) for e in cache.entries(place))
    assert cache.fill == pytest.approx(images / (2 * size))


@given(OFFERS, st.booleans())
def test_restored_cache_is_the_same_cache(offers: Any, seeded: bool) -> None:
    """A cache that took over another's state shows the same entries and takes the same offers."""
    original, restored = _filled(offers, 3, seeded), Cache(TEXT, 3, seeded)
    restored.restore(original.state())
    restored = _offered(restored, 5, start=len(offers))
    expected = _filled([*offers, *((0, 0.3) for _ in range(5))], 3, seeded)
    for label in range(N_CLASSES):
        assert _shown(restored.entries(label)) == _shown(expected.entries(label))
    assert restored.fill == expected.fill


def _offered(cache: Cache, n: int, start: int) -> Cache:
    for number in range(start, start + n):
        cache.offer(0, _feature(number), 0.3, number)
    return cache


def _filled(offers: list[tuple[int, float]], size: int, seeded: bool) -> Cache:
    cache = Cache(TEXT, size, seeded)
    for number, (label, entropy) in enumerate(offers):
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
