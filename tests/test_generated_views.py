"""Folders of generated variations, the example that fills one, and stores of such views."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from crg.encoding.variations import Variations, relight
from crg.features.files import read_features
from crg.features.store import read_header
from crg.images.views import Recipe, make_views
from crg.shapes import shape_images
from encoding_fakes import HashEncoder, dot_files, dots, is_as_in_one_go, run, stop_after
from encoding_fakes import small_blocks as small_blocks
from processes import called
from sentences import check_refused

pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two variations of each of twenty dots."""
    return relight(dots(20), tmp_path / "variations", 2).folder


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
    for number, variation in enumerate(Variations(folder, 2).of("dot 7")):
        pixels = make_views(variation, encoder.preprocessing, Recipe(), "any")
        expected = encoder.encode_images(pixels)[0].astype(np.float16)
        np.testing.assert_array_equal(made.image_features[7, 3 + number], expected)
    assert made.generated == made.task.resources["generated"] == 2
    assert plain.generated is None and "generated" not in plain.task.resources
    key = read_header(tmp_path / "plain").key
    assert not [name for name in key if "generated" in name or "variations" in name]


def test_another_folder_or_number_is_refused_by_name(
    tmp_path: Path, folder: Path, encoded: Path
) -> None:
    """A store is never taken for one of other variations; an image with too few is left out."""
    other = relight(dots(20, shift=99), tmp_path / "other", 2)
    for given, words in (
        (other, ("content of the variations is", "--out")),
        (Variations(folder, 1), "generated views is 2 in the store but 1 was asked for"),
        (None, "generated views is 2 in the store but nothing was asked for"),
    ):
        check_refused(words, run, dots(20), encoded, variations=given)
    (folder / "dot 13" / "1.png").unlink()
    [(name, reason)] = run(dots(20), tmp_path / "t", variations=Variations(folder, 2)).skipped
    assert name == "dot 13" and "dot 13 has 1 variations" in reason and "--generated" in reason


def test_variations_that_changed_meanwhile_are_encoded_again(tmp_path: Path, folder: Path) -> None:
    """No block of a stopped job survives that was made from other variations."""
    stop_after(20, dots(20), tmp_path / "s", variations=Variations(folder, 2))
    other = relight(dots(20, shift=99), tmp_path / "other", 2)
    assert run(dots(20), tmp_path / "s", variations=other).n_reused == 0
    assert is_as_in_one_go(tmp_path / "s", dots(20), variations=other)


def test_from_images_to_difftpt(here: Path) -> None:
    """Shapes at night are encoded by mini with their variations, and DiffTPT runs on the store."""
    pytest.importorskip("torch")
    relight(shape_images("night", 3, 6, 0), here / "made", 3)
    images = ("encode", "shapes:night:3", "--limit", "6", "--model", "mini", "--views", "4")
    done = called(*images, "--variations", "made", "--generated", "3", "--out", "s")
    assert "6 images, 7 views each" in done.output
    words = ("--methods", "difftpt", "--json", "--orders", "1")
    assert json.loads(called("compare", "s", *words).output)["data"]["s"]["n_samples"] == 6
    called(*images, "--out", "plain")
    said = called("compare", "plain", *words, code=2).output
    assert "needs views that a generator made" in said
    assert "belong together" in called(*images, "--generated", "3", "--out", "t", code=2).output


SCRIPT = Path(__file__).parents[1] / "examples" / "generate.py"


def test_the_example_fills_one_folder_per_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each image gets different variations, and a second run makes only the missing ones."""
    pytest.importorskip("torch")

    def vary(image: Image.Image, generator: Any, **options: Any) -> Any:
        colour = tuple(generator.initial_seed() >> shift & 255 for shift in (0, 8, 16))
        return SimpleNamespace(images=[Image.new("RGB", image.size, colour)])

    pipeline, diffusers = Mock(side_effect=vary), Mock()
    diffusers.StableDiffusionImageVariationPipeline.from_pretrained().to.return_value = pipeline
    monkeypatch.setitem(sys.modules, "diffusers", diffusers)
    for name in ("cat", "dog"):
        (tmp_path / "photos").mkdir(exist_ok=True)
        dot_files(tmp_path / "photos" / name, 2)
    out = tmp_path / "made"
    words = [str(tmp_path / "photos"), "--weights", "w", "--count", "2", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    ids = [f"{name}/dot 0{k}.png" for name in ("cat", "dog") for k in (0, 1)]
    found = [path for each in ids for path in Variations(out, 2).of(each)]
    assert len({path.read_bytes() for path in found}) == 8 == pipeline.call_count
    found[1].unlink()
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert pipeline.call_count == 9 and found[1].exists()


def test_variations_are_found_with_and_without_the_ending(tmp_path: Path) -> None:
    """The folder may be named like the file or without its ending; others are not looked at."""
    for place, names in {"cat/1.jpg": "ba", "cat/2": "dc", "cat/1": "z"}.items():
        (tmp_path / place).mkdir(parents=True)
        for name in names:
            Image.new("RGB", (4, 4)).save(tmp_path / place / f"{name}.png")
    (tmp_path / "cat/1.jpg/.hidden.png").write_bytes(b"")
    (tmp_path / "cat/1.jpg/about.txt").write_text("none")
    found = Variations(tmp_path, 2)
    assert [path.name for path in found.of("cat/1.jpg")] == ["a.png", "b.png"]
    assert [path.name for path in found.of("cat/2.png")] == ["c.png", "d.png"]
    check_refused(("cat/1.gif has 1 variations", "--generated"), found.of, "cat/1.gif")
    for outside in ("../secret.png", "/etc/hostname", ""):
        check_refused("leads out of the folder", found.of, outside)
    check_refused("is not a folder", Variations, tmp_path / "nowhere", 2)


def test_the_fingerprint_follows_the_files(tmp_path: Path) -> None:
    """It changes with the files of these images and their number, and with nothing else."""
    images = dots(3)
    folder = relight(images, tmp_path / "v", 3).folder
    before = Variations(folder, 2).fingerprint(images.ids)
    (folder / "dot 0" / "2.png").write_bytes(b"not among the first two")
    assert Variations(folder, 2).fingerprint(images.ids) == before
    assert Variations(folder, 3).fingerprint(images.ids) != before
    (folder / "dot 0" / "1.png").write_bytes(b"another")
    assert Variations(folder, 2).fingerprint(images.ids) != before
