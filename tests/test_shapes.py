"""The rendered dataset: the same everywhere, held out where it says so, shifted by degrees."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from captions import caption, facts_of, training_image, training_things
from crg.images.image_set import Drawable, ImageSet
from crg.shapes import N_CLASSES, shape_images
from crg.shapes.drawing import SIDE
from crg.shapes.scenes import generator, held_out_things
from crg.shapes.shifts import SEVERITIES, SHIFTS
from sentences import check_refused

_HASH = """
import hashlib
from crg.shapes import shape_images
images = shape_images("night", 3, 5, 7).sources
print(hashlib.sha256(b"".join(each.draw().tobytes() for each in images)).hexdigest())
"""


def test_images_are_the_same_in_another_process() -> None:
    """An image depends on the seed and its place only, not on Python's changing hashes."""
    done = subprocess.run([sys.executable, "-c", _HASH], capture_output=True, text=True, check=True)
    content = b"".join(_pixels(each).tobytes() for each in shape_images("night", 3, 5, 7).sources)
    assert done.stdout.strip() == hashlib.sha256(content).hexdigest()


def test_a_longer_series_begins_like_a_shorter() -> None:
    """Asking for more images adds some and changes none; another seed shows other scenes."""
    short, long = shape_images("fog", 2, 40, 3), shape_images("fog", 2, 90, 3)
    assert short.ids == long.ids[:40] and short.labels == (long.labels or ())[:40]
    assert short.sources == long.sources[:40]
    one, other = (_stack(shape_images(None, 1, 4, seed)) for seed in (0, 1))
    assert (one != other).any(axis=(1, 2, 3)).all()


def test_the_set_is_complete() -> None:
    """Ids are distinct, classes equally frequent, and sources draw the same RGB after pickling."""
    images = shape_images("night", 3, 2 * N_CLASSES, 0)
    assert images.ids[17] == "night-3/00017" and len(set(images.ids)) == len(images)
    assert np.bincount(np.array(images.labels)).tolist() == [2] * N_CLASSES
    assert all(template.count("{}") == 1 for template in images.templates)
    assert shape_images(None, 1, 1, 0).ids == ("clean/00000",)
    source = shape_images("sketch", 5, 1, 0).sources[0]
    assert isinstance(source, Drawable)
    image = pickle.loads(pickle.dumps(source)).draw()
    assert image.mode == "RGB" and image.size == (SIDE, SIDE)
    assert image.tobytes() == source.draw().tobytes()


def test_held_out_combinations_never_occur_in_training() -> None:
    """No training image shows one and no caption names one, but each word occurs, truly."""
    assert not set(held_out_things()) & set(training_things())
    names = [thing.name for thing in held_out_things()]
    known = {word for thing in training_things() for word in thing.name.split()}
    assert {word for name in names for word in name.split()} <= known
    rng = generator("test")
    for index in range(600):
        image = training_image(0, index)
        assert not image.thing.held_out
        facts = facts_of(image.scene())
        said = caption(facts, rng)
        assert not any(name in said.text for name in names)
        assert any(said.facts[:3])
        assert all(n is None or n == f for n, f in zip(said.facts, facts, strict=True))


@pytest.mark.parametrize("shift", SHIFTS)
def test_shifts_are_graded(shift: str) -> None:
    """Each grade leads farther away from the clean images, and shows the same scenes."""
    clean = _stack(shape_images(None, 1, 24, 0))
    away = [
        float(np.abs(_stack(shape_images(shift, grade, 24, 0)) - clean).mean())
        for grade in SEVERITIES
    ]
    assert away == sorted(away) and away[0] > 2 and away[-1] > 1.3 * away[0]
    sets = shape_images(None, 1, 8, 5), shape_images(shift, 4, 8, 5), shape_images(shift, 5, 8, 5)
    scenes: list[list[Any]] = [[s.scene() for s in each.sources] for each in sets]  # type: ignore[union-attr]
    assert scenes[0] == scenes[1] == scenes[2] and sets[0].labels == sets[1].labels
    assert len({each.fingerprint() for each in sets}) == 3


def test_wrong_requests_are_refused() -> None:
    """An unknown shift gets the nearest name; a wrong severity or count gets the limits."""
    check_refused(("'recolored'", "'recoloured'"), shape_images, "recolored", 1, 5, 0)
    check_refused(("'earthquake'", "sketch, night"), shape_images, "earthquake", 1, 5, 0)
    for severity in (0, 6, True):
        check_refused(("severity", "1 (slight) to 5"), shape_images, "fog", severity, 5, 0)
    check_refused(("number of images", "at least one"), shape_images, "fog", 1, 0, 0)


def _pixels(source: Any) -> Any:
    return np.asarray(source.draw())


def _stack(images: ImageSet) -> Any:
    return np.stack([_pixels(source) for source in images.sources]).astype(float)
