"""Evaluation: steps, what is measured from them, and that methods see no label."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import crg
from crg import Task, metrics
from crg.evaluate import evenly_spaced, iter_run, run
from crg.features.files import Features, read_features
from crg.results.measurements import unpacked_bits
from crg.results.schema import encode
from crg.streams import Scenario
from crg.streams.orders import shuffled
from crg.types import Step
from made_files import save_raw
from sentences import check_refused
from synthetic import gaussian_stream


@pytest.fixture(scope="module")
def stream() -> Features:
    """A small labelled stream."""
    return gaussian_stream(n=60, n_classes=4, width=12)


def test_a_step_per_image_in_the_given_order(stream: Features) -> None:
    """Each step carries the image's own id and label, and purity at checkpoints alone."""
    adapter = crg.create("tda", stream.task)
    steps = list(iter_run(adapter, stream, [5, 3, 9], checkpoints=[1]))
    assert stream.labels is not None
    assert [step.sample_id for step in steps] == [6, 4, 10]
    assert [step.label for step in steps] == stream.labels[[5, 3, 9]].tolist()
    assert [step.index for step in steps] == [0, 1, 2]
    assert [step.purity is None for step in steps] == [True, False, True]
    assert all(step.milliseconds >= 0 for step in steps)
    next(iter_run(adapter, stream, range(10)))
    assert adapter.n_steps == 4  # nothing is computed ahead of what is asked for


def test_zero_shot_is_measured_as_by_hand(stream: Features) -> None:
    """Accuracy, calibration and likelihood are those of softmax(s f . t)."""
    assert stream.labels is not None
    logits = 100 * stream.image_features @ stream.task.text_features.T
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    right = logits.argmax(axis=1) == stream.labels
    measured = run(stream, "zero_shot", seed=3).metrics
    assert measured["accuracy"] == right.mean()
    error = metrics.expected_calibration_error(probs.max(axis=1), right)
    assert measured["ece"] == pytest.approx(error, abs=1e-5)
    nll = metrics.surprises(logits, stream.labels).mean()
    assert measured["nll"] == pytest.approx(nll, rel=1e-4)
    by_class = metrics.per_class_accuracy(logits.argmax(axis=1), stream.labels, 4)
    assert list(measured["per_class_accuracy"].values()) == by_class.tolist()
    np.testing.assert_array_equal(unpacked_bits(measured["correct"], 60), right)


def test_rankings_are_measured_as_by_hand(stream: Features) -> None:
    """``outside`` over all images, confidence over those that have a class; None without others."""
    steps: list[Step] = []
    outsiders = Scenario("out_of_distribution", 0.3)
    measured = run(stream, "tda", seed=1, on_step=steps.append, scenario=outsiders).metrics
    outside = [step.prediction.decision.outside for step in steps]
    expected = roc_auc_score([step.label is None for step in steps], outside)
    assert measured["outside_auroc"] == pytest.approx(expected)
    answers = [(step.prediction, step.label) for step in steps if step.label is not None]
    confidence = np.array([float(answer.probs[answer.label]) for answer, _ in answers])
    right = np.array([answer.label == label for answer, label in answers])
    assert measured["aurc"] == metrics.risk_coverage_area(confidence, right)
    assert measured["accuracy_at_90"] == metrics.accuracy_at_coverage(confidence, right, 0.9)
    assert run(stream, "tda").metrics["outside_auroc"] is None


def test_two_passes_answer_when_all_images_were_seen(stream: Features) -> None:
    """The answers that count are those of the adapter's second pass, in the stream's order."""
    rows = shuffled(60, 2)
    images = [(int(row), stream.image_features[row]) for row in rows]
    adapter = crg.create("anchored", stream.task)
    for name, image in images:
        adapter.step(image, name)
    again = np.full(60, -1)
    again[rows] = [prediction.label for prediction in adapter.second_pass(images)]
    result = run(stream, "anchored", seed=2, scenario=Scenario(passes=2))
    np.testing.assert_array_equal(
        unpacked_bits(result.metrics["correct"], 60), again == stream.labels
    )
    assert result.metrics["nll"] != run(stream, "anchored", seed=2).metrics["nll"]


