"""Stores whose last views were generated; crops in other light stand in for a diffusion model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from crg.cli import main
from crg.encoding.variations import Variations
from crg.features.files import read_features, write_features
from crg.features.store import read_header
from crg.images.views import Recipe, make_views
from crg.shapes import shape_images
from encoding_fakes import HashEncoder, dots, is_as_in_one_go, run, small_blocks, stop_after
from made_variations import make_variations
from sentences import refused_in_one_sentence

__all__ = ["small_blocks"]  # a fixture
pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two variations of each of twenty dots."""
    return make_variations(dots(20), tmp_path / "variations", 2)


@pytest.fixture
def encoded(tmp_path: Path, folder: Path) -> Path:
    """A store of three ordinary views and the two variations."""
    run(dots(20), tmp_path / "s", variations=Variations(folder, 2))
    return tmp_path / "s"


def test_generated_views_come_last(tmp_path: Path, folder: Path, encoded: Path) -> None:
    """The ordinary views are those of a store without, the others are made like row 0.

    Threads that read ahead and one that does not give the same files.
    """
    assert is_as_in_one_go(encoded, dots(20), workers=0, variations=Variations(folder, 2))
    run(dots(20), tmp_path / "plain")
    made, plain = read_features(encoded), read_features(tmp_path / "plain")
    assert made.n_views == 3 + 2
    np.testing.assert_array_equal(made.image_features[:, :3], plain.image_features)
    encoder = HashEncoder()
    for number in (0, 1):
        pixels = make_views(
            folder / "dot 7" / f"000{number}.png", encoder.preprocessing, Recipe(), "any"
        )
        expected = encoder.encode_images(pixels)[0].astype(np.float16)
        np.testing.assert_array_equal(made.image_features[7, 3 + number], expected)
    assert made.generated == made.task.resources["generated"] == 2
    assert plain.generated is None and "generated" not in plain.task.resources
    key = read_header(tmp_path / "plain").key
    assert not [name for name in key if "generated" in name or "variations" in name]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_feature_file_keeps_the_number(tmp_path: Path, encoded: Path, suffix: str) -> None:
    """The number of generated views survives in a feature file; an impossible one is refused."""
    write_features(tmp_path / f"f{suffix}", read_features(encoded))
    features = read_features(tmp_path / f"f{suffix}")
    assert features.task.resources["generated"] == 2
    number: Any
    for number in (0, 5, -1, 1.5):
        with refused_in_one_sentence(f"generated is {number} but there are 5 views"):
            dataclasses.replace(features, generated=number)


def test_another_folder_or_number_is_refused_by_name(
    tmp_path: Path, folder: Path, encoded: Path
) -> None:
    """A finished store is never taken for one of other variations."""
    other = make_variations(dots(20), tmp_path / "other", 2, first=3)
    with refused_in_one_sentence("content of the variations is", "--out"):
        run(dots(20), encoded, variations=Variations(other, 2))
    with refused_in_one_sentence("generated views is 2 in the store but 1 was asked for"):
        run(dots(20), encoded, variations=Variations(folder, 1))
    with refused_in_one_sentence("generated views is 2 in the store but nothing was asked for"):
        run(dots(20), encoded)


def test_an_image_with_too_few_variations_is_named(tmp_path: Path, folder: Path) -> None:
    """It ends the job or is left out; once repaired, the job continues where it was."""
    last, some = folder / "dot 13" / "0001.png", Variations(folder, 2)
    content = last.read_bytes()
    last.unlink()
    words = ("dot 13 has 1 variations", "but 2 are needed", "--generated", "8 of 20 images")
    with refused_in_one_sentence(*words):
        run(dots(20), tmp_path / "s", variations=some)
    done = run(dots(20), tmp_path / "t", variations=some, skip_unreadable=True)
    assert [name for name, _ in done.skipped] == ["dot 13"] and done.n_images == 19
    last.write_bytes(content)
    assert run(dots(20), tmp_path / "s", variations=some).n_reused == 8
    assert is_as_in_one_go(tmp_path / "s", dots(20), variations=some)


def test_variations_that_changed_meanwhile_are_encoded_again(tmp_path: Path, folder: Path) -> None:
    """No block of a stopped job survives that was made from other variations."""
    stop_after(20, dots(20), tmp_path / "s", variations=Variations(folder, 2))
    other = Variations(make_variations(dots(20), tmp_path / "other", 2, first=3), 2)
    assert run(dots(20), tmp_path / "s", variations=other).n_reused == 0
    assert is_as_in_one_go(tmp_path / "s", dots(20), variations=other)


def test_from_images_to_difftpt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes at night are encoded by mini with their variations, and DiffTPT runs on the store."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRG_CACHE", str(tmp_path / "cache"))
    make_variations(shape_images("night", 3, 6, 0), tmp_path / "made", 3)
    images = ("encode", "shapes:night:3", "--limit", "6", "--model", "mini", "--views", "4")
    done = _crg(*images, "--variations", "made", "--generated", "3", "--out", "s")
    assert "6 images, 7 views each" in done
    words = ("--methods", "difftpt", "--no-results", "--json", "--orders", "1")
    assert json.loads(_crg("compare", "s", *words))["data"]["s"]["n_samples"] == 6
    _crg(*images, "--out", "plain")
    assert "needs views that a generator made" in _crg("compare", "plain", *words)
    assert "belong together" in _crg(*images, "--generated", "3", "--out", "t")


def _crg(*words: str) -> str:
    return CliRunner().invoke(main, list(words)).output
