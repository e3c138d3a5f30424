"""Few-shot cache against zero-shot cache: what are right labels in a cache worth?

``python tools/shots_figure.py store --few labelled_store --out figure`` writes figure.json and
figure.svg. Both caches have the same number of slots per class and the same affinity,
alpha exp(-beta (1 - f . key)). One holds labelled images (tip_adapter); the other holds the
images of the stream that zero-shot is surest of, under the labels it gave them, and fills as
the stream goes on (the positive cache of tda, which takes an image in before it answers). Only
original views are looked at. Each order has its own stream order and its own draw of labelled
images.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import crg
from crg.atomic import replacing
from crg.engine import read_with_few
from crg.evaluate import run
from crg.report.figures import line_figure, to_svg
from crg.streams.orders import shuffled

ZERO_SHOT, ZERO_SHOT_CACHE, FEW_SHOT_CACHE = "zero-shot", "zero-shot cache", "few-shot cache"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, then write what was measured and how it looks."""
    chosen = _parser().parse_args(arguments)
    try:
        features = read_with_few(chosen.file, chosen.few)
        figure = measured(features, chosen.shots, chosen.orders, chosen.alpha, chosen.beta)
        shown = {"file": chosen.file, "few": chosen.few, "note": chosen.note, **figure}
        _write(Path(f"{chosen.out}.json"), json.dumps(shown, indent=1) + "\n")
        _write(Path(f"{chosen.out}.svg"), chart(shown) + "\n")
    except crg.InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Few-shot cache against zero-shot cache.")
    parser.add_argument("file", help="feature file or store with labels")
    parser.add_argument("--few", help="labelled images, unless the file has few_features")
    parser.add_argument("--shots", type=_counts, default=(1, 2, 4, 8, 16), help="slots per class")
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--alpha", type=float, default=1.0, help="weight of both caches")
    parser.add_argument("--beta", type=float, default=5.5, help="sharpness of both caches")
    parser.add_argument("--note", default="", help="what has to be said wherever this is shown")
    parser.add_argument("--out", required=True, help="where to write, without .json and .svg")
    return parser


def _counts(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(part) for part in text.split(",")}))


def measured(
    features: crg.Features, shots: Sequence[int], orders: int, alpha: float, beta: float
) -> dict[str, Any]:
    """Accuracy of both caches at each size, and of zero-shot; plain values, ready for JSON.

    The few-shot cache stops at the number of images that the best-furnished class has.
    """
    largest = _check(features, shots, orders)
    drawn = [_draw(features, order) for order in range(orders)]
    few = {"alpha": alpha, "beta": beta}
    own = {"positive_weight": alpha, "positive_sharpness": beta, "negative_weight": 0.0}
    return {
        "images": len(features),
        "classes": features.task.n_classes,
        "orders": orders,
        **few,
        ZERO_SHOT: _point(drawn, "zero_shot", {}),
        FEW_SHOT_CACHE: [
            {"shots": count, **_point(drawn, "tip_adapter", {**few, "shots": count})}
            for count in shots
            if count <= largest
        ],
        ZERO_SHOT_CACHE: [
            {"shots": count, **_point(drawn, "tda", {**own, "positive_size": count})}
            for count in shots
        ],
    }


def _check(features: crg.Features, shots: Sequence[int], orders: int) -> int:
    """Refuse what gives no figure; the largest number of labelled images in a class."""
    if features.labels is None:
        raise crg.InputError("The images have no labels: encode a labelled dataset.")
    if features.few_labels is None:
        raise crg.InputError("There are no labelled images: name a file with --few.")
    if not shots or min(shots) < 1 or orders < 1:
        raise crg.InputError("Shots and orders count from 1: give whole numbers above zero.")
    return int(np.bincount(features.few_labels).max())


def _draw(features: crg.Features, seed: int) -> crg.Features:
    """The original views, and the labelled images in an order of their own."""
    assert features.few_features is not None and features.few_labels is not None
    rows, images = shuffled(len(features.few_labels), seed), features.image_features
    return dataclasses.replace(
        features,
        image_features=np.array(images if images.ndim == 2 else images[:, 0]),
        few_features=features.few_features[rows],
        few_labels=features.few_labels[rows],
    )


def _point(
    drawn: Sequence[crg.Features], method: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    runs = [run(each, method, options, seed=order).metrics for order, each in enumerate(drawn)]
    accuracy = [each["accuracy"] for each in runs]
    purity = [each["purity"] for each in runs if each["purity"] is not None]
    return {
        "mean": statistics.fmean(accuracy),
        "std": statistics.stdev(accuracy) if len(accuracy) > 1 else None,
        "per_order": accuracy,
        "purity": statistics.fmean(purity) if purity else None,
    }


def chart(figure: Mapping[str, Any]) -> str:
    """Accuracy in % against images per class, as SVG."""
    caches = {
        name: [(float(point["shots"]), 100 * point["mean"]) for point in figure[name]]
        for name in (FEW_SHOT_CACHE, ZERO_SHOT_CACHE)
    }
    level = 100 * figure[ZERO_SHOT]["mean"]
    ends = [x for points in caches.values() for x, _ in points]
    lines = {ZERO_SHOT: [(min(ends), level), (max(ends), level)], **caches}
    shown = {name: points for name, points in lines.items() if points}
    note = f" ({figure['note']})" if figure["note"] else ""
    title = f"images per class in the cache{note}"
    return to_svg(line_figure(shown, title, "accuracy %"), "accuracy against images per class")


def _write(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
