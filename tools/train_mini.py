"""Train the bundled model on rendered shapes and write its weights into the package.

``python tools/train_mini.py`` renders the training images (held-out combinations are not
among them), trains both encoders contrastively and measures zero-shot accuracy at the end.
Interrupted, it continues from its last checkpoint when it is started again.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from captions import phrases
from crg.encoders.mini import WEIGHTS, Mini, split_words
from crg.shapes import shape_images
from mini_bank import VALUES, Bank, agreement, load_bank
from mini_twin import Plan, Twin, write_weights

_EVERY = 100  # steps between checkpoints
_MAX_SCALE = 100.0  # CLIP's


def main(arguments: Sequence[str] | None = None) -> int:
    """Render, train, write, measure."""
    chosen = _parser().parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(chosen.seed)
    twin = Twin(Plan(), vocabulary())
    twin.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    bank = _bank(chosen, twin.plan.size)
    seconds = train(twin, bank, chosen)
    facts = {"seed": chosen.seed, "images": chosen.images, "steps": chosen.steps}
    facts |= {"batch": chosen.batch, "threads": chosen.threads, "minutes": round(seconds / 60, 1)}
    facts |= {"torch": torch.__version__, "plan": asdict(twin.plan)}
    write_weights(twin.eval(), chosen.out, facts)
    kilobytes = chosen.out.stat().st_size / 1000
    print(f"{chosen.out}: {kilobytes:.0f} kB after {seconds / 60:.1f} minutes of training")
    print(f"zero-shot on held-out combinations: {zero_shot(Mini(chosen.out)):.1%}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Train the bundled model, mini.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=60_000, help="to render for training")
    parser.add_argument("--steps", type=int, default=1_100)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument(
        "--folder", type=Path, default=Path("build/mini"), help="for images and checkpoint"
    )
    return parser


def vocabulary() -> list[str]:
    """Every word of the captions, in alphabetical order."""
    texts = (*phrases(), *(value for values in VALUES for value in values))
    return sorted({word for text in texts for word in split_words(text)})


def _bank(chosen: argparse.Namespace, size: int) -> Bank:
    parts = load_bank(chosen.folder, chosen.seed, chosen.images, size, chosen.threads)
    for part in parts:
        if isinstance(part, Bank):
            _show("")
            return part
        _show(f"rendering {part:.0%}")
    raise AssertionError("the bank is always yielded")


def train(twin: Twin, bank: Bank, chosen: argparse.Namespace) -> float:
    """All steps that are not done yet; the seconds of all steps together."""
    optimiser = torch.optim.AdamW(_groups(twin), lr=chosen.rate, betas=(0.9, 0.98))
    checkpoint = chosen.folder / f"checkpoint-{chosen.seed}-{chosen.steps}.pt"
    first, before = _resume(twin, optimiser, checkpoint)
    start, mean = time.monotonic(), math.nan
    for step in range(first, chosen.steps):
        for group in optimiser.param_groups:
            group["lr"] = chosen.rate * _pace(step, chosen.steps)
        loss = train_step(twin, bank, optimiser, chosen, step)
        mean = loss if math.isnan(mean) else 0.98 * mean + 0.02 * loss
        seconds = before + time.monotonic() - start
        if step % 10 == 0:
            _show(_progress(twin, step, chosen.steps, mean, seconds))
        if (step + 1) % _EVERY == 0 or step + 1 == chosen.steps:
            _keep(twin, optimiser, checkpoint, step + 1, seconds)
    _show("")
    return before + time.monotonic() - start


def train_step(
    twin: Twin, bank: Bank, optimiser: torch.optim.Optimizer, chosen: argparse.Namespace, step: int
) -> float:
    """One batch; its random numbers depend on the seed and the step alone."""
    torch.manual_seed(chosen.seed * 1_000_003 + step)
    rows = bank.batch(chosen.seed, step, chosen.batch)
    captions = bank.captions(rows, chosen.seed, step)
    fits = torch.from_numpy(agreement(captions, bank.facts[rows])).float()
    twin.train()
    images = twin.images(_varied(torch.from_numpy(bank.pixels[rows])))
    texts = twin.texts([each.text for each in captions], unknown=0.1)
    loss = contrastive(twin.log_scale.exp() * images @ texts.T, fits)
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
    optimiser.step()
    with torch.no_grad():
        twin.log_scale.clamp_(max=math.log(_MAX_SCALE))
    return float(loss.detach())


def contrastive(logits: Tensor, fits: Tensor) -> Tensor:
    """CLIP's loss, where every sentence that is true of an image counts alike."""
    by_image = functional.cross_entropy(logits, fits / fits.sum(dim=1, keepdim=True))
    by_text = functional.cross_entropy(logits.T, fits.T / fits.T.sum(dim=1, keepdim=True))
    return (by_image + by_text) / 2


