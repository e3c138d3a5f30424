"""Stores whose last views were generated; crops in other light stand in for a diffusion model."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from crg.cli import main
from crg.features.files import Features, read_features, write_features
from crg.features.store import read_header
from crg.generation.variations import Variations
from crg.images.views import Recipe, make_views
from crg.shapes import shape_images
from encoding_fakes import HashEncoder, StoppedAfter, contents, dots, run, small_blocks
from made_variations import make_variations
from sentences import refused_in_one_sentence

__all__ = ["small_blocks"]  # a fixture
pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two variations of each of twenty dots."""
    return make_variations(dots(20), tmp_path / "variations", 2)


def test_generated_views_come_last(tmp_path: Path, folder: Path) -> None:
    """The ordinary views are those of a store without, the others are made like row 0."""
    done = run(dots(20), tmp_path / "s", variations=Variations(folder, 2))
    assert done.n_views == 3 + 2
    run(dots(20), tmp_path / "plain")
    made, plain = read_features(tmp_path / "s"), read_features(tmp_path / "plain")
    np.testing.assert_array_equal(made.image_features[:, :3], plain.image_features)
    encoder = HashEncoder()
    for number in (0, 1):
        pixels = make_views(
            folder / "dot 7" / f"000{number}.png", encoder.preprocessing, Recipe(), "any"
        )
        expected = encoder.encode_images(pixels)[0].astype(np.float16)
        np.testing.assert_array_equal(made.image_features[7, 3 + number], expected)


def test_workers_do_not_change_the_bytes(tmp_path: Path, folder: Path) -> None:
    """Threads that read ahead and one that does not give the same files."""
    for workers in (0, 3):
        run(dots(20), tmp_path / str(workers), workers=workers, variations=Variations(folder, 2))
    assert contents(tmp_path / "0") == contents(tmp_path / "3")


def test_the_task_tells_how_many_were_generated(tmp_path: Path, folder: Path) -> None:
    """Features and task of such a store know the number; those of others know none."""
    run(dots(20), tmp_path / "s", variations=Variations(folder, 2))
    made = read_features(tmp_path / "s")
    assert made.generated == made.task.resources["generated"] == 2
    run(dots(20), tmp_path / "plain")
    plain = read_features(tmp_path / "plain")
    assert plain.generated is None and "generated" not in plain.task.resources
    key = read_header(tmp_path / "plain").key
    assert not [name for name in key if "generated" in name or "variations" in name]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_feature_file_keeps_the_number(tmp_path: Path, folder: Path, suffix: str) -> None:
    """What a store knows of its generated views survives in a feature file."""
    run(dots(20), tmp_path / "s", variations=Variations(folder, 2))
    write_features(tmp_path / f"f{suffix}", read_features(tmp_path / "s"))
    assert read_features(tmp_path / f"f{suffix}").task.resources["generated"] == 2


@pytest.mark.parametrize("number", [0, 5, -1, 1.5])
def test_an_impossible_number_is_refused(tmp_path: Path, folder: Path, number: Any) -> None:
    """Neither none nor all of the views can be generated, as the first is the original."""
    run(dots(20), tmp_path / "s", variations=Variations(folder, 2))
    made: Features = read_features(tmp_path / "s")
    with refused_in_one_sentence(f"generated is {number} but there are 5 views"):
        dataclasses.replace(made, generated=number)


def test_another_folder_or_number_is_refused_by_name(tmp_path: Path, folder: Path) -> None:
    """A finished store is never taken for one of other variations."""
    run(dots(20), tmp_path / "s", variations=Variations(folder, 2))
    other = make_variations(dots(20), tmp_path / "other", 2, first=3)
    with refused_in_one_sentence("content of the variations is", "--out"):
        run(dots(20), tmp_path / "s", variations=Variations(other, 2))
    with refused_in_one_sentence("generated views is 2 in the store but 1 was asked for"):
        run(dots(20), tmp_path / "s", variations=Variations(folder, 1))
    with refused_in_one_sentence("generated views is 2 in the store but nothing was asked for"):
        run(dots(20), tmp_path / "s")


def test_an_image_with_too_few_variations_is_named(tmp_path: Path, folder: Path) -> None:
    """It ends the job, or is left out where that was asked for."""
    (folder / "dot 13" / "0001.png").unlink()
    with refused_in_one_sentence("dot 13 has 1 variations", "but 2 are needed", "crg generate"):
        run(dots(20), tmp_path / "s", variations=Variations(folder, 2))
    done = run(dots(20), tmp_path / "t", variations=Variations(folder, 2), skip_unreadable=True)
    assert [name for name, _ in done.skipped] == ["dot 13"] and done.n_images == 19


def test_corrected_variations_go_on_where_the_job_was(tmp_path: Path, folder: Path) -> None:
    """Blocks whose variations are as they were are kept, the others are encoded again."""
    whole = make_variations(dots(20), tmp_path / "whole", 2)
    (folder / "dot 13" / "0001.png").unlink()
    with refused_in_one_sentence("8 of 20 images are kept"):
        run(dots(20), tmp_path / "s", variations=Variations(folder, 2))
    shutil.copy(whole / "dot 13" / "0001.png", folder / "dot 13")
    assert run(dots(20), tmp_path / "s", variations=Variations(folder, 2)).n_reused == 8
    run(dots(20), tmp_path / "t", variations=Variations(whole, 2))
    assert contents(tmp_path / "s") == contents(tmp_path / "t")


def test_variations_that_changed_meanwhile_are_encoded_again(tmp_path: Path, folder: Path) -> None:
    """No block of a stopped job survives that was made of other variations."""
    with pytest.raises(KeyboardInterrupt):
        run(dots(20), tmp_path / "s", StoppedAfter(20), variations=Variations(folder, 2))
    other = make_variations(dots(20), tmp_path / "other", 2, first=3)
    assert run(dots(20), tmp_path / "s", variations=Variations(other, 2)).n_reused == 0
    run(dots(20), tmp_path / "t", variations=Variations(other, 2))
    assert contents(tmp_path / "s") == contents(tmp_path / "t")


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
