from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crg import InputError
from crg.images.preprocessing import Preprocessing
from crg.images.views import Recipe, iter_views, make_views
from made_images import encoded, noise, same

CLIP = Preprocessing(16, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
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
    made = list(iter_views(IMAGES, NAMES, CLIP, recipe, workers))
    for image, name, views in zip(IMAGES, NAMES, made, strict=True):
        assert same(views, make_views(image, CLIP, recipe, name))
    assert not view_threads()


@pytest.mark.parametrize("workers", [0, 2])
def test_unreadable_images_take_their_place(workers: int, tmp_path: Path) -> None:
    """An image that cannot be read gives its sentence, and the others follow."""
    good, empty = tmp_path / "good.png", tmp_path / "empty.png"
    good.write_bytes(encoded(noise(9, 9), "PNG"))
    empty.touch()
    sources = [good, empty, tmp_path / "missing.png", good]
    made = list(iter_views(sources, "abcd", CLIP, Recipe(2), workers))
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

    views = iter_views(endless(), (str(i) for i in range(10**9)), CLIP, Recipe(), workers)
    for _ in range(5):
        next(views)
    assert taken <= 4 + ahead
    views.close()  # type: ignore[attr-defined]
    assert not view_threads()


def test_interruption_leaves_no_threads() -> None:
    """An interruption in the middle goes through, and the threads are gone."""
    views = iter_views(IMAGES, NAMES, CLIP, Recipe(4), 2)
    next(views)
    assert view_threads()
    with pytest.raises(KeyboardInterrupt):
        views.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    assert not view_threads()


def test_other_errors_are_not_swallowed() -> None:
    """An error that is not the fault of the image is raised, and the threads end."""

    class Broken:
        def draw(self) -> Image.Image:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(iter_views([Broken()], ["x"], CLIP, Recipe(), 1))
    with pytest.raises(ValueError, match="shorter"):
        list(iter_views(IMAGES, NAMES[:3], CLIP, Recipe(), 2))
    assert not view_threads()


_ENDLESS = """
import itertools
from PIL import Image
from crg.images.preprocessing import Preprocessing
from crg.images.views import Recipe, iter_views
clip = Preprocessing(64, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
names = (str(i) for i in itertools.count())
for views in iter_views(itertools.repeat(Image.new("RGB", (300, 300))), names, clip, Recipe(4), 2):
    print("made", flush=True)
"""


def test_ctrl_c_ends_the_process() -> None:
    """Ctrl-C ends a program that makes views without end, at once and with its usual mark."""
    with subprocess.Popen(
        [sys.executable, "-c", _ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        for _ in range(3):
            assert process.stdout.readline() == b"made\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 1, 130), errors
    assert errors.count(b"Traceback") == 1 and b"KeyboardInterrupt" in errors


def test_views_are_bytes() -> None:
    """Each item is (V, S, S, 3) of type uint8."""
    views = next(iter_views(IMAGES, NAMES, CLIP, Recipe(3), 1))
    assert not isinstance(views, InputError)
    assert views.shape == (3, 16, 16, 3) and views.dtype == np.uint8
