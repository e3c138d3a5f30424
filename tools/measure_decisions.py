"""Measure ``--none-of-these`` and ``--sets`` with ``anchored`` on feature files.

``python tools/measure_decisions.py features/ docs/results/decisions.csv`` writes the numbers that
docs/results/README.md prints. Images of another file are mixed into a stream, 5% or 30% of it; sets
are measured with every tenth image labelled as it comes. All figures are means over three orders.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import crg
from crg.metrics import auroc
from crg.streams.orders import as_stored, by_class, dirichlet

PAIRS = (
    ("pets_b16", "caltech_b16"), ("pets_b16", "eurosat_b16"), ("caltech_b16", "pets_b16"),
    ("caltech_b16", "eurosat_b16"), ("eurosat_b16", "pets_b16"), ("eurosat_b16", "caltech_b16"),
    ("pets24", "caltech50"), ("caltech50", "pets24"), ("dtd", "pets24"),
    ("flowers102", "caltech50"),
)  # fmt: skip
OF_SETS = ("pets_b16", "caltech_b16", "eurosat_b16", "pets24")
ORDERS = range(3)
N_IMAGES, LEVEL, EVERY = 1200, 0.9, 10  # of sets: images of a stream, level, one labelled image in

Numbers = np.ndarray[Any, Any]
Figures = dict[str, float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a line per dataset and setting, with a column per figure."""
    parser = argparse.ArgumentParser(description="Measure decisions beside anchored.")
    parser.add_argument("features", type=Path, help="folder of feature files")
    parser.add_argument("out", type=Path, help="CSV file to write")
    chosen = parser.parse_args(arguments)
    files = {path.stem: crg.read_features(path) for path in chosen.features.glob("*.npz")}
    rows = [*_none_of_these(files), *_sets(files)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with chosen.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


def _none_of_these(files: dict[str, crg.Features]) -> Iterator[dict[str, Any]]:
    for (name, other), fraction in ((p, f) for p in PAIRS for f in (0.05, 0.3)):
        found = [_mixed(files[name], files[other], fraction, seed) for seed in ORDERS]
        setting = f"{fraction:.0%} of {other}"
        yield _row("none_of_these", name, setting, found)


def _mixed(own: crg.Features, other: crg.Features, fraction: float, seed: int) -> Figures:
    """One stream of all images of ``own`` and enough of ``other``, without and with the option."""
    rng = np.random.default_rng(seed)
    n_foreign = min(len(other), round(len(own) * fraction / (1 - fraction)))
    foreign = rng.choice(len(other), n_foreign, replace=False)
    views = np.concatenate([_first(own), _first(other)[foreign]])
    assert own.labels is not None
    truth = np.concatenate([own.labels, np.full(n_foreign, -1)])
    order = rng.permutation(len(truth))
    views, truth = views[order], truth[order]
    plain = crg.create("anchored", own.task).step_many(views)
    adapter = crg.create("anchored", own.task)
    adapter.decide("auto")
    decided = adapter.step_many(views)
    outside = np.array([each.decision.outside for each in decided])
    none = np.array([bool(each.decision.none_of_these) for each in decided])
    given = np.where(none, -1, [each.label for each in decided])
    at_95 = np.quantile(outside[truth < 0], 0.05)
    return {
        "outside_auroc": auroc(outside, truth < 0),
        "fpr95": float(np.mean(outside[truth >= 0] > at_95)),
        "caught": float(np.mean(none[truth < 0])),
        "refused": float(np.mean(none[truth >= 0])),
        "right_without": float(np.mean([each.label for each in plain] == truth)),
        "right": float(np.mean(given == truth)),
    }


def _sets(files: dict[str, crg.Features]) -> Iterator[dict[str, Any]]:
    for name in OF_SETS:
        for kind in ("shuffled", "bursts", "class by class"):
            found = [_covered(files[name], kind, seed) for seed in ORDERS]
            yield _row("sets", name, kind, found)


def _covered(features: crg.Features, kind: str, seed: int) -> Figures:
    """How often sets hold the true class, over the images after the first sets."""
    assert features.labels is not None
    some = np.random.default_rng(seed).permutation(len(features))[:N_IMAGES]
    labels, views, names = features.labels[some], _first(features)[some], features.task.class_names
    order = {
        "shuffled": as_stored(len(some)),
        "bursts": dirichlet(labels, seed, 0.1),
        "class by class": by_class(labels, seed),
    }[kind]
    adapter = crg.create("anchored", features.task)
    adapter.decide(sets=LEVEL)
    hits, sizes = [], []
    for place, row in enumerate(order):
        answer, truth = adapter.step(views[row]), names[labels[row]]
        if answer.decision.class_set:
            hits.append(truth in answer.decision.class_set)
            sizes.append(len(answer.decision.class_set))
        if place % EVERY == 0:
            adapter.correct(views[row], truth, place + 1)
    return {"coverage": float(np.mean(hits)), "set_size": float(np.mean(sizes))}


def _first(features: crg.Features) -> Numbers:
    """The original views in single precision."""
    rows = np.asarray(features.image_features, dtype=np.float32)
    return rows if rows.ndim == 2 else rows[:, 0]


def _row(experiment: str, dataset: str, setting: str, found: Sequence[Figures]) -> dict[str, Any]:
    about = {"experiment": experiment, "dataset": dataset, "setting": setting, "method": "anchored"}
    return {**about, **{name: round(np.mean([f[name] for f in found]), 5) for name in found[0]}}


if __name__ == "__main__":
    raise SystemExit(main())
