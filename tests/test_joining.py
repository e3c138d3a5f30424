"""Joining: several files as one stream of domains."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crg.evaluate import run
from crg.features.files import Features, read_features
from crg.features.joining import joined, joined_sha256
from crg.resources import FEW
from crg.streams import Scenario
from crg.types import Task
from made_files import save_raw
from sentences import refused_in_one_sentence


def part(names: str, n: int = 6, seed: int = 0, views: int | None = None, **more: Any) -> Features:
    """A file with one class per letter of ``names``."""
    rng = np.random.default_rng(seed)
    shape = (n, 8) if views is None else (n, views, 8)
    task = Task(tuple(names), rng.standard_normal((len(names), 8)), more.pop("scale", 100.0))
    more = {"labels": np.arange(n) % len(names)} | more
    return Features(rng.standard_normal(shape).astype(np.float32), task, **more)


def test_images_follow_each_other_over_all_classes() -> None:
    """Rows keep their order, labels their class, and shared classes the first file's text."""
    first, second = part("abc"), part("cbd", n=4, seed=1)
    whole = joined([first, second])
    assert whole.task.class_names == ("a", "b", "c", "d")
    np.testing.assert_array_equal(whole.image_features[:6], first.image_features)
    np.testing.assert_array_equal(whole.image_features[6:], second.image_features)
    assert whole.labels is not None and whole.domains is not None
    assert whole.labels.tolist() == [0, 1, 2, 0, 1, 2, 2, 1, 3, 2]
    assert whole.domains.tolist() == [0] * 6 + [1] * 4
    np.testing.assert_array_equal(whole.task.text_features[:3], first.task.text_features)
    np.testing.assert_array_equal(whole.task.text_features[3], second.task.text_features[2])


def test_ids_are_distinct() -> None:
    """Two images of one name, or of one row, in two files stay two."""
    names = tuple(f"photo {i}" for i in range(6))
    whole = joined([part("ab", ids=names), part("ab", ids=names), part("ab")])
    assert len(set(whole.sample_ids)) == 18
    assert whole.sample_ids[6] == "1/photo 0" and whole.sample_ids[12] == "2/0"


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


def test_labelled_images_are_joined() -> None:
    """Those of all files that have some, in the numbers of the joined classes."""
    few: dict[str, Any] = {"few_features": np.eye(2, 8), "few_labels": np.array([0, 1])}
    whole = joined([part("ab", **few), part("cd"), part("cb", **few)])
    assert whole.task.resources[FEW].labels == (0, 1, 2, 1)


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


def test_a_single_file_is_one_domain() -> None:
    """Nothing else changes."""
    only = part("ab")
    whole = joined([only])
    assert whole.domains is not None and set(whole.domains.tolist()) == {0}
    np.testing.assert_array_equal(whole.image_features, only.image_features)


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"scale": 50.0}, "scales 100 and 50"),
        ({"model": "another"}, "another"),
        ({"labels": None}, "labels"),
    ],
)
def test_files_that_do_not_go_together_are_refused(other: dict[str, Any], word: str) -> None:
    """Another scale, model or only half of the labels is reported in one sentence."""
    with refused_in_one_sentence(word):
        joined([part("ab", model="one"), part("ab", **other)])


def test_other_widths_and_no_files_are_refused() -> None:
    """There is nothing that could be joined."""
    narrow = Features(np.ones((2, 3), dtype=np.float32), Task(("a", "b"), np.eye(2, 3)))
    with refused_in_one_sentence("8 and 3 wide"):
        joined([part("ab"), narrow])
    with refused_in_one_sentence("nothing"):
        joined([])


def test_domains_run_one_after_the_other(tmp_path: Path) -> None:
    """A joined stream runs, domain after domain, with images of all files scored."""
    files = [read_features(save_raw(tmp_path / f"{name}.npz")) for name in "ab"]
    seen: list[Any] = []
    scenario = Scenario("domains", images=10)
    result = run(
        joined(files), "tda", on_step=lambda s: seen.append(s.sample_id), scenario=scenario
    )
    assert [str(name)[0] for name in seen] == ["0"] * 5 + ["1"] * 5
    assert result.metrics["n_scored"] == 10
