"""Comparison: from finished runs to one summary per file and variant, ready for JSON.

Accuracy, calibration error and purity are fractions. The mean and the spread (sample
standard deviation) are over stream orders. The gain over zero-shot comes with the interval
of ``crg.metrics.paired_interval``.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from crg import metrics
from crg.evaluate import BASELINE, correct_rows
from crg.grid import Finished, Grid, Variant
from crg.types import Result

Summary = dict[str, Any]

_AVERAGED = ("ece", "nll", "purity", "worst_class_accuracy", "ms_per_step", "ms_per_step_median")


def with_baseline(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """The variants with zero-shot among them: it is what the others are measured against."""
    if any(variant.method == BASELINE for variant in variants):
        return tuple(variants)
    return (Variant(BASELINE, BASELINE), *variants)


def summarise(grid: Grid, finished: Iterable[Finished]) -> Summary:
    """The whole comparison; ``files`` holds one summary per file and label."""
    done = {
        (cell.file.path, cell.label, cell.spec.seed): item.result
        for item in finished
        for cell in item.cells
    }
    files = {
        file.path: {
            variant.label: _row(variant, [done[file.path, variant.label, s] for s in grid.seeds])
            for variant in grid.variants
        }
        for file in grid.files
    }
    return {
        "files": {path: _with_best(rows) for path, rows in files.items()},
        "seeds": list(grid.seeds),
        "data": {file.path: asdict(file) for file in grid.files},
    }


def _row(variant: Variant, runs: Sequence[Result]) -> Summary:
    row: Summary = {"method": variant.method, "options": dict(variant.options)}
    row["accuracy"] = _spread([run.metrics.get("accuracy") for run in runs])
    for name in _AVERAGED:
        row[name] = _mean([run.metrics.get(name) for run in runs])
    row["gain"] = _gain(runs)
    return row


def _spread(values: Sequence[float | None]) -> Mapping[str, Any] | None:
    """Mean, sample standard deviation (None for a single order) and the values themselves."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    std = statistics.stdev(known) if len(known) > 1 else None
    return {"mean": statistics.fmean(known), "std": std, "per_order": known}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _gain(runs: Sequence[Result]) -> Mapping[str, float] | None:
    if "correct" not in runs[0].metrics:
        return None
    right = np.stack([correct_rows(run.metrics, run.n_samples) for run in runs])
    baseline = np.stack([correct_rows(run.zero_shot, run.n_samples) for run in runs])
    return asdict(metrics.paired_interval(right, baseline))


def _with_best(rows: Mapping[str, Summary]) -> dict[str, Summary]:
    """Mark the rows of the highest mean accuracy; equal ones share the honour."""
    known = [row["accuracy"]["mean"] for row in rows.values() if row["accuracy"] is not None]
    top = max(known, default=None)
    return {
        label: {**row, "best": row["accuracy"] is not None and row["accuracy"]["mean"] == top}
        for label, row in rows.items()
    }
