"""Variations by a small pipeline of diffusers' real class with random weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from crg.cli.generate import generate as command
from crg.generation import diffusion as module
from crg.generation.diffusion import DiffusersGenerator
from crg.generation.variations import Generator, Variations, seed_of
from crg.types import InputError
from encoding_fakes import Dot
from sentences import refused_in_one_sentence
from small_pipeline import SIDE, libraries, save_pipeline


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pipeline."""
    return save_pipeline(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def generator(weights: Path) -> Generator:
    """The pipeline, with few steps."""
    return DiffusersGenerator(weights, steps=3, device="cpu")


def made(generator: Generator, number: int, image: int = 3, name: str = "a", seed: int = 0) -> Any:
    """The pixels of one variation."""
    [made] = generator.generate(Dot(image).draw(), name, [number], seed)
    assert (made.mode, made.size) == ("RGB", (SIDE, SIDE))
    return np.asarray(made).astype(int)


def test_variations_can_be_had_again(generator: Generator, weights: Path) -> None:
    """One is the same from the same weights, whatever was made before it or is made with it."""
    first = made(generator, 2)
    several = list(generator.generate(Dot(3).draw(), "a", [0, 1, 2], 0))
    np.testing.assert_array_equal(np.asarray(several[2]), first)
    again = DiffusersGenerator(weights, steps=3, device="cpu")
    np.testing.assert_array_equal(made(again, 2), first)


@pytest.mark.parametrize("other", [{"number": 1}, {"name": "b"}, {"seed": 1}, {"image": 200}])
def test_number_id_seed_and_image_each_matter(generator: Generator, other: dict[str, Any]) -> None:
    """A change of any of them gives another variation."""
    assert np.abs(made(generator, **{"number": 0, **other}) - made(generator, 0)).max() > 0


def test_it_is_what_the_pipeline_itself_gives(generator: Any, weights: Path) -> None:
    """The image is prepared as the pipeline would do it, and what is made of it is the same."""
    import torch

    diffusers, _ = libraries()
    pipeline = diffusers.StableDiffusionImageVariationPipeline.from_pretrained(
        weights, low_cpu_mem_usage=False
    )
    image = Dot(3).draw().resize((32, 32))
    pixels = torch.from_numpy(generator._pixels(image))
    expected = pipeline.feature_extractor(image, return_tensors="pt").pixel_values
    torch.testing.assert_close(pixels, expected, rtol=0, atol=1e-5)
    noise = torch.Generator("cpu").manual_seed(seed_of(0, "a", 0))
    options = {"num_inference_steps": 3, "guidance_scale": 3.0, "generator": noise}
    [ours] = generator.generate(image, "a", [0], 0)
    assert ours.tobytes() == pipeline(pixels, **options).images[0].tobytes()


def test_images_of_any_size_are_squashed(generator: Any) -> None:
    """A wide image is seen whole: its two halves are the halves of the square."""
    wide = Image.new("RGB", (90, 20), (255, 0, 0))
    wide.paste((0, 0, 255), (45, 0, 90, 20))
    red = generator._pixels(wide)[0, 0]
    assert red.shape == (32, 32) and red[:, :14].min() > 1.5 and red[:, 18:].max() < -1.5


def test_global_random_state_and_screen_are_left_alone(
    weights: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Loading and making draw nothing from torch's own generator and print nothing."""
    import torch

    capfd.readouterr()
    before = torch.get_rng_state()
    made(DiffusersGenerator(weights, steps=2, device="cpu"), 0)
    assert torch.equal(torch.get_rng_state(), before)
    assert capfd.readouterr() == ("", "")


def test_folders_that_are_no_pipeline_are_refused(tmp_path: Path, weights: Path) -> None:
    """Nothing is fetched: what is not in the folder is reported in one sentence."""
    with refused_in_one_sentence("holds no model_index.json", "save_pretrained"):
        DiffusersGenerator(tmp_path)
    shutil.copytree(weights, tmp_path / "half", ignore=shutil.ignore_patterns("*.safetensors"))
    with refused_in_one_sentence("cannot be loaded", "save_pretrained"):
        DiffusersGenerator(tmp_path / "half")


def test_a_library_that_does_not_load_is_reported(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where diffusers fails to import what it needs, the sentence names the extra."""

    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(module, "library", lambda name, extra: Broken())
    with refused_in_one_sentence("torchvision::nms", "'.[diffusion]'"):
        DiffusersGenerator(weights)


def test_other_weights_are_told_apart(tmp_path: Path, weights: Path) -> None:
    """What is written down of a generator changes with its weights and its settings."""
    shutil.copytree(weights, tmp_path / "w")
    config = tmp_path / "w" / "scheduler" / "scheduler_config.json"
    config.write_text(config.read_text().replace("0.02", "0.03"))
    seen = [
        DiffusersGenerator(weights, steps=3, device="cpu").describe(),
        DiffusersGenerator(weights, steps=4, device="cpu").describe(),
        DiffusersGenerator(tmp_path / "w", steps=3, device="cpu").describe(),
    ]
    assert len({json.dumps(dict(each)) for each in seen}) == 3


def test_the_command_makes_variations_once(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images get their variations, a second call finds them, another seed is refused."""
    for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Dot(len(name)).draw().save(tmp_path / "images" / name)
    monkeypatch.chdir(tmp_path)
    first = _generate(weights, "--json")
    assert (first.exit_code, json.loads(first.stdout)["n_made"]) == (0, 6)
    assert [path.name for path in Variations(Path("made"), 2).of("cat/2.png")] == [
        "0000.png",
        "0001.png",
    ]
    assert "0 variations made, 6 were there" in _generate(weights).output
    assert isinstance(_generate(weights, "--seed", "3").exception, InputError)


def _generate(weights: Path, *words: str) -> Result:
    asked = ["images", "--weights", str(weights), "--count", "2", "--out", "made"]
    return CliRunner().invoke(command, [*asked, "--steps", "2", "--device", "cpu", *words])
