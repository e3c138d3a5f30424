"""CRG against its plain form: every label and logit, in double and single precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import crg
from crg import parts
from synthetic import clustered

torch = pytest.importorskip("torch")
from oracle import Oracle  # noqa: E402  (needs torch)

assert parts._kernels() is not None, "numba is missing: install crg-tta[fast]"
FORMS: dict[str, Callable[[], Any]] = {"compiled": parts._kernels, "array code": lambda: None}
TOLERANCE = {"float64": 1e-8, "float32": 1e-4}
# The six rows of the paper's ablation, each one configuration, and other choices.
TEXT_AND_POSITIVE = {
    "negative": False, "gaussian": False, "text_separation": False, "cache_separation": False
}  # fmt: skip
GAUSSIAN_ALONE = {
    "text_cache": False, "positive": False, "negative": False, "residual": False, "evolve": False
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "text and positive": TEXT_AND_POSITIVE,
    "+ text separation": TEXT_AND_POSITIVE | {"text_separation": True},
    "+ negative": TEXT_AND_POSITIVE | {"text_separation": True, "negative": True},
    "+ negative and cache separation": {"gaussian": False},
    "Gaussian alone": GAUSSIAN_ALONE,
    "all": {},
    "mean reduction": {"reduction": "mean"},
    "confident view": {"predict_on": "confident"},
    "more views kept": {"view_share": 0.5},
    "queue of one": {"queue_size": 1},
    "queue of two": {"queue_size": 2},
    "no text cache": {"text_cache": False},
    "no positive": {"positive": False},
    "no evolution": {"evolve": False},
    "no residual": {"residual": False},
    "other weights": {"lambda1": 2.0, "lambda2": 1.0, "xi1": 0.1, "gamma": 1.0, "lr": 1e-3},
}


def assert_agree(
    text: Any, stream: Any, dtype: str, options: dict[str, Any], scale: float = 20.0
) -> tuple[int, int]:
    """Compare the compiled and the array code with the plain form, step by step.

    Returns how often the cache changed and the text evolved. The plain form always computes in
    double precision, on the very bits that the adapter sees: autograd in single precision is
    itself off by more than the tolerance.
    """
    task = crg.Task([f"class {k}" for k in range(len(text))], np.asarray(text, dtype), scale)
    adapters = {form: crg.create("crg", task, **options) for form in FORMS}
    adapter = adapters["compiled"]
    text = torch.tensor(task.text_features, dtype=torch.float64)
    plain = Oracle(text, scale, adapter.config)
    changes = 0
    for views in np.asarray(stream, dtype):
        # The adapter's own normalisation, so that both see the same bits.
        sample = adapter._sample(views, None)
        expected = plain.step(torch.tensor(sample.views, dtype=torch.float64)).numpy()
        allowed = TOLERANCE[dtype] * np.abs(expected).max()
        best = int(expected.argmax())
        for form, each in adapters.items():
            with patch.object(parts, "_kernels", FORMS[form]):
                prediction = each.step(sample.views)
            np.testing.assert_allclose(prediction.logits, expected, 0, allowed, err_msg=form)
            if prediction.label != best:
                assert dtype == "float32"
                assert expected[best] - expected[prediction.label] <= allowed
        changes += prediction.diagnostics.cache_changed
    for each in adapters.values():
        method: Any = each._method
        assert method.text.n_updates == plain.n_updates
    return changes, plain.n_updates


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_long_stream_agrees_with_the_plain_form(dtype: str) -> None:
    """Over 2,200 steps with many evictions both forms give the same logits."""
    text, stream = clustered(seed=1, n=2200)
    changes, evolved = assert_agree(text, stream, dtype, {})
    assert changes > 10 * 12 + 300  # far more than fill the queues: entries were thrown out
    assert evolved > 100


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_choice_agrees_with_the_plain_form(variant: str, dtype: str) -> None:
    """Rows of the ablation, options and several views per image mean the same in both forms."""
    text, stream = clustered(seed=3, n=120, n_classes=7, width=20, n_views=20)
    assert_agree(text, stream, dtype, VARIANTS[variant])


@pytest.mark.parametrize("n_classes,width", [(2, 4), (3, 2), (40, 8)])
def test_odd_sizes_agree_with_the_plain_form(n_classes: int, width: int) -> None:
    """Few classes, narrow features and more classes than dimensions are no special case."""
    text, stream = clustered(seed=4, n=150, n_classes=n_classes, width=width)
    assert_agree(text, stream, "float64", {"queue_size": 4})
