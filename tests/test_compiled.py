"""Compiled passes against the plain ones: prototype by prototype, and view by view."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crg import parts
from crg.ops import confident_views
from crg.parts.cache import Cache
from crg.parts.gaussian import Frame
from crg.parts.prototypes import TextPrototypes, VisualPrototypes
from crg.parts.residual import Motion, Residual, StepInput, move_plainly
from crg.parts.selection import Selection
from streams import clustered
from test_residual import RULE

TOLERANCE = {"float64": 1e-12, "float32": 3e-5}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n_classes,width,n_views", [(2, 3, 1), (9, 16, 1), (30, 64, 40)])
def test_compiled_motion_equals_the_plain_one(
    dtype: str, n_classes: int, width: int, n_views: int
) -> None:
    """Moved text, means, cosines and expansion agree for one view and for several."""
    text64, stream = clustered(7, 3 * n_classes, n_classes, width, n_views)
    text, views = np.asarray(text64, dtype), np.asarray(stream[-1], dtype)
    cache = Cache(text, 3, seeded=True)
    for sample, row in enumerate(np.asarray(stream[:-1, 0, :], dtype)):
        cache.offer(sample % n_classes, row, 1.0 / (1 + sample), sample)
    visual, residual = VisualPrototypes(cache), Residual(RULE, text)
    rng = np.random.default_rng(0)
    frame = Frame(
        projected=rng.normal(size=width),
        reference=np.asarray(visual.positive + 1e-3, dtype),
        solved=np.asarray(rng.normal(size=text.shape), dtype),
        spread=np.asarray(rng.random(width), dtype),
    )
    seen = confident_views(views, text, RULE.scale, 0.1)
    scene = StepInput(residual, seen, views[0], text, visual, frame)
    fast, plain = Motion(text)(scene), move_plainly(scene)
    for name in ("text", "means", "text_cosine", "positive_cosine", "negative_cosine"):
        assert_close(getattr(fast, name), getattr(plain, name), dtype, name)
    for name in ("linear", "along", "distance", "reach"):
        assert_close(getattr(fast.expansion, name), getattr(plain.expansion, name), dtype, name)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_compiled_evolution_equals_the_plain_one(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text rows and the longest way agree over several updates."""
    text64, stream = clustered(8, 12, 6, 10)
    fast = TextPrototypes(np.asarray(text64, dtype))
    ways = [fast.evolve(np.asarray(text64 + 0.01 * row, dtype)) for row in stream[:5, 0, :]]
    monkeypatch.setattr(parts, "_kernels", lambda: None)
    plain = TextPrototypes(np.asarray(text64, dtype))
    expected = [plain.evolve(np.asarray(text64 + 0.01 * row, dtype)) for row in stream[:5, 0, :]]
    assert_close(fast.rows, plain.rows, dtype, "rows")
    assert_close(np.array(ways), np.array(expected), dtype, "ways")


def assert_close(got: Any, expected: Any, dtype: str, name: str) -> None:
    """Equal up to rounding, relative to the largest value."""
    allowed = TOLERANCE[dtype] * np.abs(expected).max()
    np.testing.assert_allclose(got, expected, rtol=0, atol=allowed, err_msg=name)


# Entropies are sums near one, so a small one has fewer digits than a probability.
SELECTED = {"float64": 1e-11, "float32": 3e-5}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n_views,share", [(1, 0.1), (5, 0.1), (40, 0.1), (40, 1.0)])
def test_compiled_selection_equals_the_plain_one(dtype: str, n_views: int, share: float) -> None:
    """Kept views, logits, feature, probabilities, label and entropy agree, image by image."""
    text64, stream = clustered(3, 6, 9, 16, n_views)
    text, select = np.asarray(text64, dtype), Selection()
    for image in np.asarray(stream, dtype):
        fast = select(image, text, 20.0, share)
        plain = confident_views(image, text, 20.0, share)
        assert fast.label == plain.label
        np.testing.assert_array_equal(fast.kept, plain.kept)
        for name in ("logits", "feature", "probs", "entropy"):
            expected = getattr(plain, name)
            allowed = SELECTED[dtype] * np.abs(expected).max()
            np.testing.assert_allclose(
                getattr(fast, name), expected, rtol=0, atol=allowed, err_msg=name
            )


def test_buffers_follow_the_number_of_views() -> None:
    """What an earlier image of other size has left behind does not show."""
    text, stream = clustered(4, 2, 9, 16, 30)
    select = Selection()
    select(stream[0], text, 20.0, 0.1)
    few = select(stream[1][:12], text, 20.0, 0.5)
    np.testing.assert_allclose(
        few.probs, confident_views(stream[1][:12], text, 20.0, 0.5).probs, atol=1e-12
    )
