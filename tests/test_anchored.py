"""The anchored Gaussian against its plain form, with views, corrections, noise and fading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crg
from anchored_oracle import AnchoredOracle
from crg.evaluate import run
from crg.features.files import Features
from crg.parts.soft_counts import spread
from sentences import check_refused
from synthetic import clustered, unit

TOLERANCE = {"float64": 1e-8, "float32": 1e-4}


class Pair:
    """The plain form, and an adapter in each precision, which see the same images and agree."""

    def __init__(self, text: Any, scale: float = 20.0, **options: Any) -> None:
        names = [f"class {k}" for k in range(len(text))]
        tasks = {dtype: crg.Task(names, np.asarray(text, dtype), scale) for dtype in TOLERANCE}
        self.adapters = {d: crg.create("anchored", task, **options) for d, task in tasks.items()}
        self.adapter = self.adapters["float64"]
        self.plain = AnchoredOracle(tasks["float64"].text_features, scale, self.adapter.config)
        self.n_changed = 0  # answers that are not zero-shot's

    def step(self, views: Any) -> None:
        """One image for all."""
        rows = self.adapter._sample(views, None).views  # normalised as the adapter does it
        expected = self.plain.step(rows)
        largest, best = np.abs(expected).max(), np.sort(expected)[-2:]
        for dtype, adapter in self.adapters.items():
            got, allowed = adapter.step(rows.astype(dtype)), TOLERANCE[dtype] * largest
            assert np.abs(got.logits - expected).max() <= allowed, dtype
            if best[1] - best[0] > allowed:  # no tie up to rounding
                assert got.label == expected.argmax()
        self.n_changed += int(expected.argmax() != (self.plain.text @ rows[0]).argmax())

    def correct(self, image: int, label: int) -> None:
        """One correction for all; an adapter counts images from 1."""
        for adapter in self.adapters.values():
            adapter.correct(image + 1, f"class {label}")
        self.plain.correct(image, label)

    def add_class(self, name: str, text: Any) -> None:
        """One class more for all."""
        for adapter in self.adapters.values():
            adapter.add_class(name, text)
        self.plain.add_class(np.asarray(self.adapter.task.text_features[-1, :]))

    def remove_class(self, name: str) -> None:
        """One class less for all."""
        self.plain.remove_class(self.adapter.task.index_of(name))
        for adapter in self.adapters.values():
            adapter.remove_class(name)


@pytest.mark.parametrize(("width", "scale"), [(24, 20.0), (96, 100.0)])
def test_equals_its_plain_form_over_1200_images(width: int, scale: float) -> None:
    """Labels and logits agree at every step, with classes coming and going."""
    text, stream = clustered(seed=3, n=1200, n_classes=14, width=width)
    pair = Pair(text[:10], scale)
    for place, views in enumerate(stream):
        if place % 120 == 60:
            pair.add_class(f"late {place}", text[10 + place // 120 % 4])
        if place % 120 == 110:
            pair.remove_class(pair.adapter.task.class_names[place % 7])
        pair.step(views[0])
    assert pair.n_changed > 100


@pytest.mark.parametrize(
    "options",
    [
        {"half_life": 60.0},
        {"power": 1.0, "strictness": 3.0, "ready": 1.0, "rate": 0.1, "first_weight": 0.2},
        {"balance": 1.0, "refresh": 3.0, "floor": 0.05, "firmest": 5.0},
        {"growth": 1.0},
        {"views": "blend"},
        {"views": "original"},
        {"views": "always"},
    ],
    ids=str,
)
def test_equals_its_plain_form_with_other_options(options: dict[str, Any]) -> None:
    """The agreement does not hang on the default constants, nor on a single view.

    Some views contradict the original, so often that for a while they are left out.
    """
    n_views = 5 if "views" in options else 1
    text, stream = clustered(seed=5, n=400, n_classes=8, width=24, n_views=n_views)
    stream[40:90, 1:] *= -1.0
    pair = Pair(text, **options)
    for place, views in enumerate(stream):
        if place == 300:
            pair.remove_class("class 2")
        pair.step(views)


@pytest.mark.parametrize("half_life", [0.0, 30.0])
def test_corrections_take_back_what_the_image_counted(half_life: float) -> None:
    """A corrected image counts one, or what is left of it, again after a second correction."""
    text, stream = clustered(seed=4, n=300, n_classes=8, width=24)
    pair = Pair(text, half_life=half_life)
    for place, views in enumerate(stream[:120] if half_life else stream):
        for image in {40: (39, 20, 3), 90: (89, 70, 3), 200: (199, 180, 3)}.get(place, ()):
            pair.correct(image, (image + place) % 8)
        pair.step(views[0])


@pytest.mark.parametrize(
    "extreme", [{"half_life": 1.0}, {"half_life": 2.0}, {"firmest": 1e-6}, {"ready": 1e-300}]
)
def test_the_smallest_options_still_answer(extreme: dict[str, float]) -> None:
    """Images that fade at once, or a text that counts for nothing; less is refused."""
    text, stream = clustered(seed=4, n=600, n_classes=8, width=24)
    adapter = crg.create("anchored", crg.Task(list("abcdefgh"), text), **extreme)
    for views in stream:
        answer = adapter.step(views)
        assert np.isfinite(answer.logits).all() and not answer.diagnostics.events
    words = ("'half_life' is 0.04", "0 or at least 1")
    check_refused(words, crg.create, "anchored", adapter.task, half_life=0.04)
    check_refused("'firmest' is 1e-300", crg.create, "anchored", adapter.task, firmest=1e-300)


def test_only_the_latest_images_are_remembered() -> None:
    """What is no longer kept is refused with the remedy, and its feature is accepted."""
    text, stream = clustered(seed=4, n=30, n_classes=8, width=24)
    adapter = crg.create("anchored", crg.Task([str(k) for k in range(8)], text), memory=10)
    for views in stream:
        adapter.step(views)
    check_refused(("not remembered", "give its feature"), adapter.correct, 5, "3")
    method: Any = adapter._method
    before = method.seen.counts.copy()
    adapter.correct(stream[5, 0], "3", sample_id=5)
    np.testing.assert_allclose(method.seen.counts - before, np.eye(8)[3], atol=1e-12)
    adapter.correct(5, "4")  # it is remembered now
    np.testing.assert_allclose(method.seen.counts - before, np.eye(8)[4], atol=1e-12)


def test_purity_is_the_fraction_that_fell_to_the_true_class() -> None:
    """Purity sums what every image counted for its own class over what it counted at all."""
    text, stream = clustered(seed=9, n=50, n_classes=10, width=32)
    labels = (stream[:, 0] @ text.T).argmax(axis=1)
    task = crg.Task([f"class {k}" for k in range(10)], text, 20.0)
    result = run(Features(stream, task, labels), "anchored")
    z = 20.0 * stream[:, 0] @ text.T
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    r = np.where(p**1.5 < 1e-3, 0.0, p**1.5)
    assert result.metrics["purity"] == pytest.approx(r[np.arange(50), labels].sum() / r.sum())


def test_flat_probabilities_leave_zero_shot_as_it_is() -> None:
    """While no class has any evidence the answer is zero-shot's."""
    text = np.eye(200, 256)
    adapter = crg.create("anchored", crg.Task([str(k) for k in range(200)], text, 0.01))
    x = unit(np.random.default_rng(1).normal(size=256))
    for _ in range(5):
        np.testing.assert_allclose(adapter.step(x).logits, 0.01 * text @ x)


