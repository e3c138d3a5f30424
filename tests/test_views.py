"""Views: torchvision's to a rounding, the same compiled or not, and in order from any worker."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from crg import InputError
from crg.images import augmix, pixel_kernels, preprocessing
from crg.images import views as cutting
from crg.images.preprocessing import Preprocessing
from crg.images.views import Recipe, _random_numbers, iter_views, make_views, original, random_crop
from made_files import encoded, gradient, noise, same
from plain_views import (
    FILTERS,
    crop_place,
    plain_augmix,
    plain_crop,
    plain_normalised,
    plain_original,
)
from sentences import check_refused

CLIP = Preprocessing(32, (0.48, 0.46, 0.41), (0.27, 0.26, 0.28))
MANY = 12  # views: enough for the compiled kernels to be used
sides = st.one_of(st.integers(1, 12), st.integers(1, 500))
ROW = _random_numbers(0, "x", 2)[1]
draws = st.lists(st.floats(0, 1, exclude_max=True), min_size=64, max_size=64)


@pytest.fixture(params=["compiled", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run the test with the compiled kernels and again without them."""
    if request.param == "plain":
        for module in (preprocessing, cutting):
            monkeypatch.setattr(module, "pixel_kernels", lambda: None)
    else:
        assert pixel_kernels() is not None, "numba is missing: install crg-tta[fast]"
    yield request.param


def difference(one: Any, other: Any) -> int:
    """The largest between two images."""
    return int(np.abs(np.asarray(one).astype(int) - np.asarray(other).astype(int)).max())


def test_usual_originals() -> None:
    """Of usual sizes row 0 is what Pillow makes in one call, to the last bit, compiled or not."""
    for size in ((500, 375), (375, 500), (223, 448), (300, 900), (90, 90), (224, 224)):
        image, crop = noise(*size), original(*size, 224, "bicubic", squash=False)
        wanted = plain_original(image, Preprocessing(224, (0, 0, 0), (1, 1, 1)))
        for compiled in (True, False):
            assert difference(cut(image, crop, 224, compiled), wanted) == 0


@settings(max_examples=100, deadline=None)
@given(sides, sides, st.integers(1, 70), draws, st.sampled_from(sorted(FILTERS)), st.booleans())
@example(220, 2, 39, [0.0] * 64, "bicubic", False)  # a strip
@example(2, 220, 39, [0.0] * 64, "bicubic", False)
@example(3000, 2000, 8, ROW, "bicubic", False)  # large reductions and enlargements
@example(2, 2, 300, ROW, "bicubic", False)
@example(1, 1, 224, ROW, "bicubic", False)
@example(1, 2000, 16, ROW, "bicubic", True)
def test_originals_and_crops(
    width: int, height: int, side: int, draws: list[float], how: Any, squash: bool
) -> None:
    """Both are torchvision's to a rounding, and the same to the last bit compiled or not."""
    image, fit = noise(width, height), "squash" if squash else "shortest"
    wanted: Any = Preprocessing(side, (0, 0, 0), (1, 1, 1), how, fit)  # type: ignore[arg-type]
    place = random_crop(width, height, side, draws, 0.08)
    assert (place.left, place.top, place.width, place.height) == crop_place(width, height, draws)
    for crop, plain in (
        (original(width, height, side, how, squash), plain_original(image, wanted)),
        (place, plain_crop(image, draws, side)),
        (replace(place, interpolation=how), None),
    ):
        one, other = (cut(image, crop, side, compiled) for compiled in (True, False))
        assert same(one, other) and (plain is None or difference(one, plain) <= 1)


def cut(image: Image.Image, crop: Any, side: int, compiled: bool) -> Any:
    """One view, in one of the two forms."""
    out = np.zeros((side, side, 3), np.uint8)
    cutting.ViewSource(image, MANY if compiled else 1).cut(crop, out)
    return out


