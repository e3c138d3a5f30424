"""Stream orders and the made stream."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crg.streams.orders import as_stored, shuffled
from crg.streams.synthetic import gaussian_stream


@given(n=st.integers(0, 200), seed=st.integers(0, 2**32))
def test_a_shuffle_is_a_permutation_that_the_seed_decides(n: int, seed: int) -> None:
    """Every image comes once, and the same seed gives the same order."""
    order = shuffled(n, seed)
    assert sorted(order.tolist()) == list(range(n))
    assert order.tolist() == shuffled(n, seed).tolist()


def test_the_order_of_a_seed_never_changes() -> None:
    """Results of today can be repeated tomorrow: the order of seed 0 is fixed."""
    assert shuffled(8, 0).tolist() == [2, 4, 3, 6, 5, 0, 1, 7]


def test_seeds_differ_and_the_global_generator_is_not_used() -> None:
    """Two seeds give two orders, whatever numpy.random was seeded with."""
    np.random.seed(1)
    first = shuffled(50, 0).tolist()
    np.random.seed(2)
    assert shuffled(50, 0).tolist() == first != shuffled(50, 1).tolist()


def test_as_stored_is_the_order_of_the_file() -> None:
    """Nothing moves."""
    assert as_stored(4).tolist() == [0, 1, 2, 3]


def test_the_made_stream_looks_like_clip() -> None:
    """Cosines and zero-shot accuracy lie where CLIP's lie, with room for adaptation."""
    stream = gaussian_stream()
    assert stream.labels is not None
    cosines = stream.image_features @ stream.task.text_features.T
    own = np.take_along_axis(cosines, stream.labels[:, None], axis=1)
    assert 0.25 < own.mean() < 0.32
    assert 0.17 < cosines.mean() < 0.23
    assert 0.6 < (cosines.argmax(axis=1) == stream.labels).mean() < 0.7
    assert len(stream) == 1500
    assert stream.task.logit_scale == 100.0


def test_the_made_stream_is_decided_by_its_seed() -> None:
    """The same seed gives the same stream to the last bit, another seed another one."""
    first, again, other = (gaussian_stream(n=20, seed=s).image_features for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_views_start_with_the_image_itself() -> None:
    """View 0 is the image; the others are near it and of unit length."""
    flat, many = gaussian_stream(n=5), gaussian_stream(n=5, n_views=4)
    assert many.image_features.shape == (5, 4, 64)
    np.testing.assert_allclose(many.image_features[:, 0], flat.image_features, atol=1e-6)
    cosines = np.einsum("nvd,nd->nv", many.image_features, flat.image_features)
    assert cosines.min() > 0.8
    assert cosines[:, 1:].max() < 0.9999
