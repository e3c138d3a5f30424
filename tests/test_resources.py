"""What some methods need beyond a task; GDA and Tip-Adapter by hand and by formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crg
from crg import Features, Task
from crg.encoders import equipped, load_text_encoder
from crg.features.joining import with_few
from crg.parts.precision import on_grid
from crg.resources import FEW, TEXT_ENCODER, FewShot
from sentences import check_refused
from synthetic import Floats, clustered

NAMES = ("cat", "dog", "fox")
METHODS = ("tip_adapter", "gda")
TEXT, VIEWS = clustered(seed=5, n=40, n_classes=3, width=8)
STREAM, ROWS = VIEWS[:22, 0], VIEWS[22:, 0]
LABELS = tuple(int(k) for k in np.argmax(ROWS @ TEXT.T, axis=1))


def features(names: tuple[str, ...] = NAMES, seed: int = 0, views: int | None = None) -> Features:
    """Twelve labelled images near the unit vectors of their classes."""
    rng = np.random.default_rng(seed)
    directions = {name: np.eye(3, 8)[place] for place, name in enumerate(NAMES)}
    labels = np.arange(12) % len(names)
    rows = np.stack([directions[names[label]] for label in labels])
    shape = rows.shape if views is None else (12, views, 8)
    rows = rows if views is None else np.repeat(rows[:, None], views, axis=1)
    text = np.stack([directions[name] for name in names])
    return Features(rows + 0.1 * rng.standard_normal(shape), Task(names, text), labels)


def test_shots_are_the_first_of_each_class() -> None:
    """So many images of each class stay, in their order; each needs a label."""
    few = FewShot(np.eye(5), (0, 1, 0, 0, 1)).shots(2)
    assert few.labels == (0, 1, 0, 1)
    assert few.features.argmax(axis=1).tolist() == [0, 1, 2, 4]
    check_refused("one label each", FewShot, np.eye(3), (0, 1))


def test_labelled_images_reach_the_method() -> None:
    """They come from the file itself, or from another one whatever the order of its classes."""
    given = features()
    rows = np.asarray(given.image_features)
    whole = Features(rows, given.task, given.labels, few_features=rows, few_labels=given.labels)
    joined = with_few(features(), features(("fox", "cat", "dog"), seed=1, views=3))
    for each in (whole, joined):
        strong = crg.evaluate.run(each, "tip_adapter", {"alpha": 1000.0})
        assert strong.metrics["accuracy"] == 1.0


def test_other_classes_widths_and_missing_labels_are_refused() -> None:
    """Labelled images must be labelled, of the same classes and from the same model."""
    given, other = features(), features(seed=1)
    check_refused("no labels", with_few, given, Features(other.image_features, other.task))
    check_refused("'fox'", with_few, given, features(("cat", "dog")))
    wide = Features(np.eye(4, 9), Task(NAMES, np.eye(3, 9)), np.array([0, 1, 2, 0]))
    check_refused("9 wide", with_few, given, wide)


def test_labelled_images_go_with_their_class(tmp_path: Path) -> None:
    """The others are renumbered and saved, also when none is left, and answer as before."""
    task = Task(NAMES, np.eye(3, 8)).with_resources({FEW: FewShot(np.eye(3, 8), (0, 1, 1))})
    adapter = crg.create("tip_adapter", task)
    for name, left, rows in (("cat", (0, 0), [1, 2]), ("dog", (), [])):
        adapter.add_class(f"not {name}", np.eye(8)[5 + len(left)])
        adapter.remove_class(name)
        adapter.save(tmp_path / "state")
        again = crg.load(tmp_path / "state")
        few = again.task.resources[FEW]
        assert few.labels == left and few.features.argmax(axis=1).tolist() == rows
        views = np.ones(8)
        assert np.array_equal(adapter.step(views).logits, again.step(views).logits)


def test_models_without_embeddings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text encoder is loaded only where one is needed, and refused if it takes no embeddings."""
    task = Task(NAMES, np.eye(3, 8))
    assert equipped(task, (), "mini") is task and equipped(task, (TEXT_ENCODER,), None) is task
    load_text_encoder.cache_clear()
    monkeypatch.setattr("crg.encoders.load_encoder", lambda name: object())
    check_refused(("onnx:here", "open_clip"), load_text_encoder, "onnx:here")


