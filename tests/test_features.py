"""Feature files: reading back what was written, refusing everything else, and joining several."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from crg.features.files import Features, read_features, write_features
from crg.features.joining import joined, joined_sha256
from crg.resources import FEW
from crg.types import Task
from made_files import raw_values, save_raw
from sentences import check_refused


def _refused(path: Path, *words: str) -> None:
    check_refused((path.name, *words), read_features, path)


def test_reads_what_a_stranger_wrote_with_savez(tmp_path: Path) -> None:
    """A plain numpy.savez file is a feature file; other names in it, even pickles, are ignored."""
    extra = np.array([{"a": 1}], dtype=object)
    path = save_raw(tmp_path / "a.npz", text_kind=np.array("clip"), extra=extra)
    features = read_features(path)
    assert len(features) == 12
    assert features.task.class_names == ("name 0", "name 1", "name 2")
    assert features.task.logit_scale == 100.0
    assert features.sample_ids == tuple(range(1, 13))
    assert features.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert features.source == path
    assert (features.n_views, features.views(3).shape) == (1, (1, 8))


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 6),
    v=st.integers(1, 3),
    names=st.lists(st.text("aé字 ,=\"'").filter(str.strip), min_size=2, max_size=4, unique=True),
    suffix=st.sampled_from([".npz", ".safetensors"]),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_writing_and_reading_gives_the_same(
    tmp_path_factory: Any, n: int, v: int, names: list[str], suffix: str, dtype: Any
) -> None:
    """Both formats give back every value in the precision it was stored in, whatever the names."""
    rng = np.random.default_rng(n)
    task = Task(tuple(names), rng.standard_normal((len(names), 5)).astype(np.float32))
    images, labels = rng.standard_normal((n, v, 5)).astype(dtype), np.arange(n) % len(names)
    few: dict[str, Any] = {"few_features": images[:, 0], "few_labels": labels}
    ids = tuple(f"image {i}" for i in range(n))
    path = tmp_path_factory.mktemp("any") / f"a{suffix}"
    few["generated"] = v - 1 or None
    write_features(path, Features(images, task, labels=labels, ids=ids, **few))
    again = read_features(path)
    assert (again.task.class_names, again.ids) == (tuple(names), ids)
    assert (len(again), again.n_views, again.generated) == (n, v, v - 1 or None)
    assert again.views(0).shape == (v, 5)
    assert again.image_features.dtype == dtype
    np.testing.assert_array_equal(again.image_features, images)
    np.testing.assert_allclose(again.task.text_features, task.text_features, rtol=1e-6)
    for kept in (again.labels, again.few_labels):
        np.testing.assert_array_equal(kept, labels)
    computed_in = np.float64 if dtype is np.float64 else np.float32
    assert again.views(0).dtype == again.task.text_features.dtype == computed_in


def test_names_and_scales_may_be_stored_in_several_ways(tmp_path: Path) -> None:
    """Names may be UTF-8 bytes; the scale of a safetensors file a tensor or in the metadata."""
    as_bytes = np.array(["é".encode(), b"b", b"c"])
    npz = save_raw(tmp_path / "a.npz", class_names=as_bytes)
    assert read_features(npz).task.class_names[0] == "é"
    raw = raw_values()
    tensors = {key: raw[key] for key in ("image_features", "text_features")}
    names = {"class_names": json.dumps(raw["class_names"].tolist())}
    save_file(tensors, tmp_path / "a.safetensors", {**names, "logit_scale": "50"})
    save_file({**tensors, "logit_scale": np.array([50.0])}, tmp_path / "b.safetensors", names)
    assert read_features(tmp_path / "a.safetensors").task.logit_scale == 50.0
    assert read_features(tmp_path / "b.safetensors").task.logit_scale == 50.0


_NAN, _ZERO, _INF = (raw_values()["image_features"].copy() for _ in range(3))
_NAN[4, 2], _ZERO[5], _INF[6, 0] = np.nan, 0.0, np.inf
_VIEWS = np.repeat(raw_values()["image_features"][:, None, :], 2, axis=1)
_VIEWS[7, 1] = 0.0
_HALF = {value: np.full((12, 4, 8), -1, np.float16) for value in ("nan", "-inf", "-0")}
for value, images in _HALF.items():
    images[9, 2] = np.float16(value)
_FEW = np.ones((2, 8), np.float32)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"image_features": None}, ["no 'image_features'", "needs image_features"]),
        ({"image_features": None, "img_features": np.ones(3)}, ["nearest", "'img_features'"]),
        ({"logit_scale": None}, ["no 'logit_scale'"]),
        ({"class_names": np.array(["a", "b", "c"], dtype=object)}, ["pickled", "dtype=str"]),
        ({"labels": np.array([0] * 12, dtype=object)}, ["'labels'", "store them as numbers"]),
        ({"class_names": np.array(["a", "b", "b"])}, ["'b'", "more than once"]),
        ({"class_names": np.arange(3)}, ["class_names", "strings"]),
        ({"labels": np.arange(12)}, ["Row 3 of labels is 3", "0 to 2"]),
        ({"labels": np.arange(4)}, ["labels has shape (4,)", "12 images"]),
        ({"labels": np.zeros(12)}, ["labels holds float64", "whole numbers"]),
        ({"image_features": _NAN}, ["Row 4 of image_features", "NaN"]),
        ({"image_features": _INF}, ["Row 6 of image_features", "infinite"]),
        ({"image_features": _ZERO}, ["Row 5 of image_features", "zeros"]),
        ({"image_features": _VIEWS}, ["Row 7, view 1, of image_features", "zeros"]),
        ({"image_features": _HALF["nan"]}, ["Row 9, view 2,", "NaN"]),
        ({"image_features": _HALF["-inf"]}, ["Row 9, view 2,", "infinite"]),
        ({"image_features": _HALF["-0"]}, ["Row 9, view 2,", "zeros"]),
        ({"image_features": np.ones((12, 5), np.float32)}, ["5 wide", "text_features 8"]),
        ({"image_features": np.ones(8, np.float32)}, ["(8,)", "(N, D) or (N, V, D)"]),
        ({"image_features": np.ones((0, 8), np.float32)}, ["no images"]),
        ({"image_features": np.ones((12, 8), int)}, ["int64 values"]),
        ({"text_features": np.full((3, 8), np.nan, np.float32)}, ["Row 0 of the text features"]),
        ({"text_features": np.array(["a", "b", "c"])}, ["text_features holds <U1"]),
        ({"logit_scale": np.float32(-1)}, ["logit_scale is -1.0", "positive"]),
        ({"logit_scale": np.ones(2)}, ["logit_scale is not one number"]),
        ({"ids": np.array(["a"] * 12)}, ["The id 'a'", "more than once"]),
        ({"ids": np.zeros(12)}, ["ids holds float64"]),
        ({"text_kind": np.array(3)}, ["text_kind"]),
        ({"text_kind": np.array(["a", "b"])}, ["text_kind"]),
        ({"few_features": _FEW}, ["belong together"]),
        ({"few_features": _FEW, "few_labels": np.array([0, 9])}, ["Row 1 of few_labels is 9"]),
    ],
)
def test_bad_values_are_refused_in_one_sentence(
    tmp_path: Path, changes: dict[str, Any], says: list[str]
) -> None:
    """Each fault of a file is named, with the row where there is one."""
    _refused(save_raw(tmp_path / "a.npz", **changes), *says)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.npz", None, "does not exist"),
        ("empty.npz", b"", "is empty"),
        ("table.csv", b"1,2", "ends in .npz or .safetensors"),
        ("plain.npz", b"hello, this is not an archive", "not an .npz archive"),
        ("odd.safetensors", b"hello, this is not an archive", "truncated or damaged"),
        ("bomb.npz", pickle.dumps({"a": 1}), "not an .npz archive"),
    ],
)
def test_other_files_are_refused(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    """Missing, empty, misnamed and foreign files have a sentence each, and no pickle is run."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    _refused(tmp_path / name, words)
    tensors = {key: raw_values()[key] for key in ("image_features", "text_features")}
    save_file(tensors, tmp_path / "a.safetensors", {"class_names": "cat dog"})
    _refused(tmp_path / "a.safetensors", "json.dumps")

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    _refused(save_raw(tmp_path / "inside.npz", labels=np.array([Bomb()] * 12, dtype=object)))
    assert not (tmp_path / "ran").exists()


