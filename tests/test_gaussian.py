"""The Gaussian against scikit-learn and against itself from scratch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from crg.parts.cache import Cache
from crg.parts.gaussian import Gaussian
from crg.parts.precision import inverse, inverse_from_rows, on_grid, ridged
from synthetic import clustered


def fed(seed: int, n: int, size: int = 4) -> tuple[Cache, Gaussian]:
    """A cache and its Gaussian after ``n`` offers."""
    text, stream = clustered(seed=seed, n=n, n_classes=6, width=12)
    rng = np.random.default_rng(seed)
    cache = Cache(text, size, seeded=True)
    gaussian = Gaussian(cache)
    for sample, views in enumerate(stream):
        change = cache.offer(int(rng.integers(6)), views[0], float(rng.random()), sample)
        if change is not None:
            gaussian.update(cache, change)
    return cache, gaussian


def from_scratch(cache: Cache) -> tuple[Any, Any, float]:
    """Scatter, (S + r I)^-1 and r straight from the cached features."""
    rows = [cache.features[k, : cache.counts[k]].astype(float) for k in range(len(cache.counts))]
    centred = np.concatenate([entries - entries.mean(0) for entries in rows])
    scatter = centred.T @ centred
    ridge = on_grid(np.trace(scatter) / (len(centred) - 1))
    return scatter, np.linalg.inv(scatter + ridge * np.eye(len(scatter))), ridge


def discriminant(gaussian: Gaussian, x: Any, means: Any) -> Any:
    """h(x) for the class means ``means``."""
    return gaussian.logits(x, means, np.zeros(len(means), bool))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 300), size=st.integers(1, 6))
def test_incremental_equals_from_scratch(both_forms: str, seed: int, n: int, size: int) -> None:
    """After any insertions and evictions the inverse is that of the cache, positive definite."""
    cache, gaussian = fed(seed, n, size)
    if not gaussian.precision.ridge:
        assert size == 1  # only lone entries have no scatter, and then no class is preferred
        assert not discriminant(gaussian, cache.mean(0), cache.features[:, 0, :]).any()
        return
    _, inverse, ridge = from_scratch(cache)
    assert gaussian.precision.ridge == pytest.approx(ridge, rel=1e-12)
    found = gaussian.precision.solve(np.eye(12))
    np.testing.assert_allclose(found, inverse, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found, found.T, rtol=1e-9, atol=1e-9)
    assert np.linalg.eigvalsh(found).min() > 0


def test_logits_equal_the_formula_for_any_means() -> None:
    """h_k = mu.Px - 1/2 mu.P mu, for means near the reference and far from it, over and over."""
    cache, gaussian = fed(seed=7, n=200)
    _, inverse, _ = from_scratch(cache)
    rng = np.random.default_rng(0)
    means = np.stack([cache.mean(k) for k in range(6)])
    for shift in (0.0, 1e-9, 1e-6, 1e-4, 1e-2, 1.0, 1e-5):
        moved = means + shift * rng.normal(size=means.shape)
        x = rng.normal(size=12)
        expected = 12 * ((moved @ inverse) @ x - 0.5 * ((moved @ inverse) * moved).sum(1))
        got = discriminant(gaussian, x, moved)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def test_agrees_with_linear_discriminant_analysis() -> None:
    """With the same covariance, decisions and differences are those of scikit-learn's LDA."""
    rng = np.random.default_rng(3)
    n_each, width = 40, 5
    labels = np.repeat(np.arange(3), n_each)
    data = rng.normal(size=(3, width))[labels] + 0.5 * rng.normal(size=(3 * n_each, width))
    cache = Cache(data[::n_each].copy(), n_each, seeded=True)  # seeds are the first of each class
    for sample, row in enumerate(data):
        if sample % n_each:
            cache.offer(int(labels[sample]), row, 1.0 - sample * 1e-4, sample)
    gaussian = Gaussian(cache)
    scatter, _, ridge = from_scratch(cache)
    # LDA's covariance is S/n shrunk towards its mean eigenvalue; give it ours by scaling.
    total = len(data)
    share = ridge / (ridge + np.trace(scatter) / width)
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=share, priors=[1 / 3] * 3)
    model.fit(data, labels)
    x = rng.normal(size=(20, width))
    means = np.stack([cache.mean(k) for k in range(3)])
    ours = np.stack([discriminant(gaussian, row, means) for row in x])
    theirs = model.decision_function(x)
    factor = width * (1 - share) / total  # ours is D (S + r I)^-1, theirs n / (1 - share) of it
    ours, theirs = (h - h.mean(1, keepdims=True) for h in (ours, factor * theirs))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


def test_failed_factorisation_falls_back_and_is_counted() -> None:
    """If S is broken beyond inversion, more ridge is taken and the event is counted."""
    cache, gaussian = fed(seed=9, n=100)
    precision = gaussian.precision
    precision.scatter = precision.scatter - 3.0 * np.eye(12)  # no longer positive definite
    precision._rebuild(cache)
    assert precision.take_events()
    assert not precision.take_events()  # reported once
    assert np.isfinite(discriminant(gaussian, cache.mean(0), cache.features[:, 0, :])).all()
    found, times = ridged(lambda ridge: None, 0.5, np.eye(3))  # which nothing makes invertible
    np.testing.assert_allclose(found, np.eye(3) / (0.5 * 10.0**times))
    assert ridged(lambda ridge: np.eye(2) if ridge > 30 else None, 0.5, np.eye(2))[1] == 2


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 129, 200])
def test_inverse_equals_that_of_numpy(n: int) -> None:
    """Elimination by blocks gives the inverse, symmetric to the last bit."""
    rows = np.random.default_rng(n).normal(size=(2 * n, n))
    matrix = rows.T @ rows + 0.1 * np.eye(n)
    found = inverse(matrix)
    assert found is not None
    np.testing.assert_allclose(found, np.linalg.inv(matrix), rtol=1e-9, atol=1e-12)
    assert (found == found.T).all()


@pytest.mark.parametrize("at", [0, 70, 199])
def test_what_is_not_positive_definite_has_no_inverse_here(at: int) -> None:
    """One negative direction anywhere is noticed, as are NaN and infinite values."""
    matrix = np.eye(200)
    matrix[at, at] = -1.0
    assert inverse(matrix) is None
    matrix[at, at] = np.nan
    assert inverse(matrix) is None


def test_inverse_from_rows_equals_the_inverse_of_the_sum() -> None:
    """Few rows with positive and negative weights add up to a matrix of full size."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(9, 40)), 0.1 * rng.normal(size=(2, 40))])
    weights = np.array([1.0] * 9 + [-0.5, -2.0])
    whole = (rows.T * weights) @ rows + 0.7 * np.eye(40)
    found = inverse_from_rows(rows, weights, 0.7)
    assert found is not None
    np.testing.assert_allclose(found, np.linalg.inv(whole), rtol=1e-9, atol=1e-12)
