"""The bundled model: small, without torch, good at what it has never seen, honest about faults."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crg.encoders.base import Encoder
from crg.encoders.mini import MAX_WORDS, WEIGHTS, Mini, split_words
from crg.shapes import shape_images
from crg.shapes.drawing import COLOURS, OUTLINES, TEXTURES
from documents import ROOT
from sentences import refused_in_one_sentence

_WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from crg.encoders.mini import Mini
import numpy as np
mini = Mini()
side = mini.preprocessing.size
print(mini.encode_images(np.zeros((2, side, side, 3), np.uint8)).shape == (2, mini.width))
print(mini.encode_texts(["a red star"]).shape == (1, mini.width))
"""


@functools.cache
def _mini() -> Mini:
    return Mini()


def test_it_is_a_small_encoder() -> None:
    """Mini has all that the protocol asks for, takes less than 5 MB, and runs without torch."""
    mini: Encoder = _mini()
    assert mini.name == "mini" and 128 <= mini.width <= 256
    assert 1 < mini.logit_scale <= 100.01 and mini.logit_bias == 0
    assert len(mini.fingerprint) == 64 and mini.source
    assert WEIGHTS.stat().st_size < 5_000_000
    command = [sys.executable, "-c", _WITHOUT_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


@pytest.mark.parametrize("shift", ["sketch", "night", "noise"])
def test_held_out_combinations_are_recognised(shift: str) -> None:
    """Of clean images never seen in training over 85%; of shifted ones fewer, but not by chance."""
    assert _accuracy(None, 1) > 0.85
    assert 0.1 < _accuracy(shift, 5) < _accuracy(None, 1) - 0.1


def test_unknown_words_resemble_known_ones() -> None:
    """A misspelt or inflected word lies nearer to what was meant than to another known word."""
    for unknown, meant, other in [("stars", "star", "house"), ("hexagons", "hexagon", "heart")]:
        rows = _mini().encode_texts([f"a red {word}" for word in (unknown, meant, other)])
        assert rows[0] @ rows[1] > rows[0] @ rows[2]
    texts = ["a red plain star on a green background", "a green plain star on a red background"]
    rows = _mini().encode_texts([*texts, "a picture of a red plain star"])
    assert rows[2] @ rows[0] > rows[2] @ rows[1]  # word order and background do not mislead


@pytest.mark.parametrize(
    "text", ["", "   ", "?!", "red " * 100_000, "x" * 100_000, "\0", "星形", "Ünïcödé", "\ud800"]
)
def test_strange_texts_have_features(text: str) -> None:
    """Empty, absurdly long and foreign texts get finite features of unit length."""
    [row] = _mini().encode_texts([text])
    assert np.isfinite(row).all() and np.isclose(np.linalg.norm(row), 1, atol=1e-5)


def test_long_texts_are_cut() -> None:
    """Words beyond the limit are not read."""
    assert len(split_words("star " * 99)) == MAX_WORDS
    texts = ["star " * MAX_WORDS, "star " * MAX_WORDS + "red"]
    one, other = _mini().encode_texts(texts)
    assert np.array_equal(one, other)


@pytest.mark.parametrize("fault", ["missing", "empty", "cut", "flipped", "other"])
def test_damaged_weights_are_reported(fault: str, tmp_path: Path) -> None:
    """A missing or damaged file, down to one flipped bit, is reported in one sentence."""
    raw = bytearray(WEIGHTS.read_bytes())
    raw[-999] ^= 16
    contents = {"empty": b"", "cut": bytes(raw[:5000]), "flipped": bytes(raw), "other": b"{}" * 99}
    path = tmp_path / "mini.safetensors"
    if fault != "missing":
        path.write_bytes(contents[fault])
    with refused_in_one_sentence(str(path), "install crg-tta again", "train_mini.py"):
        Mini(path)


def _accuracy(shift: str | None, severity: int) -> float:
    pixels, labels = _views(shift, severity, 224)
    mini, images = _mini(), shape_images(shift, severity, 1, 0)
    texts = mini.encode_texts([f"a photo of a {name}." for name in images.class_names])
    guesses = (mini.encode_images(pixels) @ texts.T).argmax(axis=1)
    return float(np.mean(guesses == labels))


@functools.cache
def _views(shift: str | None, severity: int, count: int) -> Any:
    images = shape_images(shift, severity, count, seed=77)
    side = _mini().preprocessing.size
    drawn: list[Any] = [source.draw() for source in images.sources]  # type: ignore[union-attr]
    small = [each.resize((side, side), Image.Resampling.BICUBIC) for each in drawn]
    return np.stack([np.asarray(each) for each in small]), np.array(images.labels)


def test_the_documentation_lists_the_words_that_mini_knows() -> None:
    """Every colour, texture and shape of the training images is named in docs/mini.md, in order."""
    text = " ".join((ROOT / "docs" / "mini.md").read_text().split())
    for words in (COLOURS, TEXTURES, OUTLINES):
        assert f": {', '.join(words)}" in text