def test_a_second_pass_equals_its_plain_form() -> None:
    """All images are recounted by their answers, or as corrected, with the spread as it was."""
    text, images = clustered(seed=7, n=300, n_classes=9, width=24)
    pair = Pair(text)
    for views in images:
        pair.step(views[0])
    pair.correct(6, 0)
    expected = pair.plain.second_pass()
    got = np.stack([each.logits for each in pair.adapter.second_pass(list(enumerate(images, 1)))])
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
    method: Any = pair.adapter._method
    assert method.spread == pytest.approx(pair.plain.u)
    np.testing.assert_allclose(method.seen.counts, pair.plain.counts, rtol=1e-8)
    assert method.seen.n_images == 300 == pair.adapter.n_steps
    assert spread(method.seen.counts) > method.spread  # final answers are sharper


def test_names_that_no_image_resembles_change_nothing() -> None:
    """A hundred more names that get no evidence leave every label as it is."""
    text, images = clustered(seed=2, n=200, n_classes=6, width=24)
    text, images = np.pad(text, ((0, 0), (0, 8))), np.pad(images, ((0, 0), (0, 0), (0, 8)))
    foreign = np.pad(unit(np.random.default_rng(0).normal(size=(100, 8))), ((0, 0), (24, 0)))
    names = [str(k) for k in range(106)]
    short = crg.create("anchored", crg.Task(names[:6], text, 60.0))
    long = crg.create("anchored", crg.Task(names, np.concatenate([text, foreign]), 60.0))
    apart = []
    for views in images:
        few, many = short.step(views), long.step(views)
        assert few.label == many.label
        apart.append(np.abs(many.probs[:6] - few.probs).max())
    assert np.mean(apart) < 0.005
    spreads = [method._method.spread for method in (short, long)]  # type: ignore[attr-defined]
    assert spreads[0] == pytest.approx(spreads[1], rel=1e-4)
