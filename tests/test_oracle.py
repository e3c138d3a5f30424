"""CRG against its plain form: every label and logit, in double and single precision."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
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
    text: Any, stream: Any, options: dict[str, Any], dtypes: Iterable[str] = tuple(TOLERANCE)
) -> tuple[int, int]:
    """Compare the compiled and the array code with the plain form, step by step.

    Returns how often the cache changed and the text evolved. The plain form always computes in
    double precision, on the bits that an adapter sees there: autograd in single precision is
    itself off by more than the tolerance.
    """
    names = [f"class {k}" for k in range(len(text))]
    tasks = {dtype: crg.Task(names, np.asarray(text, dtype), 20.0) for dtype in dtypes}
    one = crg.create("crg", crg.Task(names, text, 20.0), **options)
    plain = Oracle(torch.tensor(one.task.text_features), 20.0, one.config)
    samples = [one._sample(views, None).views for views in stream]  # normalised
    expected = np.stack([plain.step(torch.tensor(views)).numpy() for views in samples])  # (n, K)
    for (form, kernels), dtype in itertools.product(FORMS.items(), dtypes):
        adapter = crg.create("crg", tasks[dtype], **options)
        with patch.object(parts, "_kernels", kernels):
            answers = [adapter.step(views.astype(dtype)) for views in samples]
        allowed = TOLERANCE[dtype] * np.abs(expected).max(axis=1)
        gaps = np.abs(np.stack([each.logits for each in answers]) - expected).max(axis=1)
        agree = gaps <= allowed
        assert agree.all(), f"{form} in {dtype}: off by {gaps[~agree][0]} at {agree.argmin()}"
        for right, each, gap in zip(expected, answers, allowed, strict=True):
            if each.label != right.argmax():
                assert dtype == "float32" and right.max() - right[each.label] <= gap
        method: Any = adapter._method
        assert method.text.n_updates == plain.n_updates
    return sum(each.diagnostics.cache_changed for each in answers), plain.n_updates


def test_long_stream_agrees_with_the_plain_form() -> None:
    """Over 1,100 steps with many evictions both forms give the same logits.

    The ridge moves on its grid 88 times, the text separation is refreshed 16 times, and between
    rebuilds the inverse takes in as many terms as it holds.
    """
    text, stream = clustered(seed=1, n=1100)
    changes, evolved = assert_agree(text, stream, {"queue_size": 20})
    assert changes > 10 * 20 + 300  # far more than fill the queues: entries were thrown out
    assert evolved > 100


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_choice_agrees_with_the_plain_form(variant: str) -> None:
    """Rows of the ablation, options and several views per image mean the same in both forms."""
    text, stream = clustered(seed=3, n=120, n_classes=7, width=20, n_views=20)
    assert_agree(text, stream, VARIANTS[variant])


@pytest.mark.parametrize("n_classes,width", [(2, 4), (3, 2), (40, 8)])
def test_odd_sizes_agree_with_the_plain_form(n_classes: int, width: int) -> None:
    """Few classes, narrow features and more classes than dimensions are no special case."""
    text, stream = clustered(seed=4, n=150, n_classes=n_classes, width=width)
    assert_agree(text, stream, {"queue_size": 4}, ["float64"])
