"""Metrics against worked examples and scikit-learn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference

from crg import metrics


@given(seed=st.integers(0, 1000), n=st.integers(1, 50), k=st.integers(2, 6))
def test_accuracy_agrees_with_scikit_learn(seed: int, n: int, k: int) -> None:
    """Accuracy, overall and per class, is what scikit-learn computes."""
    rng = np.random.default_rng(seed)
    predicted, labels = rng.integers(k, size=n), rng.integers(k, size=n)
    assert metrics.accuracy(predicted, labels) == reference.accuracy_score(labels, predicted)
    recall = reference.recall_score(
        labels, predicted, labels=range(k), average=None, zero_division=np.nan
    )
    np.testing.assert_allclose(metrics.per_class_accuracy(predicted, labels, k), recall)
    worst = metrics.worst_class_accuracy(predicted, labels, k)
    assert worst == pytest.approx(np.nanmin(recall))


@given(seed=st.integers(0, 1000), k=st.integers(2, 6))
def test_likelihood_agrees_with_scikit_learn(seed: int, k: int) -> None:
    """The likelihood from logits is the log loss of their softmax, also of huge ones."""
    rng = np.random.default_rng(seed)
    logits, labels = 3 * rng.standard_normal((20, k)), rng.integers(k, size=20)
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = reference.log_loss(labels, probs, labels=range(k))
    assert metrics.surprises(logits, labels).mean() == pytest.approx(expected)
    huge = np.array([[1000.0, 0.0], [0.0, 1000.0]], dtype=np.float32)
    assert metrics.surprises(huge, np.array([0, 0])).tolist() == [0.0, 1000.0]


EDGES = np.linspace(0, 1, 16).tolist()


@given(st.lists(st.tuples(st.floats(0, 1) | st.sampled_from(EDGES), st.booleans()), min_size=1))
def test_calibration_error_agrees_with_its_definition(pairs: list[tuple[float, bool]]) -> None:
    """Summed by a loop over fifteen bins, closed above, and from the reliability diagram."""
    confidence, correct = map(np.array, zip(*pairs, strict=True))
    loop = 0.0
    for low, high in itertools.pairwise(EDGES):
        inside = (confidence > low) & (confidence <= high)
        inside |= (confidence == 0) & (low == 0)
        if inside.any():
            loop += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    gaps = [
        n * abs(mean - accuracy)
        for n, mean, accuracy in metrics.reliability(confidence, correct)
        if mean is not None and accuracy is not None
    ]
    error = metrics.expected_calibration_error(confidence, correct)
    assert [loop, sum(gaps) / len(pairs)] == pytest.approx([error, error])
    assert len(metrics.reliability(confidence, correct)) == 15


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=2, max_size=40))
def test_rankings_agree_with_plain_forms(pairs: list[tuple[int, bool]]) -> None:
    """The area under the ROC curve, also of equal scores, and risk over coverage by a loop."""
    scores, correct = np.array([n / 10 for n, _ in pairs]), np.array([right for _, right in pairs])
    if 0 < correct.sum() < len(pairs):
        expected = reference.roc_auc_score(correct, scores)
        assert metrics.auroc(scores, correct) == pytest.approx(expected)
    ranked = [right for _, right in sorted(pairs, key=lambda pair: -pair[0])]
    risks = [1 - sum(ranked[:n]) / n for n in range(1, len(pairs) + 1)]
    assert metrics.risk_coverage_area(scores, correct) == pytest.approx(sum(risks) / len(risks))
    for n, risk in enumerate(risks, start=1):
        covered = metrics.accuracy_at_coverage(scores, correct, (n - 0.5) / len(pairs))
        assert covered == pytest.approx(1 - risk)


def test_orders_that_disagree_widen_the_interval() -> None:
    """The same mean gain is less certain when one order brings it all."""
    baseline = np.zeros((2, 400), dtype=bool)
    steady, uneven = baseline.copy(), baseline.copy()
    steady[:, :100] = True
    uneven[0, :200] = True
    first = metrics.paired_interval(steady, baseline)
    second = metrics.paired_interval(uneven, baseline)
    assert first.mean == second.mean == 0.25
    assert second.high - second.low > 2 * (first.high - first.low)
    assert metrics.paired_interval(uneven, uneven) == metrics.Interval(0.0, 0.0, 0.0)


def test_only_the_images_of_an_order_count() -> None:
    """An image that an order lacks neither helps nor harms; one that all lack is no image."""
    rng = np.random.default_rng(0)
    right, baseline = rng.random((2, 200)) < 0.7, rng.random((2, 200)) < 0.6
    seen = np.zeros((2, 200), dtype=bool)
    seen[:, 20:60] = True
    part = metrics.paired_interval(right, baseline, seen)
    assert part == metrics.paired_interval(right[:, 20:60], baseline[:, 20:60])
    seen[:] = False
    seen[0, :100], seen[1, 150:] = True, True
    interval = metrics.paired_interval(right, np.zeros_like(right), seen)
    assert interval.mean == pytest.approx((right[0, :100].mean() + right[1, 150:].mean()) / 2)
    assert interval == metrics.paired_interval(right & seen, np.zeros_like(right), seen)
    assert interval.low < interval.mean < interval.high


def test_the_paired_interval_agrees_with_a_plain_loop() -> None:
    """Drawing orders and images one resample after the other gives about the same bounds."""
    rng = np.random.default_rng(5)
    right, baseline = rng.random((4, 150)) < 0.7, rng.random((4, 150)) < 0.55
    difference = right.astype(int) - baseline.astype(int)
    means = []
    for _ in range(6000):
        orders, images = rng.integers(4, size=4), rng.integers(150, size=150)
        means.append(difference[orders][:, images].mean())
    low, high = np.quantile(means, [0.025, 0.975])
    interval = metrics.paired_interval(right, baseline, n_resamples=10_000)
    assert [interval.low, interval.high] == pytest.approx([low, high], abs=0.006)
    assert interval.mean == pytest.approx(difference.mean())


def test_draws_that_are_too_large_to_keep_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn again, in blocks of any size, they give the same interval."""
    rng = np.random.default_rng(6)
    right, baseline = rng.random((3, 70)) < 0.7, rng.random((3, 70)) < 0.6
    seen = rng.random((3, 70)) < 0.8
    kept = [metrics.paired_interval(right, baseline, each, 1000) for each in (None, seen)]
    monkeypatch.setattr(metrics, "_MOST_REMEMBERED", 0)
    for size in (700, 350_000):
        monkeypatch.setattr(metrics, "_BLOCK_SIZE", size)
        again = [metrics.paired_interval(right, baseline, each, 1000) for each in (None, seen)]
        assert again == kept
