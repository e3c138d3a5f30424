"""Folders of generated variations, and the example script that fills one."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from crg.encoding.variations import Variations
from encoding_fakes import dot_files, dots
from made_variations import make_variations
from sentences import refused_in_one_sentence

SCRIPT = Path(__file__).parents[1] / "examples" / "generate.py"


class Pipeline:
    """Stands in for the diffusion pipeline: a colour drawn from the given noise."""

    made = 0

    @classmethod
    def from_pretrained(cls, weights: str) -> Pipeline:
        return cls()

    def to(self, device: str) -> Pipeline:
        return self

    def __call__(self, image: Image.Image, generator: Any, **options: Any) -> Any:
        Pipeline.made += 1
        colour = tuple(generator.initial_seed() >> shift & 255 for shift in (0, 8, 16))
        return SimpleNamespace(images=[Image.new("RGB", image.size, colour)])


def test_the_example_fills_one_folder_per_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each image gets different variations, and a second run makes only the missing ones."""
    pytest.importorskip("torch")
    diffusers: Any = SimpleNamespace(StableDiffusionImageVariationPipeline=Pipeline)
    monkeypatch.setitem(sys.modules, "diffusers", diffusers)
    for name in ("cat", "dog"):
        (tmp_path / "photos").mkdir(exist_ok=True)
        dot_files(tmp_path / "photos" / name, 2)
    out = tmp_path / "made"
    words = [str(tmp_path / "photos"), "--weights", "w", "--count", "2", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    names = [f"{kind}/dot 0{k}.png" for kind in ("cat", "dog") for k in (0, 1)]
    found = [Variations(out, 2).of(name) for name in names]
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
