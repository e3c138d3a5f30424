"""Stores: reading them back, noticing damage, and naming the differences from another."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crg.encoding import Wording, encode
from crg.features import store
from crg.features.files import read_features
from crg.images.views import Recipe, make_views
from encoding_fakes import HashEncoder, contents, dots, run
from sentences import check_refused

FILES = (store.HEADER, store.IMAGES, store.TEXT)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished store of 40 images with 3 views."""
    folder = tmp_path_factory.mktemp("stores") / "made"
    run(dots(), folder)
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def test_a_store_is_read_as_features(made: Path) -> None:
    """A finished store gives the encoder's features in half precision, mapped, and the task."""
    features = read_features(made)
    assert features.image_features.shape == (40, 3, 8) and _mapped(features.image_features)
    assert features.image_features.dtype == np.float16
    assert features.task.class_names == ("red", "green", "blue")
    assert features.task.logit_scale == 50.0
    assert features.ids == dots().ids
    assert features.labels is not None and features.labels.tolist() == list(dots().labels or ())
    assert features.source == made
    assert (features.dataset, features.prompts) == (dots().name, dots().templates)
    assert features.text_kind is None
    assert features.sha256 == read_features(made, verify=False).sha256 is not None
    encoder, images = HashEncoder(), dots()
    views = make_views(images.sources[7], encoder.preprocessing, Recipe(views=3), "dot 7")
    expected = encoder.encode_images(views).astype(np.float16)
    for rows in (np.load(made / store.IMAGES), features.image_features):
        np.testing.assert_array_equal(rows[7], expected)


_OLD = '{"format": "crg-store", "version": 7}'


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda copy: (copy / store.IMAGES).unlink(), ["damaged", "image_features.npy is missing"]),
        (lambda copy: (copy / store.TEXT).unlink(), ["damaged", "text_features.npy is missing"]),
        (lambda copy: (copy / store.HEADER).unlink(), ["cannot be read", "crg encode made"]),
        (lambda copy: os.truncate(copy / store.IMAGES, 9999), ["image_features.npy is not as"]),
        (lambda copy: (copy / store.HEADER).write_text(_OLD), ["version 7", "reads version 2"]),
        (lambda copy: (copy / store.HEADER).write_text('["apples"]'), ["not a store"]),
    ],
)
def test_what_is_wrong_with_a_store_is_named(copy: Path, spoil: Any, words: list[str]) -> None:
    """A file too few, bytes after the last image and other versions are noticed by themselves."""
    spoil(copy)
    check_refused((str(copy), *words), read_features, copy, verify=False)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0, 1, -1])
@pytest.mark.parametrize("verify", [True, False])
def test_truncated_files_are_refused(copy: Path, name: str, keep: int, verify: bool) -> None:
    """A file that lost its end, or everything, is noticed even without checksums."""
    (copy / name).write_bytes((copy / name).read_bytes()[:keep])
    check_refused((str(copy), "damaged"), read_features, copy, verify)