@pytest.mark.parametrize("side", [48, 1])
def test_augmix(form: str, side: int) -> None:
    """AugMix is that of its authors to a rounding, for many images and views."""
    recipe, wanted = Recipe(40, "augmix"), Preprocessing(side, (0, 0, 0), (1, 1, 1))
    for i, image in enumerate((gradient(80, 60), noise(50, 70), Image.new("RGB", (9, 9), "red"))):
        name = f"image {i}"
        views = make_views(image, wanted, recipe, name)
        crops = make_views(image, wanted, Recipe(40), name)
        assert same(views[0], crops[0])
        for view, crop, row in zip(
            views[1:], crops[1:], _random_numbers(0, name, 40)[1:], strict=True
        ):
            exact = plain_augmix(Image.fromarray(crop), row)
            assert np.abs(view - exact).max() <= 0.5 + 1e-3


@settings(max_examples=40, deadline=None)
@given(draws=draws, side=st.integers(1, 40))
def test_both_forms_of_augmix_agree(draws: list[float], side: int) -> None:
    """Compiled or not, AugMix gives the same bits, on an image of a single pixel too."""
    mixture = augmix.random_mixture(draws, side)
    one, other = np.array(noise(side, side)), np.array(noise(side, side))
    augmix.mix(one, mixture, pixel_kernels())
    augmix.mix(other, mixture, None)
    assert same(one, other)
    assert sum(mixture[1]) == pytest.approx(1) and min(mixture[1]) >= 0


def test_views_depend_on_seed_id_and_row_only(form: str) -> None:
    """More views, more threads or other images in between change nothing; seed and id do."""
    image = noise(60, 50)
    for kind in ("crops", "augmix"):
        views = make_views(image, CLIP, Recipe(64, kind), "a.jpg", threads=1)
        make_views(noise(20, 20), CLIP, Recipe(9, kind), "b.jpg")
        assert same(make_views(image, CLIP, Recipe(16, kind), "a.jpg", threads=3), views[:16])
        assert same(make_views(image, CLIP, Recipe(2, kind), "a.jpg"), views[:2])
        for other in (make_views(image, CLIP, Recipe(64, kind), "b.jpg"),
                      make_views(image, CLIP, Recipe(64, kind, seed=1), "a.jpg")):  # fmt: skip
            assert same(other[0], views[0])
            assert all(not same(a, b) for a, b in zip(other[1:], views[1:], strict=True))


def test_random_numbers_are_fixed() -> None:
    """The numbers behind the views are these, on every machine and for ever."""
    rows = _random_numbers(7, "a b/\udcff.jpg", 3)
    assert [len(row) for row in rows] == [0, 64, 64]
    found = [rows[1][0], rows[1][63], rows[2][0]]
    assert found == [0.1937747781779916, 0.5400804690647962, 0.16254628327668297]
    place = random_crop(500, 375, 224, rows[2], 0.08)
    assert (place.left, place.top, place.width, place.height) == (118, 22, 222, 194)
    assert not place.flipped


def test_crops_are_spread_as_they_should_be() -> None:
    """Areas fill the range of the recipe, to all of a square; half of the crops are flipped."""
    rows = _random_numbers(0, "x", 2001)[1:]
    places = [random_crop(400, 400, 8, row, 0.5) for row in rows]
    areas = np.array([place.width * place.height / 400**2 for place in places])
    aspects = np.array([place.width / place.height for place in places])
    assert 0.49 < areas.min() < 0.52 and 0.95 < areas.max() <= 1
    assert 0.74 < aspects.min() and aspects.max() < 1.35
    assert abs(np.mean([place.flipped for place in places]) - 0.5) < 0.05
    views = make_views(gradient(32, 32), CLIP, Recipe(9, smallest=1.0), "x")  # only flipped or not
    assert all(same(view, views[0]) or same(view, views[0][:, ::-1]) for view in views[1:])


def test_recipes() -> None:
    """A recipe can be kept as JSON, and a wrong one is refused in a sentence."""
    recipe = Recipe(64, "augmix", seed=3)
    assert Recipe(**json.loads(json.dumps(asdict(recipe)))) == recipe
    wrong: list[dict[str, Any]] = [
        {"views": 0}, {"views": 1.5}, {"views": True}, {"seed": "x"}, {"augment": "cutout"},
        {"smallest": 0}, {"smallest": 1.1}, {"smallest": float("nan")},
    ]  # fmt: skip
    for options in wrong:
        check_refused("give", Recipe, **options)


