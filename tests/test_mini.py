"""The bundled model: small, without torch, good at what it has never seen, honest about faults."""

from __future__ import annotations

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
from sentences import check_refused

MINI = Mini()


def test_it_is_a_small_encoder() -> None:
    """Mini has all that the protocol asks for, and takes less than 5 MB."""
    mini: Encoder = MINI
    assert mini.name == "mini" and 128 <= mini.width <= 256
    assert 1 < mini.logit_scale <= 100.01 and len(mini.fingerprint) == 64
    assert WEIGHTS.stat().st_size < 5_000_000


def test_held_out_combinations_are_recognised() -> None:
    """Zero-shot on combinations never seen in training is above 85%, and lower under shifts."""
    clean = _accuracy(None, 1)
    assert clean > 0.85
    for shift in ("sketch", "night", "noise"):
        assert 0.1 < _accuracy(shift, 5) < clean - 0.1


def test_sentences_lie_near_what_they_mean() -> None:
    """Swapped colours lie farther away, a misspelt or inflected word near the one meant."""
    texts = ["a red plain star on a green background", "a green plain star on a red background"]
    rows = MINI.encode_texts([*texts, "a picture of a red plain star"])
    assert rows[2] @ rows[0] > rows[2] @ rows[1]
    for unknown, meant, other in [("stars", "star", "house"), ("hexagons", "hexagon", "heart")]:
        rows = MINI.encode_texts([f"a red {word}" for word in (unknown, meant, other)])
        assert rows[0] @ rows[1] > rows[0] @ rows[2]


def test_strange_texts_have_features() -> None:
    """Empty, long and foreign texts have unit features; words beyond the limit are not read."""
    strange = ["", "   ", "?!", "red " * 10**5, "x" * 10**5, "\0", "星形", "Ünïcödé", "\ud800"]
    assert np.allclose(np.linalg.norm(MINI.encode_texts(strange), axis=1), 1, atol=1e-5)
    assert len(split_words("star " * 99)) == MAX_WORDS
    texts = ["star " * MAX_WORDS, "star " * MAX_WORDS + "red"]
    one, other = MINI.encode_texts(texts)
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
    check_refused((str(path), "install crg-tta again", "train_mini.py"), Mini, path)


def _accuracy(shift: str | None, severity: int) -> float:
    images, side = shape_images(shift, severity, 224, seed=77), MINI.preprocessing.size
    drawn: list[Any] = [source.draw() for source in images.sources]  # type: ignore[union-attr]
    small = [each.resize((side, side), Image.Resampling.BICUBIC) for each in drawn]
    texts = MINI.encode_texts([f"a photo of a {name}." for name in images.class_names])
    guesses = (MINI.encode_images(np.stack(small)) @ texts.T).argmax(axis=1)
    return float(np.mean(guesses == np.array(images.labels)))


def test_the_documentation_lists_the_words_that_mini_knows() -> None:
    """Every colour, texture and shape of the training images is named in docs/mini.md, in order."""
    text = " ".join((ROOT / "docs" / "mini.md").read_text().split())
    for words in (COLOURS, TEXTURES, OUTLINES):
        assert f": {', '.join(words)}" in text
