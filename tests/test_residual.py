"""The closed-form step against finite differences; ``test_oracle`` has it against autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crg.parts.residual import ResidualRule, residuals, separation_gradient
from synthetic import clustered

RULE = ResidualRule(
    scale=20.0, positive_weight=7.0, negative_weight=0.3, sharpness=5.0, text_separation=1.0,
    cache_separation=10.0, kernel_width=2.0, text_rate=5e-4, rate=5e-4, eps=1e-3,
)  # fmt: skip


def loss(views: Any, text: Any, positive: Any, negative: Any) -> Any:
    """L as the method states it, in plain array code."""
    t, v, w = (rows / np.sqrt((rows**2).sum(-1))[:, None] for rows in (text, positive, negative))
    z = RULE.scale * views @ t.T
    z = z + RULE.positive_weight * np.exp(-RULE.sharpness * (1 - views @ v.T))
    z = z + RULE.negative_weight * np.exp(RULE.sharpness * (1 - views @ w.T))
    p = np.exp(z - z.max())
    q = (p / p.sum(-1)[:, None]).mean(0)
    tpt = -(q * np.log(q)).sum()
    distance = ((t[:, None, :] - t[None, :, :]) ** 2).sum(-1)
    inter = np.exp(-RULE.kernel_width * distance).sum() - len(t)
    return tpt + RULE.text_separation * inter + RULE.cache_separation * (v * w).sum()


def test_gradient_equals_finite_differences() -> None:
    """The closed form is what the loss does when a coordinate of prototypes of any length moves."""
    text, stream = clustered(seed=0, n=12, n_classes=6, width=10)
    positive = 0.8 * text + 0.1 * np.random.default_rng(1).normal(size=text.shape)
    negative = (positive.sum(0) - positive) / (len(text) - 1)
    views, *sets = stream[:5, 0, :], 0.97 * text, positive, negative
    separation = separation_gradient(sets[0], RULE.kernel_width)
    moves = residuals(views, sets[0], positive, negative, separation, RULE)
    for which, move in enumerate(moves):
        mine = -RULE.eps * move / (RULE.rate - np.abs(move))  # R = -lr g / (|g| + eps) for g
        for row, column in [(0, 0), (3, 7), (5, 2)]:
            shifted = []
            for sign in (1.0, -1.0):
                moved = [rows.copy() for rows in sets]
                moved[which][row, column] += sign * 1e-5
                shifted.append(loss(views, *moved))
            assert mine[row, column] == pytest.approx((shifted[0] - shifted[1]) / 2e-5, rel=1e-5)
