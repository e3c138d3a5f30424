"""Orders of a stream: which images come, how often and when."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crg.features.files import Features
from crg.resources import FEW
from crg.streams import ORDERS, Scenario, orders
from crg.streams.orders import lay_out, shuffled
from crg.types import Task
from sentences import check_refused, refused_in_one_sentence
from synthetic import gaussian_stream

LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=80).map(np.array)
SEEDS = st.integers(0, 1000)


def made(n: int = 120, n_classes: int = 6, n_domains: int = 1, **more: Any) -> Features:
    """A file whose classes and domains all have equally many images."""
    rng = np.random.default_rng(0)
    task = Task([f"class {k}" for k in range(n_classes)], rng.standard_normal((n_classes, 8)))
    images = rng.standard_normal((n, 8)).astype(np.float32)
    domains = np.arange(n) * n_domains // n
    more = {"labels": np.arange(n) % n_classes, "domains": domains} | more
    return Features(images, task, **more)


@given(LABELS, SEEDS)
def test_orders_of_all_images_show_each_once(labels: Any, seed: int) -> None:
    """Every image comes once, as the seed decides: classes in runs, domains by their number."""
    for order in (orders.by_class, orders.by_domain, orders.dirichlet):
        rows = order(labels, seed)
        assert sorted(rows.tolist()) == list(range(len(labels)))
        assert rows.tolist() == order(labels, seed).tolist()
    runs = [k for k, _ in itertools.groupby(labels[orders.by_class(labels, seed)].tolist())]
    assert len(runs) == len(set(labels.tolist()))
    assert (np.diff(labels[orders.by_domain(labels, seed)]) >= 0).all()


@given(LABELS, SEEDS, st.floats(1, 100))
def test_the_long_tail_has_the_promised_counts(labels: Any, seed: int, factor: float) -> None:
    """Sorted by rank the classes keep n factor^(-r/(K-1)), at least one, at most all."""
    rows = orders.imbalanced(labels, seed, factor)
    assert len(set(rows.tolist())) == len(rows)
    sizes = np.bincount(labels, minlength=6)
    kept = np.bincount(labels[rows], minlength=6)
    assert ((kept >= 1) == (sizes >= 1)).all() and (kept <= sizes).all()
    if len(set(sizes[sizes > 0].tolist())) == 1:
        k = int((sizes > 0).sum())
        wanted = [max(1, round(sizes.max() * factor ** (-r / max(1, k - 1)))) for r in range(k)]
        assert sorted(kept[kept > 0].tolist(), reverse=True) == wanted


@given(LABELS, SEEDS, st.floats(0.01, 1))
def test_few_classes_come_with_all_their_images(labels: Any, seed: int, share: float) -> None:
    """ceil(share K) classes, at least two as far as there are, and all of their images."""
    rows = orders.few_present(labels, 6, seed, share)
    present = set(labels[rows].tolist())
    assert len(present) == min(len(set(labels.tolist())), max(2, int(np.ceil(share * 6 - 1e-9))))
    assert sorted(rows.tolist()) == np.flatnonzero(np.isin(labels, list(present))).tolist()


@given(st.integers(3, 40), SEEDS, st.floats(0.01, 1))
def test_outside_classes_leave_a_task(n_classes: int, seed: int, share: float) -> None:
    """At least one class goes and at least two stay."""
    gone = orders.outside_classes(np.arange(n_classes), n_classes, seed, share)
    assert 1 <= len(set(gone)) == len(gone) <= n_classes - 2
    assert set(gone) <= set(range(n_classes))


def test_bursts_grow_with_less_concentration() -> None:
    """At strength 0.1 neighbours are far more often of one class than in a plain shuffle."""
    labels = np.arange(2000) % 20

    def alike(rows: Any) -> float:
        return float((np.diff(labels[rows]) == 0).mean())

    bursts, mixed = orders.dirichlet(labels, 0), orders.dirichlet(labels, 0, 1000.0)
    assert alike(bursts) > 0.3
    assert alike(mixed) == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize("order", ORDERS)
def test_the_seed_decides_and_differs(order: str) -> None:
    """The same seed gives the same stream and another seed another one."""
    features = made(n_domains=3)
    first, again, other = (lay_out(features, Scenario(order), seed) for seed in (1, 1, 2))
    assert first.rows.dtype == np.int64
    assert first.rows.tolist() == again.rows.tolist() != other.rows.tolist()
    assert first.labels is not None and again.labels is not None
    assert first.labels.tolist() == again.labels.tolist()
    if order == "few_present":  # the method still chooses among all classes
        assert first.features.task.n_classes == 6 and len(first.rows) == 40


@given(st.integers(1, 60), SEEDS)
def test_a_plain_scenario_is_the_shuffle_of_old(n: int, seed: int) -> None:
    """Results of earlier versions stay comparable: the rows are those of ``shuffled``."""
    features = gaussian_stream(n=n, n_classes=3, width=8)
    for limit in (None, 5000):  # more images than there are means all of them
        laid_out = lay_out(features, Scenario(images=limit), seed)
        assert laid_out.rows.tolist() == shuffled(n, seed).tolist()
    assert laid_out.features is features and laid_out.labels is features.labels
    assert shuffled(8, 0).tolist() == [2, 4, 3, 6, 5, 0, 1, 7]  # for ever


@pytest.mark.parametrize("order", [order for order in ORDERS if order != "many_names"])
def test_a_limited_stream_has_the_same_images_for_every_seed(order: str) -> None:
    """What may come is drawn once; orders that leave none out show exactly that."""
    features, limited = made(n_domains=2), Scenario(order, images=40)
    streams = [lay_out(features, limited, seed).rows.tolist() for seed in range(4)]
    allowed = set(lay_out(features, Scenario(images=40), 9).rows.tolist())
    assert len(allowed) == 40
    for rows in streams:
        assert set(rows) <= allowed and len(set(rows)) == len(rows)
        assert order in ("imbalanced", "few_present") or len(rows) == 40


def test_many_names_has_the_images_of_one_file_and_the_names_of_all() -> None:
    """The images are those of the first file; names that are made up look like the others."""
    features = made(n_domains=2)
    laid = lay_out(features, Scenario("many_names", strength=500.0), 1)
    assert sorted(laid.rows.tolist()) == np.flatnonzero(features.domains == 0).tolist()
    task, text = laid.features.task, np.asarray(features.task.text_features)
    known = len(features.task.class_names)
    assert task.class_names[:known] == features.task.class_names
    assert task.n_classes == known + 500
    drawn = np.asarray(task.text_features)[known:]
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(drawn.mean(axis=0), text.mean(axis=0), atol=0.15)
    again = lay_out(features, Scenario("many_names", strength=500.0), 2).features.task
    assert np.array_equal(again.text_features, task.text_features)  # whatever the seed
    plain = lay_out(features, Scenario("many_names", images=5), 1)
    assert plain.features.task is features.task and len(plain.rows) == 5


def test_a_limit_is_shared_by_the_domains() -> None:
    """Each file gives equally many, and where one has too few the others make up for it."""
    domains = np.repeat([0, 1, 2], [10, 50, 60])
    rows = lay_out(made(domains=domains), Scenario("domains", images=61), 0).rows
    assert np.bincount(domains[rows]).tolist() == [10, 25, 26]


def test_out_of_distribution_are_in_the_stream_and_not_in_the_task() -> None:
    """Their classes are gone, with their labelled images; the others keep name and row."""
    features = made(few_features=np.eye(6, 8, dtype=np.float32), few_labels=np.arange(6))
    laid_out = lay_out(features, Scenario("out_of_distribution", 0.34), seed=1)
    task, labels = laid_out.features.task, laid_out.labels
    assert task.n_classes == 4 and labels is not None and features.labels is not None
    assert sorted(laid_out.rows.tolist()) == list(range(120))
    assert (labels == -1).sum() == 40
    for label, was in zip(labels.tolist(), features.labels.tolist(), strict=True):
        name = features.task.class_names[was]
        assert name not in task.class_names if label == -1 else task.class_names[label] == name
    few = task.resources[FEW]
    assert few.labels == (0, 1, 2, 3)
    for row, label in zip(np.asarray(few.features), few.labels, strict=True):
        assert f"class {row.argmax()}" == task.class_names[label]
    assert laid_out.features.labels is None


def test_out_of_distribution_may_take_all_labelled_images_along() -> None:
    """Where only a class that goes had labelled images, none are left and nothing breaks."""
    labels = np.zeros(60, dtype=int)
    labels[:5] = 1
    few: Any = {"few_features": np.ones((2, 8)), "few_labels": np.array([0, 1])}
    features = made(n=60, n_classes=3, labels=labels, **few)
    left = [lay_out(features, Scenario("out_of_distribution", 0.1), seed) for seed in range(6)]
    kept = {each.features.task.resources[FEW].labels for each in left}
    assert kept == {(0,)}  # of two classes with images one goes


def test_what_cannot_be_laid_out_is_refused() -> None:
    """Orders by class need labels, domains several files, out_of_distribution a third class."""
    unlabelled = made(labels=None, domains=None)
    assert lay_out(unlabelled, Scenario(), 0).labels is None
    for order in ("by_class", "dirichlet", "imbalanced", "few_present", "out_of_distribution"):
        check_refused((order, "labels"), lay_out, unlabelled, Scenario(order), 0)
    check_refused("several files", lay_out, unlabelled, Scenario("domains"), 0)
    check_refused("at least three", lay_out, made(n_classes=2), Scenario("out_of_distribution"), 0)
    one_class = made()
    object.__setattr__(one_class, "labels", np.zeros_like(one_class.labels))
    with refused_in_one_sentence("two of them with images", "1 with images"):
        lay_out(one_class, Scenario("out_of_distribution"), 0)
    check_refused("seed", lay_out, made(), Scenario("by_class"), -1)


@pytest.mark.parametrize(
    "facts",
    [
        *({"order": "sorted"}, {"mislabelled": 1.1}, {"images": 0}, {"passes": 3}),
        *({"order": order, "strength": odd} for order, odd in (
            ("shuffled", 2.0), ("out_of_distribution", 1.5), ("few_present", 0.0),
            ("imbalanced", 0.5), ("dirichlet", -1.0))),
    ],
)  # fmt: skip
def test_a_scenario_that_is_none_is_refused(facts: dict[str, Any]) -> None:
    """Unknown orders, and strengths and shares out of range, are reported before any work."""
    check_refused((), Scenario, **facts)
