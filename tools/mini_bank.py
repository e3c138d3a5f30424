"""The training images of the bundled model, rendered once and kept in a file."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from captions import FACTS, Caption, caption, facts_of, training_image
from crg.atomic import replacing
from crg.shapes.drawing import COLOURS, OUTLINES, SIDE, TEXTURES, draw
from crg.shapes.scenes import SIZES, generator

VALUES: tuple[tuple[str, ...], ...] = (  # in the order of FACTS
    tuple(OUTLINES),
    tuple(COLOURS),
    tuple(TEXTURES),
    tuple(SIZES),
    tuple(COLOURS),
)
_NARROW = (0.4, 0.4, 0.5, 1.0, 1.0)  # share of shapes, colours, textures, ... in a narrow batch
_CHUNK = 250


@dataclass(frozen=True)
class Bank:
    """Images with the facts about each."""

    pixels: Any  # (N, S, S, 3) uint8
    facts: Any  # (N, number of FACTS) int8, places in VALUES

    def batch(self, seed: int, step: int, size: int) -> Any:
        """The rows of one step; every other one is narrow, so that it tells like from like."""
        rng = generator("batch", seed, step)
        rows = np.arange(len(self.pixels))
        if step % 2:
            shares = zip(VALUES, _NARROW, strict=True)
            kept = [_subset(rng, len(values), share) for values, share in shares]
            fitting = [each[places] for each, places in zip(kept, self.facts.T, strict=True)]
            rows = np.flatnonzero(np.all(fitting, axis=0))
        return rng.choice(rows, size, replace=len(rows) < size)

    def captions(self, rows: Any, seed: int, step: int) -> list[Caption]:
        """A fresh sentence about each image."""
        rng = generator("captions", seed, step)
        return [caption(self._words(row), rng) for row in rows]

    def _words(self, row: int) -> tuple[str, ...]:
        return tuple(values[place] for values, place in zip(VALUES, self.facts[row], strict=True))


def _subset(rng: np.random.Generator, count: int, share: float) -> Any:
    chosen = np.zeros(count, np.bool_)
    chosen[rng.permutation(count)[: max(2, round(share * count))]] = True
    return chosen


def agreement(captions: list[Caption], facts: Any) -> Any:
    """(n, n): whether the sentence of a column is true of the image of a row."""
    named = np.array([_places(each.facts) for each in captions])
    return np.all((named[None] == -1) | (named[None] == facts[:, None]), axis=2)


def _places(words: Sequence[str | None]) -> list[int]:
    return [_place(values, word) for values, word in zip(VALUES, words, strict=True)]


def _place(values: tuple[str, ...], word: str | None) -> int:
    return -1 if word is None else values.index(word)


def load_bank(folder: Path, seed: int, count: int, size: int, workers: int) -> Iterator[Any]:
    """Yields the share that is rendered, and last of all the Bank."""
    path = folder / f"bank-{seed}-{count}-{size}.npz"
    if not path.exists():
        yield from _render(path, seed, count, size, workers)
    with np.load(path) as stored:
        yield Bank(stored["pixels"], stored["facts"])


def _render(path: Path, seed: int, count: int, size: int, workers: int) -> Iterator[float]:
    jobs = [(seed, start, min(start + _CHUNK, count), size) for start in range(0, count, _CHUNK)]
    pixels = np.empty((count, size, size, 3), np.uint8)
    facts = np.empty((count, len(FACTS)), np.int8)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for done, (job, drawn) in enumerate(zip(jobs, pool.imap(_some, jobs), strict=True), 1):
            pixels[job[1] : job[2]], facts[job[1] : job[2]] = drawn
            yield done / len(jobs)
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, pixels=pixels, facts=facts)


def _some(job: tuple[int, int, int, int]) -> tuple[Any, Any]:
    seed, start, stop, size = job
    drawn = [_one(seed, index, size) for index in range(start, stop)]
    return np.stack([pixels for pixels, _ in drawn]), np.array([f for _, f in drawn], np.int8)


def _one(seed: int, index: int, size: int) -> tuple[Any, list[int]]:
    scene = training_image(seed, index).scene()
    box = _crop(generator("crop", seed, index))
    image = draw(scene.look).resize((size, size), Image.Resampling.BICUBIC, box=box)
    return np.asarray(image), _places(facts_of(scene))


def _crop(rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Half of the images whole, the others cropped, as views will be, if less narrowly."""
    if rng.random() < 0.5:
        return 0, 0, SIDE, SIDE
    area, ratio = rng.uniform(0.2, 1.0), np.exp(rng.uniform(-0.29, 0.29))
    w, h = (min(1.0, float(np.sqrt(area * r))) for r in (ratio, 1 / ratio))
    x, y = rng.uniform(0, 1 - w), rng.uniform(0, 1 - h)
    return x * SIDE, y * SIDE, (x + w) * SIDE, (y + h) * SIDE
