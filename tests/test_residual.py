"""The closed-form step against autograd, and the compiled passes against the plain ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crg.ops import confident_views
from crg.parts import gaussian, kernels, prototypes, residual
from crg.parts.cache import Cache
from crg.parts.prototypes import VisualPrototypes
from crg.parts.residual import Residual, ResidualRule, entropy_gradient, separation_gradient
from streams import clustered

RULE = ResidualRule(
    scale=20.0, positive_weight=7.0, negative_weight=0.3, sharpness=5.0, text_separation=1.0,
    cache_separation=10.0, kernel_width=2.0, text_rate=5e-4, rate=5e-4, eps=1e-3,
)  # fmt: skip


def loss(xp: Any, views: Any, text: Any, positive: Any, negative: Any) -> Any:
    """L as the method states it, for NumPy or torch."""
    t, v, w = (rows / xp.sqrt((rows**2).sum(-1))[:, None] for rows in (text, positive, negative))
    z = RULE.scale * views @ t.T
    z = z + RULE.positive_weight * xp.exp(-RULE.sharpness * (1 - views @ v.T))
    z = z + RULE.negative_weight * xp.exp(RULE.sharpness * (1 - views @ w.T))
    p = xp.exp(z - z.max())
    q = (p / p.sum(-1)[:, None]).mean(0)
    tpt = -(q * xp.log(q)).sum()
    distance = ((t[:, None, :] - t[None, :, :]) ** 2).sum(-1)
    inter = xp.exp(-RULE.kernel_width * distance).sum() - len(t)
    return tpt + RULE.text_separation * inter + RULE.cache_separation * (v * w).sum()


@pytest.fixture
def problem() -> tuple[Any, Any, Any, Any]:
    """Views and three sets of prototypes, the latter not of unit length."""
    text, stream = clustered(seed=0, n=12, n_classes=6, width=10)
    rng = np.random.default_rng(1)
    positive = 0.8 * text + 0.1 * rng.normal(size=text.shape)
    negative = (positive.sum(0) - positive) / (len(text) - 1)
    return stream[:5, 0, :], 0.97 * text, positive, negative


def step_gradients(problem: tuple[Any, Any, Any, Any]) -> list[Any]:
    """The gradients behind the step: R = -lr g / (|g| + eps) solved for g."""
    views, text, positive, negative = problem
    separation = separation_gradient(text, RULE.kernel_width)
    moves = residual.residuals(views, text, positive, negative, separation, RULE)
    return [-RULE.eps * r / (RULE.rate - np.abs(r)) for r in moves]


def test_gradient_equals_autograd(problem: tuple[Any, Any, Any, Any]) -> None:
    """The closed form is torch's gradient of the whole loss."""
    torch = pytest.importorskip("torch")
    views, *sets = (torch.tensor(array) for array in problem)
    leaves = [rows.clone().requires_grad_(True) for rows in sets]
    loss(torch, views, *leaves).backward()
    for mine, leaf in zip(step_gradients(problem), leaves, strict=True):
        np.testing.assert_allclose(mine, leaf.grad.numpy(), rtol=1e-9, atol=1e-10)


def test_gradient_equals_finite_differences(problem: tuple[Any, Any, Any, Any]) -> None:
    """The closed form is what the loss really does when a coordinate moves."""
    views, *sets = problem
    for which, mine in enumerate(step_gradients(problem)):
        for row, column in [(0, 0), (3, 7), (5, 2)]:
            shifted = []
            for sign in (1.0, -1.0):
                moved = [rows.copy() for rows in sets]
                moved[which][row, column] += sign * 1e-5
                shifted.append(loss(np, views, *moved))
            assert mine[row, column] == pytest.approx((shifted[0] - shifted[1]) / 2e-5, rel=1e-5)


def test_step_equals_adamw() -> None:
    """One AdamW step from zero is -lr g / (|g| + eps), whatever the weight decay."""
    torch = pytest.importorskip("torch")
    gradient = np.random.default_rng(2).normal(size=(4, 3)) * 0.01
    leaf = torch.zeros((4, 3), dtype=torch.float64, requires_grad=True)
    leaf.grad = torch.tensor(gradient)
    torch.optim.AdamW([leaf], lr=5e-4, eps=1e-3, weight_decay=0.1).step()
    expected = leaf.detach().numpy()
    np.testing.assert_allclose(residual.adamw_from_zero(gradient, 5e-4, 1e-3), expected, rtol=1e-12)


def test_entropy_gradient_is_finite_where_probabilities_vanish() -> None:
    """A class of probability zero has gradient zero, not NaN."""
    gradient = entropy_gradient(np.array([[1000.0, 0.0, -1000.0]]))
    np.testing.assert_allclose(gradient, 0.0, atol=1e-12)


def test_text_separation_is_taken_anew_only_after_a_real_move() -> None:
    """A drift below 1e-3 keeps the gradient; a larger one refreshes it."""
    text, _ = clustered(seed=5, n=2, n_classes=4, width=6)
    step = Residual(RULE, text)
    first = step.separation
    step.follow(text + 1e-4, way=1.0)  # it went far and came back
    assert step.separation is first
    step.follow(text + 1e-2, way=1e-4)  # the reported ways stay below the bound
    assert step.separation is first
    step.follow(text + 1e-2, way=1e-2)
    assert step.separation is not first


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
