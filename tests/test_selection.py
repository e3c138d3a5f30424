"""The compiled selection of views against the plain one."""

from __future__ import annotations

import numpy as np
import pytest

from crg.ops import confident_views
from crg.parts.selection import Selection
from streams import clustered

# Entropies are sums near one, so a small one has fewer digits than a probability.
TOLERANCE = {"float64": 1e-11, "float32": 3e-5}


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
            allowed = TOLERANCE[dtype] * np.abs(expected).max()
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
