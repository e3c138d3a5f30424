"""The shared array functions against hand calculation, SciPy and their stated limits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import special

from crg.ops import confident_views, entropy, lengths, normalize, softmax, softmax_and_entropy

LOGITS = arrays(
    np.float64, st.integers(2, 12), elements=st.floats(-1e6, 1e6, allow_subnormal=False)
)


@given(LOGITS)
def test_softmax_and_entropy_agree_with_scipy(logits: Any) -> None:
    """Softmax and the entropy in nats are SciPy's for logits of any size; the latter is bounded."""
    probs = softmax(logits)
    np.testing.assert_allclose(probs, special.softmax(logits), rtol=1e-12, atol=1e-300)
    expected = special.entr(probs).sum()
    both, more = softmax_and_entropy(logits)
    np.testing.assert_allclose(both, probs, rtol=1e-12, atol=1e-300)
    for found in (float(entropy(probs)), float(more)):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert -1e-12 <= found <= math.log(len(logits)) * (1 + 1e-12)


def test_normalize_gives_unit_rows_and_survives_zero() -> None:
    """Rows come out with length one; a zero row stays zero instead of becoming NaN."""
    rows = normalize(np.array([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.0, 0.0]])
    assert lengths(np.zeros((1, 2)))[0] > 0


@pytest.mark.parametrize(
    ("share", "n_views", "kept"), [(0.1, 10, 1), (0.3, 10, 3), (0.7, 10, 7), (0.1, 5, 1), (1, 9, 9)]
)
def test_confident_views_keeps_the_stated_number(share: float, n_views: int, kept: int) -> None:
    """max(1, floor(rho V)): 0.7 of 10 is seven although 0.7 * 10 may fall short in binary."""
    views, text = _views_and_text(n_views)
    assert confident_views(views, text, 10.0, share).kept.shape[0] == kept


def test_confident_views_are_those_of_lowest_entropy() -> None:
    """The views of lowest entropy are kept, averaged and labelled."""
    views, text = _views_and_text(20)
    probs = special.softmax(10.0 * views @ text.T, axis=1)
    order = np.argsort(special.entr(probs).sum(axis=1))[:5]
    seen = confident_views(views, text, 10.0, 0.25)
    np.testing.assert_allclose(seen.kept, views[order])
    mean = views[order].mean(axis=0)
    np.testing.assert_allclose(seen.feature, mean / np.linalg.norm(mean))
    np.testing.assert_allclose(seen.probs, probs[order].mean(axis=0))
    assert seen.label == int(probs[order].mean(axis=0).argmax())
    assert seen.entropy == pytest.approx(special.entr(seen.probs).sum())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_single_view_is_returned_to_the_last_bit(dtype: str) -> None:
    """With V = 1 the feature is the view itself, not a rounded mean of it."""
    views, text = (array.astype(dtype) for array in _views_and_text(1))
    assert confident_views(views, text, 100.0, 0.1).feature.tobytes() == views[0].tobytes()


def _views_and_text(n_views: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(n_views)
    views, text = rng.standard_normal((n_views, 8)), rng.standard_normal((4, 8))
    return normalize(views), normalize(text)
