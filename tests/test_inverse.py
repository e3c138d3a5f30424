"""Inverses of positive definite matrices."""

from __future__ import annotations

import numpy as np
import pytest

from crg.parts.inverse import inverse, inverse_from_rows


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