def test_a_run_has_its_configuration_and_zero_shot(stream: Features) -> None:
    """The result names every option, and zero-shot is beside it; a path is no features."""
    result = run(stream, "tda", seed=1)
    config = dataclasses.asdict(crg.create("tda", stream.task).config)
    assert result.options == config
    assert result.zero_shot["accuracy"] == run(stream, "zero_shot").metrics["accuracy"]
    assert (result.method, result.seed, result.n_samples) == ("tda", 1, 60)
    assert encode(result)
    check_refused("read_features", run, "features.npz", "zero_shot")


def test_purity_is_the_share_of_rightly_cached_images(stream: Features) -> None:
    """The last purity is counted again by hand from the adapter's cache."""
    adapter = crg.create("tda", stream.task)
    steps = list(iter_run(adapter, stream, shuffled(60, 0)))
    assert stream.labels is not None
    cached = [
        (name, entry.sample_id)
        for name, entries in adapter.cache.items()
        for entry in entries
        if isinstance(entry.sample_id, int)
    ]
    names = stream.task.class_names
    right = sum(names[stream.labels[number - 1]] == name for name, number in cached)
    assert cached
    assert steps[-1].purity == right / len(cached)
    over_time = run(stream, "tda", seed=0).metrics["purity_over_time"]
    assert len(over_time) == 20
    assert over_time[-1] == [60, steps[-1].purity]


def test_labels_do_not_reach_the_method(stream: Features) -> None:
    """With all labels changed the predictions stay the same to the last bit."""
    assert stream.labels is not None
    lied_to = dataclasses.replace(stream, labels=(stream.labels + 1) % 4)
    unlabelled = dataclasses.replace(stream, labels=None)
    answers = [
        [step.prediction.logits.tolist() for step in iter_run(adapter, each, range(60))]
        for each in (stream, lied_to, unlabelled)
        for adapter in [crg.create("tda", each.task)]
    ]
    assert answers[0] == answers[1] == answers[2]


def test_files_are_run_as_they_are(tmp_path: Path) -> None:
    """Half precision is computed in single, ids reach the steps, labels are not needed."""
    images = np.random.default_rng(0).standard_normal((12, 8))
    ids = np.array([f"image {i}" for i in range(12)])
    for stored, computed in (("f2", "f4"), ("f4", "f4"), ("f8", "f8")):
        changes = {"image_features": images.astype(stored), "ids": ids}
        features = read_features(save_raw(tmp_path / f"{stored}.npz", **changes))
        steps = list(iter_run(crg.create("tda", features.task), features, range(12)))
        assert steps[0].prediction.logits.dtype == np.dtype(computed)
        assert steps[4].sample_id == "image 4" and steps[-1].purity is not None
    bare = read_features(save_raw(tmp_path / "bare.npz", labels=None))
    assert set(run(bare, "zero_shot").metrics) == {"ms_per_step", "ms_per_step_median"}


@pytest.mark.parametrize("n", [1, 3, 19, 20, 21, 1500])
def test_checkpoints_end_with_the_last_step(n: int) -> None:
    """There are at most twenty, within the stream, the last step among them."""
    stops = evenly_spaced(n)
    assert max(stops) == n - 1
    assert min(stops) >= 0
    assert len(stops) == min(n, 20)


def test_other_methods_do_not_see_generated_views() -> None:
    """A method that does not ask for generated views answers as if they were not there."""
    rng = np.random.default_rng(0)
    task = Task(["a", "b", "c"], rng.standard_normal((3, 8)))
    views, labels = rng.standard_normal((40, 6, 8)), np.arange(40) % 3
    ordinary = crg.evaluate.run(Features(views[:, :4], task, labels), "tda")
    with_more = crg.evaluate.run(Features(views, task, labels, generated=2), "tda")
    all_seen = crg.evaluate.run(Features(views, task, labels), "tda")
    assert ordinary.metrics["nll"] == with_more.metrics["nll"] != all_seen.metrics["nll"]
