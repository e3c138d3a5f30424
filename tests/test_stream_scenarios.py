"""Runs over streams of every kind: what is scored and reported, and that it can be repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crg
from crg.checks import CheckSkipped
from crg.checks.base import furnished, make_stream, make_task
from crg.evaluate import iter_run, run
from crg.features.files import Features
from crg.features.joining import joined
from crg.methods.registry import get_method
from crg.ops import softmax
from crg.results.measurements import predicted_rows, unpacked_bits
from crg.results.schema import encode
from crg.streams import ORDERS, Scenario
from crg.streams.orders import lay_out
from synthetic import gaussian_stream

CHEAP = ("tda", "crg", "gda")  # with a cache, with one that is derived from, and with none
UNTIMED = ("ms_per_step", "ms_per_step_median")
N = 90


@pytest.fixture(scope="module")
def features() -> Features:
    """Two labelled files of six classes, joined, with labelled images beside them."""
    whole = gaussian_stream(n=N + 24, n_classes=6, width=12, n_views=3)
    assert whole.labels is not None
    few: Any = {"few_features": whole.image_features[N:, 0], "few_labels": whole.labels[N:]}
    return joined([
        Features(whole.image_features[rows], whole.task, whole.labels[rows], **few)
        for rows in (slice(0, 40), slice(40, N))
    ])  # fmt: skip


def untimed(metrics: Any) -> dict[str, Any]:
    """What can be repeated to the last bit."""
    return {name: value for name, value in metrics.items() if name not in UNTIMED}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("method", CHEAP)
def test_every_method_runs_over_every_stream(method: str, order: str, features: Features) -> None:
    """A run is plain JSON, says the same twice, and zero-shot saw the same stream and task."""
    scenario = Scenario(order, mislabelled=0.3)
    first, again = (run(features, method, seed=2, scenario=scenario) for _ in range(2))
    assert encode(first)
    assert untimed(first.metrics) == untimed(again.metrics)
    assert untimed(first.zero_shot) == untimed(again.zero_shot)
    by_itself = run(features, "zero_shot", seed=2, scenario=scenario)
    assert untimed(by_itself.metrics) == untimed(first.zero_shot)
    stream = lay_out(features, scenario, 2)
    assert stream.labels is not None
    n_scored = int((stream.labels[stream.rows] >= 0).sum())
    for said in (first.metrics, first.zero_shot):
        assert (said["n_scored"], said["n_outside"]) == (n_scored, len(stream.rows) - n_scored)
        assert list(said["per_class_accuracy"]) == list(stream.features.task.class_names)
        _check_consistent(said, stream.rows, stream.labels)
    assert (first.metrics["mislabelled"] is None) == (method == "gda")


def _check_consistent(said: Any, rows: Any, labels: Any) -> None:
    """The values per image are consistent and give the accuracy again."""
    answers, scored = predicted_rows(said), np.ones(N, dtype=bool)
    if "streamed" in said:
        scored = unpacked_bits(said["streamed"], N)
    streamed = np.isin(np.arange(N), rows)
    np.testing.assert_array_equal(scored, streamed & (labels >= 0))
    np.testing.assert_array_equal(answers >= 0, streamed)
    assert ("streamed" in said) == (not scored.all())
    right = (answers == labels) & scored
    np.testing.assert_array_equal(unpacked_bits(said["correct"], N), right)
    in_order = unpacked_bits(said["right_in_order"], said["n_scored"])
    np.testing.assert_array_equal(in_order, right[rows[labels[rows] >= 0]])
    assert said["accuracy"] == in_order.mean()
    assert sum(n for n, _, _ in said["reliability"]) == said["n_scored"]
    hits = sum(n * share for n, _, share in said["reliability"] if n)
    assert hits == pytest.approx(in_order.sum())
    gaps = [n * abs(trust - share) for n, trust, share in said["reliability"] if n]
    assert said["ece"] == pytest.approx(sum(gaps) / said["n_scored"])


def test_cached_out_of_distribution_are_impure(features: Features) -> None:
    """Images of no class are cached, always wrongly, and are not scored."""
    stream = lay_out(features, Scenario("out_of_distribution", 0.5), 0)
    adapter = crg.create("tda", stream.features.task, positive_size=50)
    steps = list(iter_run(adapter, stream.features, stream.rows, labels=stream.labels))
    assert stream.labels is not None
    truth = dict(zip(features.sample_ids, stream.labels.tolist(), strict=True))
    cached = [
        (queue, truth[entry.sample_id])
        for queue, entries in enumerate(adapter.cache.values())
        for entry in entries
        if entry.sample_id is not None
    ]
    assert sum(label == -1 for _, label in cached) > 10
    assert steps[-1].purity == sum(queue == label for queue, label in cached) / len(cached)
    assert {step.label for step in steps if truth[step.sample_id] == -1} == {None}
    scored = [step.prediction.label == step.label for step in steps if step.label is not None]
    scenario = Scenario("out_of_distribution", 0.5)
    result = run(features, "tda", {"positive_size": 50}, scenario=scenario)
    assert result.n_samples == N > len(scored) == result.metrics["n_scored"]
    assert result.metrics["accuracy"] == np.mean(scored)


def test_zero_shot_may_predict_the_confident_views(features: Features) -> None:
    """With the same views as the other methods it answers softmax of s x . t, x their mean."""
    adapter = crg.create("zero_shot", features.task, predict_on="confident", view_share=0.67)
    views, text = features.views(7), features.task.text_features
    probs = softmax(100 * views @ text.T)
    x = views[np.argsort(-(probs * np.log(probs)).sum(axis=1))[:2]].mean(axis=0)
    expected = 100 * text @ (x / np.linalg.norm(x))
    np.testing.assert_allclose(adapter.step(views).logits, expected, rtol=1e-4)
    confident = run(features, "zero_shot", {"predict_on": "confident"})
    plain = run(features, "zero_shot")
    assert confident.metrics["predicted"] != confident.zero_shot["predicted"]
    assert untimed(confident.zero_shot) == untimed(plain.metrics)


@pytest.mark.parametrize("method", crg.list_methods())
def test_methods_that_forget_say_so(method: str) -> None:
    """A method forgets if, and only if, an image is answered alike whatever came before."""
    task = make_task()
    try:
        task = furnished(task, get_method(method).needs)
    except CheckSkipped as reason:
        pytest.skip(str(reason))
    stream = make_stream(task, 40, 8)
    options = {"epochs": 1} if method == "coop" else {}
    used, fresh = (crg.create(method, task, **options) for _ in range(2))
    used.step_many(stream[:39])
    same = np.allclose(used.step(stream[39]).logits, fresh.step(stream[39]).logits, rtol=1e-9)
    assert same == get_method(method).forgets
