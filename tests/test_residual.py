"""The residual step's gradient, written by hand, against autograd and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crg.parts import residual
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
