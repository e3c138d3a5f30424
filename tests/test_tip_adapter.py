"""Tip-Adapter by hand and against the product of affinities and one-hot labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import crg
from crg.resources import FEW, FewShot
from streams import clustered

NAMES = ["a", "b", "c"]
KEYS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
LABELS = (0, 1, 0, 2)


def by_hand(**options: Any) -> Any:
    """The logits of (0.6, 0.8, 0) beside three unit vectors as text, with four keys."""
    few = {FEW: FewShot(KEYS, LABELS)}
    adapter = crg.create("tip_adapter", crg.Task(NAMES, np.eye(3), 10.0, few), **options)
    return adapter.step(np.array([0.6, 0.8, 0.0])).logits


def test_three_classes_by_hand() -> None:
    """10 f.t plus exp(-5.5 (1 - cosine)), cosines being 0.6 and 1 for a, 0.8 for b, 0 for c."""
    expected = [6.0 + 0.11080315836 + 1.0, 8.0 + 0.33287108370, 0.0 + 0.00408677144]
    np.testing.assert_allclose(by_hand(), expected, rtol=0, atol=1e-10)


def test_shots_are_added_up_and_the_first_ones_count() -> None:
    """With one shot the second key of a is left out; with more than there are, none is."""
    one = by_hand(shots=1)
    np.testing.assert_allclose(one, by_hand() - np.array([1.0, 0.0, 0.0]), atol=1e-12)
    np.testing.assert_array_equal(by_hand(shots=2), by_hand())
    np.testing.assert_array_equal(by_hand(shots=1000), by_hand(shots=0))


def test_alpha_weighs_and_beta_sharpens() -> None:
    """Alpha 0 leaves zero-shot, beta 0 counts the keys of each class."""
    np.testing.assert_allclose(by_hand(alpha=0), [6.0, 8.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(by_hand(beta=0, alpha=3), [6.0 + 6.0, 8.0 + 3.0, 3.0], atol=1e-12)
    sharp = by_hand(beta=11.0)[1] - 8.0
    assert sharp == pytest.approx(math.exp(-11.0 * 0.2), abs=1e-12)


def test_equals_the_product_with_one_hot_labels() -> None:
    """logits = s f W^T + alpha exp(-beta (1 - f F^T)) L, for uneven numbers of shots."""
    text, images = clustered(seed=3, n=90, n_classes=5, width=12)
    keys, stream = images[:60, 0], images[60:, 0]
    labels = np.random.default_rng(0).integers(4, size=60)  # the last class has none
    task = crg.Task([str(k) for k in range(5)], text, 30.0, {FEW: FewShot(keys, tuple(labels))})
    adapter = crg.create("tip_adapter", task, shots=0, alpha=2.0, beta=3.0)
    expected = (
        30.0 * stream @ text.T + 2.0 * np.exp(-3.0 * (1 - stream @ keys.T)) @ np.eye(5)[labels]
    )
    got = [prediction.logits for prediction in adapter.step_many(stream)]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_the_original_view_is_predicted() -> None:
    """Further views change nothing."""
    text, stream = clustered(seed=4, n=20, n_classes=3, width=8, n_views=6)
    few = {FEW: FewShot(stream[:9, 0], tuple(k % 3 for k in range(9)))}
    adapter = crg.create("tip_adapter", crg.Task(NAMES, text, 20.0, few))
    for views in stream[9:]:
        np.testing.assert_array_equal(adapter.step(views).logits, adapter.step(views[0]).logits)
