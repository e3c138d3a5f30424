"""Runs over streams of every kind, with label noise: what is scored, and that it is repeatable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crg
from crg.checks import CheckSkipped
from crg.checks.base import furnished, make_stream, make_task
from crg.evaluate import iter_run, run
from crg.features.files import Features
from crg.features.joining import joined
from crg.methods.registry import get_method
from crg.ops import softmax
from crg.parts.cache import Cache
from crg.parts.precision import Precision
from crg.parts.prototypes import VisualPrototypes
from crg.results.measurements import predicted_rows, unpacked_bits
from crg.results.schema import encode
from crg.streams import ORDERS, Scenario
from crg.streams.label_noise import LabelNoise
from crg.streams.orders import lay_out, shuffled
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
    undecided = {"outside_auroc": None}  # which is measured for the method of a run alone
    assert untimed(by_itself.metrics) | undecided == untimed(first.zero_shot)
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


CACHED = ("tda", "dpe", "crg", "anchored", "dota")


@pytest.fixture(scope="module")
def stream() -> Features:
    """A small labelled stream."""
    return gaussian_stream(n=80, n_classes=5, width=12, n_views=3)


def hits(share: float, n: int = 2000, seed: int = 0, keeps: int = 1) -> tuple[set[int], int]:
    """Images that get another class than the method's, which is 1 of 6, and how many are kept.

    An image is kept if its own class was left to it and ``keeps`` divides its number, or if it
    was given another: what is hit is taken in ``keeps`` times as often.
    """
    filing = LabelNoise(share, {}, 6, seed)
    found = set()
    for name in range(n):
        is_hit = filing.filed_under(1, name) != 1
        if is_hit or name % keeps == 0:
            filing.was_kept(name)
        if is_hit:
            found.add(name)
    return found, filing.insertions


@pytest.mark.parametrize("keeps", [1, 2, 7])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.35, 0.6, 1.0])
def test_the_share_of_insertions_is_reached(share: float, keeps: int) -> None:
    """However readily wrong queues take images in, not only at the end; the seed decides which."""
    for n in (50, 300, 2000):
        found, insertions = hits(share, n, keeps=keeps)
        assert abs(len(found) - share * insertions) <= 1
    others = hits(share, seed=1, keeps=keeps)[0]
    assert share != 0.35 or (found != others and len(set(np.diff(sorted(found)))) > 4)


@given(st.integers(2, 9), st.data())
def test_the_class_is_always_wrong(n_classes: int, data: st.DataObject) -> None:
    """It is never the true one, and never the method's unless two classes leave no other."""
    truth = data.draw(st.integers(-1, n_classes - 1))
    label = data.draw(st.integers(0, n_classes - 1))
    name = data.draw(st.one_of(st.integers(), st.text(max_size=5)))
    wrong = LabelNoise(1.0, {name: truth}, n_classes, 0).filed_under(label, name)
    assert 0 <= wrong < n_classes and wrong != truth
    assert wrong != label or (n_classes == 2 and truth not in (-1, label))


def test_wrong_classes_are_equally_likely() -> None:
    """All classes but the true one and the method's come about as often, alike in every process."""
    filing = LabelNoise(1.0, dict.fromkeys(range(6000), 4), 6, 0)
    counts = np.bincount([filing.filed_under(1, name) for name in range(6000)], minlength=6)
    assert counts[[1, 4]].tolist() == [0, 0]
    assert counts[[0, 2, 3, 5]] == pytest.approx([1500] * 4, rel=0.1)
    filing = LabelNoise(0.5, {}, 9, 3)
    found = [filing.filed_under(1, f"photo {i}") for i in range(10)]
    assert found == [1, 1, 1, 1, 3, 1, 7, 3, 8, 8]


def test_what_found_a_place_is_counted() -> None:
    """Offers that a full queue refuses are no insertions."""
    cache = Cache(np.eye(2, 4), 1, seeded=False)
    cache.filing = filing = LabelNoise(1.0, {}, 2, 0)
    for number, entropy in enumerate((0.5, 0.9, 0.1)):
        cache.offer(0, np.ones(4), entropy, number)
    assert filing.as_record() == {"insertions": 2, "mislabelled": 2}
    assert [len(cache.entries(k)) for k in (0, 1)] == [0, 1]
    assert "filing" not in cache.state()


def test_what_crg_derives_follows_the_queue_that_was_used(stream: Features) -> None:
    """Prototypes and precision are those of the cache as it is, read off it from scratch."""
    adapter = crg.create("crg", stream.task)
    method: Any = adapter._method
    method.cache.filing = LabelNoise(0.5, {}, 5, 0)
    list(iter_run(adapter, stream, range(80)))
    prototypes, precision = VisualPrototypes(method.cache), Precision(method.cache)
    np.testing.assert_allclose(method.visual.positive, prototypes.positive, atol=1e-6)
    np.testing.assert_allclose(method.visual.total, prototypes.total, atol=1e-6)
    rows = np.eye(12)
    kept_up, fresh = method.gaussian.precision.solve(rows), precision.solve(rows)
    np.testing.assert_allclose(kept_up, fresh, atol=1e-2 * np.abs(fresh).max())


def test_the_negative_cache_of_tda_is_not_misled(stream: Features) -> None:
    """Only the queues that are shown to people are; what is possible stays in its place."""
    clean, misled = (crg.create("tda", stream.task) for _ in range(2))
    misled._method.file_with(LabelNoise(0.5, {}, 5, 0))
    states = []
    for adapter in (clean, misled):
        list(iter_run(adapter, stream, range(80)))
        states.append(adapter._method.state())
    for name in ("negative.features", "negative.entropies", "masks"):
        np.testing.assert_array_equal(states[0][name], states[1][name])
    assert not np.array_equal(states[0]["positive.features"], states[1]["positive.features"])


@pytest.mark.parametrize("method", CACHED)
def test_a_run_counts_what_it_misfiled(method: str, stream: Features) -> None:
    """The fraction of what was kept got a wrong class, and the cache is less pure for it.

    With a fraction of zero, or a filing that never hits, a run is the same to the last bit.
    """
    expected: list[Any] = []
    clean = run(stream, method, on_step=lambda s: expected.append(s.prediction.logits.tolist()))
    assert clean.metrics["mislabelled"] is None
    adapter = crg.create(method, stream.task)
    assert adapter._method.file_with(LabelNoise(0.0, {}, 5, 0))
    steps = iter_run(adapter, stream, shuffled(80, 0), block=32)
    assert [step.prediction.logits.tolist() for step in steps] == expected
    noisy = run(stream, method, scenario=Scenario(mislabelled=0.5))
    counts = noisy.metrics["mislabelled"]
    assert counts["insertions"] >= 15
    assert abs(counts["mislabelled"] - 0.5 * counts["insertions"]) <= 1
    assert noisy.metrics["purity"] < clean.metrics["purity"]
    assert noisy.zero_shot["predicted"] == clean.zero_shot["predicted"]
    assert noisy.zero_shot["mislabelled"] is None  # it has nothing to misfile