@settings(max_examples=25, deadline=None)
@given(share=st.floats(0.001, 0.999), suffix=st.sampled_from([".npz", ".safetensors"]))
def test_a_truncated_file_is_refused_wherever_it_was_cut(
    tmp_path_factory: pytest.TempPathFactory, share: float, suffix: str
) -> None:
    """No cut gives a traceback or half a file."""
    folder = tmp_path_factory.mktemp("cut")
    whole, cut = folder / f"whole{suffix}", folder / f"cut{suffix}"
    write_features(whole, read_features(save_raw(folder / "a.npz")))
    content = whole.read_bytes()
    cut.write_bytes(content[: max(3, int(share * len(content)))])
    _refused(cut, "truncated or damaged")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """Writing to a bad place is refused, and a good file is only ever replaced as a whole."""
    features = read_features(save_raw(tmp_path / "a.npz"))
    check_refused("cannot be written", write_features, tmp_path / "none" / "b.npz", features)
    check_refused("ends in .npz", write_features, tmp_path / "b.txt", features)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.npz"]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_the_kind_of_text_is_kept(tmp_path: Path, suffix: str) -> None:
    """A file says where its text comes from, unless from the model; odd facts are refused."""
    for kind, read in (("simulated", "simulated"), ("own", None), ("clip", None), (None, None)):
        features = part("ab", text_kind=kind)
        write_features(tmp_path / f"a{suffix}", features)
        assert features.text_kind == read_features(tmp_path / f"a{suffix}").text_kind == read
    check_refused(("domains", "one per image"), part, "ab", domains=np.zeros(3, dtype=int))
    for number in (0, 5, -1, 1.5):
        said = f"generated is {number} but there are 5 views"
        check_refused(said, part, "ab", views=5, generated=number)