def task_with(rows: Any, labels: Any) -> crg.Task:
    """Three classes with these labelled images."""
    return crg.Task(NAMES, TEXT, 20.0, {FEW: FewShot(rows, tuple(labels))})


def logits_of(adapter: crg.Adapter, stream: Any = STREAM) -> Any:
    """All logits, (N, K)."""
    return np.stack([np.asarray(p.logits) for p in adapter.step_many(stream)])


def zero_shot(rows: list[int]) -> Any:
    """The zero-shot logits of some classes."""
    return 20.0 * STREAM @ TEXT[rows].T


@pytest.fixture(params=METHODS)
def adapter(request: pytest.FixtureRequest) -> crg.Adapter:
    """Each method at its defaults."""
    return crg.create(request.param, task_with(ROWS, LABELS))


@pytest.mark.parametrize("method", METHODS)
def test_bad_input_is_refused(method: str) -> None:
    """No labelled images, ones that do not fit the task, and options out of range."""
    task = task_with(ROWS, LABELS)
    check_refused(("labelled images", "few_features"), crg.create, method, crg.Task(NAMES, TEXT))
    check_refused(("5 wide", "same model"), crg.create, method, task_with(ROWS[:, :5], LABELS))
    check_refused("label 3", crg.create, method, task_with(ROWS, (*LABELS[:-1], 3)))
    check_refused("whole number from 0", task_with, ROWS, (*LABELS[:-1], -1))
    for name, value in (("shots", -1), ("shots", 1.5), ("alpha", -0.1)):
        check_refused(repr(name), crg.create, method, task, **{name: value})


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_removed_class_takes_its_images_along(adapter: crg.Adapter, comes_back: bool) -> None:
    """In mid-stream it counts as if its images, and the class if it stays away, had never been."""
    logits_of(adapter)
    adapter.remove_class("dog")
    kept = [row for row, label in enumerate(LABELS) if label != 1]
    few = {FEW: FewShot(ROWS[kept], tuple(LABELS[row] // 2 for row in kept))}  # fox is 1 now
    if comes_back:
        adapter.add_class("dog", TEXT[1])
    names, text = ("cat", "fox", "dog")[: 2 + comes_back], TEXT[[0, 2, 1][: 2 + comes_back]]
    fresh = crg.create(adapter.name, crg.Task(names, text, 20.0, few))
    np.testing.assert_array_equal(logits_of(adapter), logits_of(fresh))


@pytest.mark.parametrize("method", METHODS)
def test_without_any_image_left_it_is_zero_shot(method: str) -> None:
    """When the only class with labelled images goes, the others are classified by text."""
    adapter = crg.create(method, task_with(ROWS[:4], (0, 0, 0, 0)))
    adapter.remove_class("cat")
    np.testing.assert_allclose(logits_of(adapter), zero_shot([1, 2]), rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_images_are_taken_in_the_precision_of_the_task(method: str) -> None:
    """Labelled images in double precision beside text in single give single logits."""
    few = {FEW: FewShot(ROWS, LABELS)}
    single = crg.create(method, crg.Task(NAMES, TEXT.astype(np.float32), 20.0, few))
    assert single.step(STREAM[0]).logits.dtype == np.float32
    double = logits_of(crg.create(method, task_with(ROWS, LABELS)))
    np.testing.assert_allclose(logits_of(single), double, rtol=0, atol=1e-3)
    reverse = logits_of(crg.create(method, task_with(ROWS[::-1], LABELS[::-1])))
    np.testing.assert_allclose(reverse, double, rtol=1e-10)  # their order does not matter


K, D, SCALE = 4, 10, 25.0


def images(seed: int = 0, each: int = 12) -> tuple[Floats, Floats, Floats, Any]:
    """Text (K, D), a stream (30, D), labelled images, ``each`` of every class, and labels."""
    text, views = clustered(seed=seed, n=30, n_classes=K, width=D)
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(K), each)
    shift = 0.5 * rng.normal(size=(K, D))
    rows = text[labels] + shift[labels] + 0.2 * rng.normal(size=(len(labels), D))
    return text, views[:, 0], rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


def create(text: Any, rows: Any, labels: Any, method: str = "gda", **options: Any) -> crg.Adapter:
    """The method with these labelled images."""
    few = {FEW: FewShot(rows, tuple(labels.tolist()))}
    task = crg.Task([f"c{k}" for k in range(len(text))], text, SCALE, few)
    return crg.create(method, task, **options)


def discriminant(stream: Any, rows: Any, labels: Any, grid: bool = True, means: Any = None) -> Any:
    """f . P mu - 1/2 mu . P mu with P = D (S + r I)^-1, straight from the paper."""
    centred = [rows[labels == k] - rows[labels == k].mean(0) for k in sorted(set(labels))]
    scatter = sum(part.T @ part for part in centred)
    ridge = np.trace(scatter) / (len(rows) - 1)
    ridge = on_grid(ridge) if grid else ridge
    if means is None:
        means = np.stack([rows[labels == k].mean(0) for k in range(K)])
    weights = D * means @ np.linalg.inv(scatter + ridge * np.eye(D))
    return stream @ weights.T - 0.5 * np.sum(weights * means, axis=1)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
def test_logits_equal_the_formula(alpha: float) -> None:
    """logits = s f.t + alpha (w.f + b), with numbers of shots that differ between classes."""
    text, stream, rows, labels = images(seed=1)
    rows, labels = rows[5:40], labels[5:40]
    expected = SCALE * stream @ text.T + alpha * discriminant(stream, rows, labels)
    got = logits_of(create(text, rows, labels, alpha=alpha), stream)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def test_the_ridge_and_a_single_shot() -> None:
    """The grid of r moves logits by 1% at most; one shot has no scatter and is zero-shot."""
    for seed in range(10):
        text, stream, rows, labels = images(seed)
        exact = discriminant(stream, rows, labels, grid=False)
        got = logits_of(create(text, rows, labels), stream) - SCALE * stream @ text.T
        assert np.abs(got - exact).max() <= 0.011 * np.abs(exact).max()
    text, stream, rows, labels = images()
    got = logits_of(create(text, rows, labels, shots=1), stream)
    np.testing.assert_allclose(got, SCALE * stream @ text.T, rtol=1e-12)


def test_a_class_without_labelled_images_stands_at_the_mean_of_the_others() -> None:
    """Its Gaussian is centred on the mean of the labelled classes' means, with their precision."""
    text, stream, rows, labels = images(seed=2)
    known = labels != 2
    rows, labels = rows[known], labels[known]
    means = np.stack([rows[labels == k].mean(0) if k != 2 else np.zeros(D) for k in range(K)])
    means[2] = means[[0, 1, 3]].mean(0)
    expected = SCALE * stream @ text.T + discriminant(stream, rows, labels, means=means)
    np.testing.assert_allclose(logits_of(create(text, rows, labels), stream), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("shots", "options"), [(0, {"alpha": 2.0, "beta": 3.0}), (1, {}), (2, {}), (1000, {})]
)
def test_equals_the_product_with_one_hot_labels(shots: int, options: dict[str, float]) -> None:
    """logits = s f W^T + alpha exp(-beta (1 - f F^T)) L, with the first shots of each class as F.

    Only the original view counts.
    """
    alpha, beta = options.get("alpha", 1.0), options.get("beta", 5.5)
    text, views = clustered(seed=3, n=90, n_classes=5, width=12, n_views=3)
    keys, stream = views[:60, 0], views[60:, 0]
    labels = np.random.default_rng(0).integers(4, size=60)  # the last class has none
    adapter = create(text, keys, labels, "tip_adapter", shots=shots, **options)
    kept = np.concatenate([np.flatnonzero(labels == k)[: shots or None] for k in range(5)])
    cached = np.exp(-beta * (1 - stream @ keys[kept].T)) @ np.eye(5)[labels[kept]]
    expected = SCALE * stream @ text.T + alpha * cached
    np.testing.assert_allclose(logits_of(adapter, views[60:]), expected, rtol=1e-12)
