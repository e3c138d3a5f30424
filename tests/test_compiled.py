"""Compiled passes against the plain ones: prototype by prototype, and view by view."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crg.ops import confident_views
from crg.parts import gaussian, kernels, prototypes, residual
from crg.parts.cache import Cache
from crg.parts.prototypes import VisualPrototypes
from streams import clustered
from test_residual import RULE

TOLERANCE = {"float64": 1e-11, "float32": 3e-5}
FLOATS = pytest.mark.parametrize("dtype", ["float64", "float32"])


def plain(function: Any) -> Any:
    """The array code behind a function that has a compiled form."""
    return function.__wrapped__


def assert_close(got: Any, expected: Any, dtype: str, name: str = "") -> None:
    """Equal up to rounding, relative to the largest value."""
    allowed = TOLERANCE[dtype] * np.abs(expected).max()
    np.testing.assert_allclose(got, expected, rtol=0, atol=allowed, err_msg=name)


@FLOATS
@pytest.mark.parametrize("n_classes,width,n_views", [(2, 3, 1), (9, 16, 1), (30, 64, 40)])
def test_compiled_step_equals_the_plain_one(
    dtype: str, n_classes: int, width: int, n_views: int
) -> None:
    """Moved text, means and cosines agree for one view and for several."""
    text64, stream = clustered(7, 3 * n_classes, n_classes, width, n_views)
    text, views = np.asarray(text64, dtype), np.asarray(stream[-1], dtype)
    cache = Cache(text, 3, seeded=True)
    for sample, row in enumerate(np.asarray(stream[:-1, 0, :], dtype)):
        cache.offer(sample % n_classes, row, 1.0 / (1 + sample), sample)
    seen = confident_views(views, text, RULE.scale, 0.1)
    separation = residual.separation_gradient(text, RULE.kernel_width)
    given = (text, VisualPrototypes(cache), seen, views[0], separation, RULE)
    fast, slow = kernels.move(*given), plain(residual.move)(*given)
    for name in ("text", "means", "text_cosine", "positive_cosine", "negative_cosine"):
        assert_close(getattr(fast, name), getattr(slow, name), dtype, name)


@FLOATS
def test_compiled_loops_equal_array_code(dtype: str) -> None:
    """Evolution of the text, the expansion of class means and rank-one terms agree."""
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.normal(size=(6, 10)).astype(dtype) for _ in range(4))
    row, spread, columns = a[0], np.abs(b[0]), rng.normal(size=(2, 10))
    fast, slow = a.copy(), a.copy()
    ways = kernels.drift(fast, b, 0.1), plain(prototypes.drift)(slow, b, 0.1)
    assert_close(fast, slow, dtype)
    assert_close(*ways, dtype)
    given = (a, row, c, d, spread)
    assert_close(kernels.expand(*given), plain(gaussian.expand)(*given), dtype)
    forms = [(c.copy(), np.zeros(6)) for _ in range(2)]
    for take, (solved, quadratic) in zip(
        (kernels.take_terms, plain(gaussian.take_terms)), forms, strict=True
    ):
        take(a, solved, quadratic, columns, np.array([0.3, -0.1]))
    for got, expected in zip(*forms, strict=True):
        assert_close(got, expected, dtype)


@FLOATS
@pytest.mark.parametrize("n_views,share", [(1, 0.1), (5, 0.1), (40, 0.1), (40, 1.0)])
def test_compiled_selection_equals_the_plain_one(dtype: str, n_views: int, share: float) -> None:
    """Kept views, logits, feature, probabilities, label and entropy agree, image by image."""
    text64, stream = clustered(3, 6, 9, 16, n_views)
    text = np.asarray(text64, dtype)
    for image in np.asarray(stream, dtype):
        fast = kernels.confident_views(image, text, 20.0, share)
        slow = confident_views(image, text, 20.0, share)
        assert fast.label == slow.label
        np.testing.assert_array_equal(fast.kept, slow.kept)
        for name in ("logits", "feature", "probs", "entropy"):
            assert_close(getattr(fast, name), getattr(slow, name), dtype, name)