def _varied(pixels: Tensor) -> Tensor:
    """Mirrored or not, brighter or darker, of more or less contrast, and a little grain."""
    n = len(pixels)
    mirrored = (torch.rand(n) < 0.5)[:, None, None, None]
    pixels = torch.where(mirrored, pixels.flip(2), pixels).float()
    contrast = torch.empty(n, 1, 1, 1).uniform_(0.6, 1.2)
    tint = torch.empty(n, 1, 1, 3).uniform_(0.95, 1.05)
    lift = torch.empty(n, 1, 1, 1).uniform_(-20, 20)
    grain = 4 * torch.rand(n, 1, 1, 1) * torch.randn_like(pixels)
    return ((pixels - 127.5) * contrast * tint + 127.5 + lift + grain).clamp(0, 255)


def _groups(twin: Twin) -> list[dict[str, Any]]:
    """Weights decay; biases, norms, embeddings and the scale do not."""
    decaying = [p for n, p in twin.named_parameters() if p.ndim > 1 and n not in _TABLES]
    others = [p for n, p in twin.named_parameters() if p.ndim <= 1 or n in _TABLES]
    return [{"params": decaying, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]


_TABLES = ("words", "buckets", "places")


def _pace(step: int, steps: int, warm: int = 200) -> float:
    return min(1.0, (step + 1) / warm) * 0.5 * (1 + math.cos(math.pi * step / steps))


def _keep(
    twin: Twin, optimiser: torch.optim.Optimizer, path: Path, step: int, seconds: float
) -> None:
    partial = path.with_suffix(".partial")
    state = {"twin": twin.state_dict(), "optimiser": optimiser.state_dict()}
    torch.save({**state, "step": step, "seconds": seconds}, partial)
    partial.replace(path)


def _resume(twin: Twin, optimiser: torch.optim.Optimizer, path: Path) -> tuple[int, float]:
    if not path.exists():
        return 0, 0.0
    kept = torch.load(path)
    twin.load_state_dict(kept["twin"])
    optimiser.load_state_dict(kept["optimiser"])
    return int(kept["step"]), float(kept["seconds"])


def zero_shot(mini: Mini, shift: str | None = None, severity: int = 1, count: int = 640) -> float:
    """The accuracy on the held-out classes, with the prompts of the dataset averaged."""
    images = shape_images(shift, severity, count, seed=1000)
    side = (mini.preprocessing.size,) * 2
    drawn = [s.draw() for s in images.sources if not isinstance(s, Path)]
    small = [np.asarray(each.resize(side, Image.Resampling.BICUBIC)) for each in drawn]
    texts = [
        mini.encode_texts([template.format(name) for name in images.class_names])
        for template in images.templates
    ]
    guesses = (mini.encode_images(np.stack(small)) @ np.sum(texts, axis=0).T).argmax(axis=1)
    return float(np.mean(guesses == np.array(images.labels)))


def _progress(twin: Twin, step: int, steps: int, loss: float, seconds: float) -> str:
    left = seconds / (step + 1) * (steps - step - 1) / 60
    scale = float(twin.log_scale.detach().exp())
    return f"step {step} of {steps}, loss {loss:.3f}, scale {scale:.0f}, {left:.1f} minutes left"


def _show(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{line:<78}", end="", file=sys.stderr, flush=True)
    elif line:
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