@pytest.mark.parametrize("name", FILES)
def test_flipped_bits_are_found_wherever_they_are(copy: Path, name: str) -> None:
    """One bit that changed in any part of any file is noticed, and encoding does not hide it."""
    content = (copy / name).read_bytes()
    for place in range(0, len(content), max(1, len(content) // 40)):
        flipped = bytearray(content)
        flipped[place] ^= 4
        (copy / name).write_bytes(flipped)
        check_refused(str(copy), read_features, copy)
    check_refused(str(copy), run, dots(), copy)


def _rewrite(folder: Path, **changes: Any) -> None:
    """Write another header with a digest that matches it."""
    facts = asdict(store.read_header(folder)) | changes
    top = {"format": store.FORMAT, "version": store.VERSION, "sha256": store.digest(facts)}
    (folder / store.HEADER).write_text(json.dumps(top | facts))


@pytest.mark.parametrize(
    "change",
    [
        {"views": 0}, {"views": "3"}, {"views": 4}, {"width": -8}, {"width": None}, {"ids": []},
        {"ids": {}}, {"ids": ["a"] * 40}, {"ids": [1] * 40}, {"labels": [0]}, {"labels": "abc"},
        {"labels": ["a"] * 40}, {"skipped": [1]}, {"skipped": {"a": 1}}, {"checksums": []},
        {"checksums": {"image_features.npy": 5}}, {"key": []}, {"key": {"model": 5}},
        {"key": {"template list": 7}}, {"key": {"dataset": {}}}, {"class_names": "abc"},
        {"class_names": [1, 2, 3]}, {"logit_scale": "50"}, {"logit_scale": float("nan")},
        {"key": {"generated views": 1.5}},
    ],
    ids=str,
)  # fmt: skip
def test_a_header_of_wrong_kinds_is_refused(copy: Path, change: dict[str, Any]) -> None:
    """A digest that matches does not make a value of the wrong kind right."""
    _rewrite(copy, **change)
    check_refused(str(copy), read_features, copy)


def _saved(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def _endless() -> bytes:
    """The start of an array of a petabyte."""
    buffer = io.BytesIO()
    facts = {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**6)}
    np.lib.format.write_array_header_1_0(buffer, facts)
    return buffer.getvalue()


@pytest.mark.parametrize("name", [store.TEXT, store.IMAGES])
@pytest.mark.parametrize(
    "content",
    [_saved(np.array([{}])), _endless(), b"", b"PK\x03\x04", _saved(np.array(["a"] * 40)),
     _saved(np.zeros((3, 8), np.int32))],
)  # fmt: skip
def test_arrays_of_wrong_kinds_are_refused(copy: Path, name: str, content: bytes) -> None:
    """Nothing is unpickled and no size is believed, even where every checksum matches."""
    (copy / name).write_bytes(content)
    sums = store.read_header(copy).checksums | {name: hashlib.sha256(content).hexdigest()}
    _rewrite(copy, checksums=sums)
    check_refused(str(copy), read_features, copy)


def test_a_store_that_becomes_shorter_is_refused(copy: Path) -> None:
    """Truncation under a reader is a sentence and does not end the process."""
    features = read_features(copy)
    features.views(39)
    os.truncate(copy / store.IMAGES, 200)
    check_refused(("shorter", "encode again"), features.views, 39)
    check_refused("shorter", lambda: features.image_features[:, 0])


_SIZE_9 = replace(HashEncoder().preprocessing, size=9)
_COLOURS = ("red", "green", "blue")
_OTHERS: list[tuple[str, dict[str, Any]]] = [  # what is said, and what is given instead
    ('dataset is "dots" in the store but "spots" was asked for', {"images": dots(name="spots")}),
    ("number of images is 40 in the store but 39 was asked for", {"images": dots(39)}),
    ("list of images is", {"images": replace(dots(), labels=None)}),
    ("content of the images is", {"images": dots(shift=1)}),
    ('model is "hash" in the store but "other" was asked for', {"name": "other"}),
    ('weights is "weights of h" in the store but "new" was asked for', {"fingerprint": "new"}),
    ('precision is nothing in the store but "fp16" was asked for', {"precision": "fp16"}),
    ("model's size is 8 in the store but 9 was asked for", {"preprocessing": _SIZE_9}),
    ("views is 3 in the store but 4 was asked for, seed is 0", {"recipe": Recipe(4, seed=5)}),
    ('augment is "crops" in the store but "augmix" was asked for',
     {"recipe": Recipe(3, "augmix")}),
    ("seed is 0 in the store but 1 was asked for", {"recipe": Recipe(3, seed=1)}),
    ("smallest crop is 0.08 in the store but 0.5 was asked for",
     {"recipe": Recipe(3, smallest=0.5)}),
    ("template list is", {"wording": Wording(("a {}.",), cache=None)}),
    ('prompts is "template" in the store but "both" was asked for',
     {"wording": Wording(dots().templates, {name: ["x."] for name in _COLOURS}, None)}),
]  # fmt: skip


@pytest.mark.parametrize(("words", "others"), _OTHERS)
def test_what_differs_is_named(made: Path, words: str, others: dict[str, Any]) -> None:
    """A store that something else made is refused, and every difference in its key is named."""
    plain = {"images": dots(), "recipe": Recipe(3), "wording": Wording(cache=None)}
    given: dict[str, Any] = plain | others
    images, recipe, wording = (given.pop(name) for name in plain)
    encoder, before = HashEncoder(), contents(made)
    for name, value in given.items():
        setattr(encoder, name, value)
    said = (str(made), words, "--out")
    check_refused(said, encode, images, encoder, recipe, made, wording=wording)
    assert contents(made) == before


def test_other_descriptions_are_told_apart(tmp_path: Path) -> None:
    """Sentences about the classes are part of the key."""
    some = {name: [f"It is {name}."] for name in _COLOURS}
    given = (dots(), HashEncoder(), Recipe(), tmp_path / "s")
    encode(*given, wording=Wording((), some, None))
    others = Wording((), some | {"blue": ["It is not."]}, None)
    check_refused("descriptions is", encode, *given, wording=others)


def _mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None
