"""GDA and Tip-Adapter on labelled images, by hand and by formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crg
from crg.parts.precision import on_grid
from crg.resources import FEW, FewShot
from streams import Floats, clustered

K, D, SCALE = 4, 10, 25.0


def images(seed: int = 0, each: int = 12) -> tuple[Floats, Floats, Floats, Any]:
    """Text (K, D), a stream (30, D), labelled images, ``each`` of every class, and labels."""
    text, views = clustered(seed=seed, n=30, n_classes=K, width=D)
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(K), each)
    shift = 0.5 * rng.normal(size=(K, D))
    rows = text[labels] + shift[labels] + 0.2 * rng.normal(size=(len(labels), D))
    return text, views[:, 0], rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


def create(text: Any, rows: Any, labels: Any, method: str = "gda", **options: Any) -> crg.Adapter:
    """The method with these labelled images."""
    few = {FEW: FewShot(rows, tuple(labels.tolist()))}
    task = crg.Task([f"c{k}" for k in range(len(text))], text, SCALE, few)
    return crg.create(method, task, **options)


def logits_of(adapter: crg.Adapter, stream: Any) -> Any:
    """All logits, (N, K)."""
    return np.stack([prediction.logits for prediction in adapter.step_many(stream)])


def discriminant(stream: Any, rows: Any, labels: Any, grid: bool = True, means: Any = None) -> Any:
    """f . P mu - 1/2 mu . P mu with P = D (S + r I)^-1, straight from the paper."""
    centred = [rows[labels == k] - rows[labels == k].mean(0) for k in sorted(set(labels))]
    scatter = sum(part.T @ part for part in centred)
    ridge = np.trace(scatter) / (len(rows) - 1)
    ridge = on_grid(ridge) if grid else ridge
    if means is None:
        means = np.stack([rows[labels == k].mean(0) for k in range(K)])
    weights = D * means @ np.linalg.inv(scatter + ridge * np.eye(D))
    return stream @ weights.T - 0.5 * np.sum(weights * means, axis=1)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
def test_logits_equal_the_formula(alpha: float) -> None:
    """logits = s f.t + alpha (w.f + b), with numbers of shots that differ between classes."""
    text, stream, rows, labels = images(seed=1)
    rows, labels = rows[5:40], labels[5:40]
    expected = SCALE * stream @ text.T + alpha * discriminant(stream, rows, labels)
    got = logits_of(create(text, rows, labels, alpha=alpha), stream)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def test_the_grid_of_the_ridge_moves_logits_by_one_per_cent_at_most() -> None:
    """With r = tr(S) / (n - 1) itself the Gaussian term is the same up to the grid's half step."""
    for seed in range(10):
        text, stream, rows, labels = images(seed)
        exact = discriminant(stream, rows, labels, grid=False)
        got = logits_of(create(text, rows, labels), stream) - SCALE * stream @ text.T
        assert np.abs(got - exact).max() <= 0.011 * np.abs(exact).max()


def test_one_shot_is_zero_shot() -> None:
    """A single image per class has no scatter, so that there is no Gaussian to read."""
    text, stream, rows, labels = images()
    got = logits_of(create(text, rows, labels, shots=1), stream)
    np.testing.assert_allclose(got, SCALE * stream @ text.T, rtol=1e-12)


def test_a_class_without_labelled_images_stands_at_the_mean_of_the_others() -> None:
    """Its Gaussian is centred on the mean of the labelled classes' means, with their precision."""
    text, stream, rows, labels = images(seed=2)
    known = labels != 2
    rows, labels = rows[known], labels[known]
    means = np.stack([rows[labels == k].mean(0) if k != 2 else np.zeros(D) for k in range(K)])
    means[2] = means[[0, 1, 3]].mean(0)
    expected = SCALE * stream @ text.T + discriminant(stream, rows, labels, means=means)
    np.testing.assert_allclose(logits_of(create(text, rows, labels), stream), expected, rtol=1e-9)


KEYS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
LABELS = (0, 1, 0, 2)


def by_hand(**options: Any) -> Any:
    """The logits of (0.6, 0.8, 0) beside three unit vectors as text, with four keys."""
    few = {FEW: FewShot(KEYS, LABELS)}
    adapter = crg.create("tip_adapter", crg.Task(list("abc"), np.eye(3), 10.0, few), **options)
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


def test_equals_the_product_with_one_hot_labels() -> None:
    """logits = s f W^T + alpha exp(-beta (1 - f F^T)) L; only the original view counts."""
    text, views = clustered(seed=3, n=90, n_classes=5, width=12, n_views=3)
    keys, stream = views[:60, 0], views[60:, 0]
    labels = np.random.default_rng(0).integers(4, size=60)  # the last class has none
    adapter = create(text, keys, labels, "tip_adapter", shots=0, alpha=2.0, beta=3.0)
    cached = np.exp(-3.0 * (1 - stream @ keys.T)) @ np.eye(5)[labels]
    expected = SCALE * stream @ text.T + 2.0 * cached
    np.testing.assert_allclose(logits_of(adapter, views[60:]), expected, rtol=1e-12)
