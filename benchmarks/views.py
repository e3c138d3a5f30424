"""How long the views of one image take, from the file to the batch that a model wants.

    python benchmarks/views.py            measure and print the table
    python benchmarks/views.py --write    and write it into docs/encoders.md
    python benchmarks/views.py --quick    a smoke test with few rounds

Everything runs in one process, in turn and again and again, so that a busy machine is busy for
all of them; the medians are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import PIL
from PIL import Image, ImageFilter

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from crg.images import preprocessing
from crg.images import views as cutting
from crg.images.preprocessing import Preprocessing
from crg.images.views import Augment, Recipe, _random_numbers, iter_views, make_views
from plain_views import plain_augmix, plain_crop, plain_normalised, plain_original
from report import between_markers

DOCUMENT = Path(__file__).parent.parent / "docs" / "encoders.md"
CLIP = Preprocessing(224, (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
VIEWS, NAME, AT_ONCE = 64, "image.jpg", 6  # AT_ONCE: images in a stream


def made_jpeg(width: int = 500, height: int = 375) -> bytes:
    """An image with smooth parts, edges and the noise of a camera."""
    random = np.random.default_rng(0)
    coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = coarse.resize((width, height), Image.Resampling.BICUBIC)
    blocks = coarse.resize((width, height), Image.Resampling.NEAREST)
    scene = Image.blend(smooth, blocks.filter(ImageFilter.GaussianBlur(1)), 0.4)
    noisy = np.asarray(scene) + random.normal(0, 6, (height, width, 3))
    file = io.BytesIO()
    Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


@dataclass(frozen=True)
class Case:
    """One way to make the views; ``run`` makes those of so many images."""

    name: str
    run: Callable[[bytes, Recipe], Any]
    images: int = 1
    compiled: bool = True


def plain(content: bytes, recipe: Recipe, decode_each: bool = False) -> Any:
    """As TPT's data loader does it: one view after the other, with Pillow and NumPy."""
    image = _decoded(content)
    rows = _random_numbers(recipe.seed, NAME, recipe.views)
    views = [plain_normalised(plain_original(image, CLIP), CLIP)]
    for row in rows[1:]:
        image = _decoded(content) if decode_each else image
        view = plain_crop(image, row, CLIP.size)
        if recipe.augment == "augmix":
            views.append(_plain_mixture(view, row))
        else:
            views.append(plain_normalised(view, CLIP))
    return np.stack(views)


def _plain_mixture(view: Image.Image, row: list[float]) -> Any:
    return plain_augmix(view, row, lambda image: plain_normalised(image, CLIP))


def _decoded(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content)).convert("RGB")


def ours(content: bytes, recipe: Recipe, threads: int | None = None) -> Any:
    """What this package does, for one image."""
    return CLIP.normalised(make_views(content, CLIP, recipe, NAME, threads))


def stream(content: bytes, recipe: Recipe) -> Any:
    """What this package does, for a stream of images with a worker per core."""
    names, images = [NAME] * AT_ONCE, [content] * AT_ONCE
    for views in iter_views(images, names, CLIP, recipe, os.cpu_count() or 1):
        assert isinstance(views, np.ndarray)
        batch = CLIP.normalised(views)
    return batch


CASES = (
    Case("plain Pillow, one thread", plain),
    Case("plain Pillow, decoding for each view", lambda c, r: plain(c, r, decode_each=True)),
    Case("crg without numba, all cores", ours, compiled=False),
    Case("crg, one thread", lambda c, r: ours(c, r, threads=1)),
    Case("crg, all cores", ours),
    Case("crg, a stream of images, all cores", stream, AT_ONCE),
)


def measure(kind: Augment, rounds: int, content: bytes) -> dict[str, float]:
    """Milliseconds per image of each case, the median of rounds in which each has its turn."""
    recipe = Recipe(VIEWS, kind)
    _check(content, recipe)
    times: dict[str, list[float]] = {case.name: [] for case in CASES}
    for case in [case for _ in range(rounds) for case in CASES]:
        with _form(case.compiled):
            began = time.perf_counter()
            case.run(content, recipe)
            times[case.name].append((time.perf_counter() - began) * 1e3 / case.images)
    return {name: statistics.median(each) for name, each in times.items()}


def _check(content: bytes, recipe: Recipe) -> None:
    """All make the same batch, to a rounding of the pixels; this also compiles what must be."""
    wanted, rounding = plain(content, recipe), 1.001 / 255 / min(CLIP.std)
    for case in CASES[1:]:
        with _form(case.compiled):
            assert np.abs(case.run(content, recipe) - wanted).max() <= rounding, case.name


def free_cores(rounds: int) -> float:
    """How many cores this process really gets: others may be using them."""
    block, n = bytes(4_000_000), os.cpu_count() or 1
    shares = []
    with ThreadPoolExecutor(n) as pool:
        for _ in range(rounds):
            times = [time.perf_counter()]
            hashlib.sha256(block)
            times.append(time.perf_counter())
            list(pool.map(hashlib.sha256, [block] * n))
            times.append(time.perf_counter())
            shares.append(n * (times[1] - times[0]) / (times[2] - times[1]))
    return statistics.median(shares)


@contextmanager
def _form(compiled: bool) -> Iterator[None]:
    with ExitStack() as stack:
        if not compiled:
            for module in (preprocessing, cutting):
                stack.enter_context(patch.object(module, "pixel_kernels", lambda: None))
        yield


def table(results: dict[str, dict[str, float]], free: float) -> str:
    """Times per image, and how many times faster than the plain way each is."""
    head = f"| {VIEWS} views of a 500 x 375 JPEG at {CLIP.size} px | {' | | '.join(results)} | |"
    lines = [head, "| --- |" + " ---: | ---: |" * len(results)]
    for case in CASES:
        cells = (
            f"{times[case.name]:.1f} ms | {times[CASES[0].name] / times[case.name]:.1f} x"
            for times in results.values()
        )
        lines.append(f"| {case.name} | {' | '.join(cells)} |")
    where = f"{date.today().isoformat()}, {os.cpu_count()} cores, Pillow {PIL.__version__}"
    note = f"Medians, measured in one run: {where}; other programs left {free:.1f} cores free."
    return "\n".join([*lines, "", note])


def main() -> None:
    """Read the arguments, measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round, for a smoke test")
    parser.add_argument("--write", action="store_true", help="write docs/encoders.md")
    asked = parser.parse_args()
    content, rounds = made_jpeg(), 1 if asked.quick else 15
    kinds: tuple[Augment, ...] = ("crops", "augmix")
    before = free_cores(rounds)
    results: dict[str, dict[str, float]] = {kind: measure(kind, rounds, content) for kind in kinds}
    text = table(results, (before + free_cores(rounds)) / 2)
    print(text)
    if asked.write:
        DOCUMENT.write_text(between_markers(DOCUMENT.read_text(), text))


if __name__ == "__main__":
    main()
