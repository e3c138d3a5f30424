"""A tiny encoder that knows colours, for tests of what stands around an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crg.classifier import Classifier
from crg.encoders.base import Vectors
from crg.images.preprocessing import Pixels, Preprocessing

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220)}


class ColourEncoder:
    """The mean colour of an image, and the mean colour of the words of a text."""

    name = "colours"
    width = 4
    preprocessing = Preprocessing(16, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    logit_scale = 20.0
    fingerprint = "colours-1"

    def __init__(self) -> None:
        self.calls: list[int] = []  # images per call

    def encode_images(self, pixels: Pixels) -> Vectors:
        """The mean colour with a constant."""
        self.calls.append(len(pixels))
        means = pixels.reshape(len(pixels), -1, 3).mean(axis=1) / 255
        return _unit(np.concatenate([means, np.full((len(means), 1), 0.2)], axis=1))

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """The colour that a text names."""
        words = [[COLOURS[w] for w in text.strip(".").split() if w in COLOURS] for text in texts]
        means = [np.mean(found or [(128, 128, 128)], axis=0) / 255 for found in words]
        return _unit(np.array([[*mean, 0.2] for mean in means]))


def save_image(path: Path, colour: str, noise: int = 0) -> Path:
    """An image of one colour, a little different for each ``noise``."""
    values = np.clip(np.array(COLOURS[colour]) + 7 * (noise % 5) - 14, 0, 255)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (24, 20), tuple(int(value) for value in values)).save(path)
    return path


def save_stream(folder: Path, count: int = 12) -> list[Path]:
    """Images of all colours in turn."""
    names = list(COLOURS)
    return [
        save_image(folder / f"{i:03}.png", names[i % len(names)], noise=i) for i in range(count)
    ]


def use_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``crg predict`` use this model, whatever it is asked for."""
    wanted = lambda **given: Classifier(**{**given, "model": ColourEncoder()})  # noqa: E731
    monkeypatch.setattr("crg.predict.job.Classifier", wanted)


def _unit(rows: np.ndarray[Any, Any]) -> Vectors:
    unit: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit
