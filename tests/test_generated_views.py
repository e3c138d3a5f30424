"""Folders of generated variations, the example that fills one, and stores of such views."""

from __future__ import annotations

import dataclasses
import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image, ImageEnhance

from crg.cli import main
from crg.encoding.variations import Variations
from crg.features.files import read_features, write_features
from crg.features.store import read_header
from crg.images.image_set import ImageSet
from crg.images.reading import read_image
from crg.images.views import Recipe, make_views
from crg.shapes import shape_images
from encoding_fakes import (
    HashEncoder,
    dot_files,
    dots,
    is_as_in_one_go,
    run,
    small_blocks,
    stop_after,
)
from sentences import refused_in_one_sentence

__all__ = ["small_blocks"]  # a fixture
pytestmark = pytest.mark.usefixtures("small_blocks")


def _variation(image: Image.Image, number: int) -> Image.Image:
    """One of them: the larger its number, the smaller the part and the stronger the light."""
    margin = min(image.size) * (number + 1) // 20
    part = image.crop((margin, margin, image.width - margin, image.height - margin))
    return ImageEnhance.Brightness(part).enhance(0.9 + 0.1 * number)


def make_variations(images: ImageSet, folder: Path, count: int, first: int = 0) -> Path:
    """A folder of ``count`` variations for each image."""
    for name, source in zip(images.ids, images.sources, strict=True):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(first, first + count):
            _variation(read_image(source), number).save(folder / name / f"{number:04d}.png")
    return folder


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


SCRIPT = Path(__file__).parents[1] / "examples" / "generate.py"


class Pipeline:
    """Stands in for the diffusion pipeline: a colour drawn from the given noise."""

    made = 0

    @classmethod
    def from_pretrained(cls, weights: str) -> Pipeline:
        """A pipeline, from any folder."""
        return cls()

    def to(self, device: str) -> Pipeline:
        """The pipeline itself."""
        return self

    def __call__(self, image: Image.Image, generator: Any, **options: Any) -> Any:
        """One image."""
        Pipeline.made += 1
        colour = tuple(generator.initial_seed() >> shift & 255 for shift in (0, 8, 16))
        return SimpleNamespace(images=[Image.new("RGB", image.size, colour)])


def test_the_example_fills_one_folder_per_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each image gets different variations, and a second run makes only the missing ones."""
    pytest.importorskip("torch")
    monkeypatch.setitem(
        sys.modules,
        "diffusers",
        SimpleNamespace(StableDiffusionImageVariationPipeline=Pipeline),
    )
    for name in ("cat", "dog"):
        (tmp_path / "photos").mkdir(exist_ok=True)
        dot_files(tmp_path / "photos" / name, 2)
    out = tmp_path / "made"
    words = [str(tmp_path / "photos"), "--weights", "w", "--count", "2", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    found = [
        Variations(out, 2).of(f"{name}/dot 0{k}.png") for name in ("cat", "dog") for k in (0, 1)
    ]
    assert len({path.read_bytes() for paths in found for path in paths}) == 8 == Pipeline.made
    found[0][1].unlink()
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert Pipeline.made == 9 and found[0][1].exists()


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
    with refused_in_one_sentence("cat/1.gif has 1 variations", "--generated"):
        found.of("cat/1.gif")
    for outside in ("../secret.png", "/etc/hostname", ""):
        with refused_in_one_sentence("leads out of the folder"):
            found.of(outside)
    with refused_in_one_sentence("is not a folder"):
        Variations(tmp_path / "nowhere", 2)


def test_the_fingerprint_follows_the_files(tmp_path: Path) -> None:
    """It changes with the files of these images and their number, and with nothing else."""
    images = dots(3)
    folder = make_variations(images, tmp_path / "v", 3)
    before = Variations(folder, 2).fingerprint(images.ids)
    (folder / "dot 0" / "0002.png").write_bytes(b"not among the first two")
    assert Variations(folder, 2).fingerprint(images.ids) == before
    assert Variations(folder, 3).fingerprint(images.ids) != before
    (folder / "dot 0" / "0001.png").write_bytes(b"another")
    assert Variations(folder, 2).fingerprint(images.ids) != before
