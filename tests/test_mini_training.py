"""How the bundled model is trained: its twin in torch, its images, its loss, going on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captions import Caption
from crg.encoders.mini import Mini
from crg.shapes.scenes import Thing
from documents import ROOT

torch = pytest.importorskip("torch")
sys.path.append(str(ROOT / "tools"))

import mini_bank  # noqa: E402
import mini_twin  # noqa: E402
import train_mini  # noqa: E402

_PLAN = mini_twin.Plan(
    size=24, width=32, channels=(6, 10, 14), word_width=16, layers=2, heads=2, buckets=64
)
_WORDS = ("a", "photo", "of", "red", "star")
_SETTINGS = argparse.Namespace(seed=3, batch=24, steps=4, rate=1e-3)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A few hundred small training images."""
    folder = tmp_path_factory.mktemp("bank")
    *_, made = mini_bank.load_bank(folder, seed=0, count=260, size=24, workers=1)
    return made


def test_numpy_computes_what_torch_does(tmp_path: Path) -> None:
    """The NumPy forward pass equals the torch twin's to 1e-4, images and sentences."""
    twin = _twin()
    path = tmp_path / "mini.safetensors"
    mini_twin.write_weights(twin, path, {}, np.float32)
    mini, rng = Mini(path), np.random.default_rng(0)
    pixels = rng.integers(0, 256, (70, 24, 24, 3), dtype=np.uint8)
    texts = ["a photo of a red star", "", "a blue unknownword", "star " * 50]
    with torch.no_grad():
        images, sentences = twin.images(torch.from_numpy(pixels)), twin.texts(texts)
    assert np.abs(images.numpy() - mini.encode_images(pixels)).max() < 1e-4
    assert np.abs(sentences.numpy() - mini.encode_texts(texts)).max() < 1e-4
    assert mini.logit_scale == pytest.approx(float(twin.log_scale.detach().exp()))


def test_every_true_sentence_is_a_match() -> None:
    """Sentences with fewer details fit more images; the loss is least where matches win."""
    facts = np.array([[0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 1, 0, 0, 0]])
    shape, colour = mini_bank.VALUES[0][0], mini_bank.VALUES[1][1]
    details = [(shape, None, None, None, None), (shape, colour, None, None, None), (None, colour)]
    captions = [Caption("", (*each, None, None, None)[:5]) for each in details]
    fits = mini_bank.agreement(captions, facts)
    assert fits.tolist() == [[True, False, False], [True, True, True], [False, False, True]]
    good = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    right, even, wrong = (float(train_mini.contrastive(g * good, good)) for g in (9.0, 0.0, -9.0))
    assert right == pytest.approx(np.log(2) * 2 / 3, abs=0.01)
    assert right < even < wrong


def test_training_images_are_not_held_out(bank: Any) -> None:
    """The bank holds no held-out combination, its narrow batches few kinds; all words are known."""
    names = [bank._words(row) for row in range(len(bank.pixels))]
    assert not any(Thing(colour, texture, shape).held_out for shape, colour, texture, *_ in names)
    wide, narrow = (bank.facts[bank.batch(0, step, 24)] for step in (0, 1))
    assert len(set(narrow[:, 0])) < len(set(wide[:, 0]))
    words = train_mini.vocabulary()
    assert {"star", "crimson", "itap", "background", "stripes", "polka"} <= set(words)
    assert words == sorted(set(words))


def test_interrupted_training_continues(bank: Any, tmp_path: Path) -> None:
    """Stopped after two steps and started again, it ends with the weights of one run."""
    whole, halves = _twin(), _twin()
    path = tmp_path / "checkpoint.pt"
    first, second = _optimiser(whole), _optimiser(halves)
    for step in range(4):
        train_mini.train_step(whole, bank, first, _SETTINGS, step)
    for step in range(2):
        train_mini.train_step(halves, bank, second, _SETTINGS, step)
    train_mini._keep(halves, second, path, 2, 1.5)
    halves = _twin(seed=9)
    second = _optimiser(halves)
    assert train_mini._resume(halves, second, path) == (2, 1.5)
    for step in range(2, 4):
        train_mini.train_step(halves, bank, second, _SETTINGS, step)
    pairs = zip(whole.state_dict().items(), halves.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for (_, one), other in pairs)


def _twin(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    twin = mini_twin.Twin(_PLAN, _WORDS)
    for module in twin.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # as if trained
            torch.nn.init.uniform_(module.weight, 0.5, 2)
            torch.nn.init.normal_(module.bias)
            torch.nn.init.normal_(module.running_mean)
            torch.nn.init.uniform_(module.running_var, 0.5, 2)
    return twin.eval()


def _optimiser(twin: Any) -> Any:
    return torch.optim.AdamW(train_mini._groups(twin), lr=1e-3)