def part(names: str, n: int = 6, seed: int = 0, views: int | None = None, **more: Any) -> Features:
    """A file with one class per letter of ``names``."""
    rng = np.random.default_rng(seed)
    width = more.pop("width", 8)
    shape = (n, width) if views is None else (n, views, width)
    task = Task(tuple(names), rng.standard_normal((len(names), width)), more.pop("scale", 100.0))
    more = {"labels": np.arange(n) % len(names)} | more
    return Features(rng.standard_normal(shape).astype(np.float32), task, **more)


def test_images_follow_each_other_over_all_classes() -> None:
    """Rows keep order and label, shared classes the first text; ids of two files stay apart."""
    few: dict[str, Any] = {"few_features": np.eye(2, 8), "few_labels": np.array([0, 1])}
    names = tuple(f"photo {i}" for i in range(4))
    first, second = part("abc", n=4, ids=names, **few), part("cbd", n=4, seed=1, ids=names, **few)
    whole = joined([first, second, part("ab", n=2)])
    assert whole.task.class_names == ("a", "b", "c", "d")
    np.testing.assert_array_equal(whole.image_features[:4], first.image_features)
    np.testing.assert_array_equal(whole.image_features[4:8], second.image_features)
    assert whole.labels is not None and whole.labels.tolist() == [0, 1, 2, 0, 2, 1, 3, 2, 0, 1]
    np.testing.assert_array_equal(whole.task.text_features[:3], first.task.text_features)
    np.testing.assert_array_equal(whole.task.text_features[3], second.task.text_features[2])
    assert len(set(whole.sample_ids)) == 10
    assert whole.sample_ids[4] == "1/photo 0" and whole.sample_ids[8] == "2/1"
    assert whole.domains is not None and whole.domains.tolist() == [0] * 4 + [1] * 4 + [2] * 2
    assert whole.task.resources[FEW].labels == (0, 1, 2, 1)


def test_views_are_cut_to_the_fewest() -> None:
    """The first ordinary views stay, then the first generated ones as far as all have some."""
    first, second = part("ab", views=6, generated=3), part("ab", views=5, generated=1, seed=1)
    whole = joined([first, second])
    assert (whole.n_views, whole.generated) == (4, 1)
    np.testing.assert_array_equal(whole.image_features[:6], first.image_features[:, [0, 1, 2, 3]])
    np.testing.assert_array_equal(whole.image_features[6:], second.image_features[:, [0, 1, 2, 4]])
    without = joined([first, part("ab", views=4)])
    assert (without.n_views, without.generated) == (3, None)
    flat = joined([first, part("ab")])
    assert flat.image_features.shape == (12, 8)
    np.testing.assert_array_equal(flat.image_features[:6], first.image_features[:, 0])


def test_where_it_comes_from_is_reported() -> None:
    """Digest, kind of text, prompts, dataset and model are those of all files."""
    first = part("ab", sha256="1" * 64, prompts=("a {}.",), dataset="x", model="m")
    second = part("ab", sha256="2" * 64, prompts=("a {}.", "b {}."), text_kind="simulated")
    whole = joined([first, second])
    assert whole.sha256 == hashlib.sha256(("1" * 64 + "2" * 64).encode()).hexdigest()
    assert whole.sha256 == joined_sha256(["1" * 64, "2" * 64])
    assert joined_sha256(["1", None]) is None
    assert whole.text_kind == "simulated"
    assert (whole.prompts, whole.dataset, whole.model) == (("a {}.", "b {}."), "x", "m")
    assert joined([first, first]).text_kind is None


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"scale": 50.0}, "scales 100 and 50"),
        ({"model": "another"}, "another"),
        ({"labels": None}, "labels"),
        ({"width": 3}, "8 and 3 wide"),
    ],
)
def test_files_that_do_not_go_together_are_refused(other: Any, word: str) -> None:
    """Another scale, width or model, or half of the labels is reported in one sentence."""
    check_refused(word, joined, [part("ab", model="one"), part("ab", **other)])
