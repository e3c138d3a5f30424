"""Measure the bundled model on rendered shapes, clean and shifted, alone and with adaptation.

``python tools/measure_mini.py --count 480 --out docs/results/mini.csv`` stores zero-shot accuracy
by severity, which docs/mini.md quotes; ``--methods`` prints a table instead. The images come from a
seed of their own; neither the demo nor the training uses it.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import crg
from crg.encoders.mini import WEIGHTS, Mini
from crg.evaluate import run
from crg.images.image_set import ImageSet
from crg.images.views import Recipe, make_views
from crg.shapes import shape_images
from crg.shapes.shifts import SEVERITIES, SHIFTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Zero-shot for every severity, then all methods over several orders."""
    chosen = _parser().parse_args(arguments)
    mini = Mini(chosen.weights)
    shifts = tuple(chosen.shifts.split(","))
    if not chosen.methods:
        with chosen.out.open("w", newline="", encoding="utf-8") as file:
            _write_zero_shot(mini, shifts, chosen, csv.writer(file, lineterminator="\n"))
        return 0
    methods = chosen.methods.split(",")
    _print_row("shift", "severity", *methods)
    _print_row("---", *["---:"] * (len(methods) + 1))
    for shift in shifts:
        for severity in map(int, chosen.severities.split(",")):
            features = encoded(mini, shift, severity, chosen)
            cells = [_accuracies(features, method, chosen.orders) for method in methods]
            _print_row(shift, severity, *cells)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure the bundled model, mini.")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--seed", type=int, default=500)
    parser.add_argument("--count", type=int, default=960, help="images per shift and severity")
    parser.add_argument("--views", type=int, default=1)
    parser.add_argument("--least-area", type=float, default=0.08, help="of a crop")
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--shifts", default=",".join(SHIFTS))
    parser.add_argument("--severities", default="1,3,5")
    parser.add_argument("--methods", default="", help="for example zero_shot,tda,dpe,crg")
    parser.add_argument("--out", type=Path, default=Path("mini.csv"), help="where zero-shot goes")
    return parser


def _write_zero_shot(mini: Mini, shifts: Sequence[str], chosen: Any, file: Any) -> None:
    """A line for the images without a shift, then one per shift and severity, as they come."""
    file.writerow(("experiment", "dataset", "setting", "method", "n_images", "accuracy"))
    pairs = [(shift, severity) for shift in shifts for severity in SEVERITIES]
    for shift, severity in [(None, 0), *pairs]:
        accuracy = _zero_shot(encoded(mini, shift, severity or 1, chosen))
        name = f"shapes:{shift}:{severity}" if shift else "shapes:clean"
        file.writerow(("mini", name, severity, "zero_shot", chosen.count, accuracy))


def encoded(mini: Mini, shift: str | None, severity: int, chosen: argparse.Namespace) -> Any:
    """The features of one shift in one severity."""
    images = shape_images(shift, severity, chosen.count, chosen.seed)
    recipe = Recipe(views=chosen.views, smallest=chosen.least_area)
    views = [
        make_views(source, mini.preprocessing, recipe, name)
        for source, name in zip(images.sources, images.ids, strict=True)
    ]
    rows = mini.encode_images(np.concatenate(views)).reshape(len(views), chosen.views, -1)
    return crg.Features(rows, _task(mini, images), labels=np.array(images.labels))


def _task(mini: Mini, images: ImageSet) -> crg.Task:
    texts = [
        mini.encode_texts([template.format(name) for name in images.class_names])
        for template in images.templates
    ]
    return crg.Task(images.class_names, np.sum(texts, axis=0), mini.logit_scale)


def _zero_shot(features: Any) -> float:
    logits = features.image_features[:, 0] @ features.task.text_features.T
    return round(float(np.mean(logits.argmax(axis=1) == features.labels)), 5)


def _accuracies(features: Any, method: str, orders: int) -> str:
    found = [run(features, method, seed=order).metrics["accuracy"] for order in range(orders)]
    return f"{np.mean(found) * 100:.1f} ± {np.std(found) * 100:.1f}"


def _print_row(*cells: Any) -> None:
    print("|", " | ".join(str(cell) for cell in cells), "|", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