@pytest.mark.parametrize("count", [1, MANY])
def test_normalised(form: str, count: int) -> None:
    """Pixels become (pixel / 255 - mean) / std with the channels first, in any memory order."""
    views = make_views(noise(40, 40), CLIP, Recipe(count), "x")
    wanted = np.stack([plain_normalised(view, CLIP) for view in views])
    for pixels in (views, views[:, :, ::-1][:, :, ::-1], np.asfortranarray(views)):
        given_back = CLIP.normalised(pixels)
        assert given_back.dtype == np.float32 and given_back.flags.c_contiguous
        np.testing.assert_allclose(given_back, wanted, atol=2e-6)
    assert CLIP.normalised(views[:0]).shape == (0, 3, 32, 32)


SMALL = Preprocessing(16, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
IMAGES = [noise(20 + i, 30 - i, seed=i) for i in range(12)]
NAMES = [f"{i}.jpg" for i in range(12)]


def view_threads() -> list[str]:
    """The threads that make views and are still there."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("crg-views")]


@pytest.mark.parametrize("workers", [0, 1, 3, 20])
@pytest.mark.parametrize("kind", ["crops", "augmix"])
def test_views_come_in_order(workers: int, kind: str) -> None:
    """With any number of workers, the views are those of make_views, in order."""
    recipe = Recipe(9, kind)  # type: ignore[arg-type]
    made = list(iter_views(IMAGES, NAMES, SMALL, recipe, workers))
    for image, name, views in zip(IMAGES, NAMES, made, strict=True):
        assert not isinstance(views, InputError)
        assert views.shape == (9, 16, 16, 3) and views.dtype == np.uint8
        assert same(views, make_views(image, SMALL, recipe, name))
    assert not view_threads()


@pytest.mark.parametrize("workers", [0, 2])
def test_unreadable_images_take_their_place(workers: int, tmp_path: Path) -> None:
    """An image that cannot be read gives its sentence, and the others follow."""
    good, empty = tmp_path / "good.png", tmp_path / "empty.png"
    good.write_bytes(encoded(noise(9, 9), "PNG"))
    empty.touch()
    sources = [good, empty, tmp_path / "missing.png", good]
    made = list(iter_views(sources, "abcd", SMALL, Recipe(2), workers))
    assert [isinstance(views, InputError) for views in made] == [False, True, True, False]
    assert "empty.png" in str(made[1]) and "missing.png" in str(made[2])


@pytest.mark.parametrize(("workers", "ahead"), [(0, 1), (1, 3), (3, 7)])
def test_look_ahead_is_bounded(workers: int, ahead: int) -> None:
    """However long the stream, only two images per worker are read before they are asked for."""
    taken = 0

    def endless() -> Iterator[Image.Image]:
        nonlocal taken
        while True:
            taken += 1
            yield IMAGES[0]

    views = iter_views(endless(), (str(i) for i in range(10**9)), SMALL, Recipe(), workers)
    for _ in range(5):
        next(views)
    assert taken <= 4 + ahead
    views.close()
    assert not view_threads()


def test_errors_go_through_and_leave_no_threads() -> None:
    """An interruption, or an error that is not the fault of the image, is raised at once."""
    views = iter_views(IMAGES, NAMES, SMALL, Recipe(4), 2)
    next(views)
    assert view_threads()
    with pytest.raises(KeyboardInterrupt):
        views.throw(KeyboardInterrupt)
    assert not view_threads()
    broken = SimpleNamespace(draw=lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        list(iter_views([broken], ["x"], SMALL, Recipe(), 1))
    with pytest.raises(ValueError, match="shorter"):
        list(iter_views(IMAGES, NAMES[:3], SMALL, Recipe(), 2))
    assert not view_threads()
