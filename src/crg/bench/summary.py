"""The runs of a plan in a few figures per method, for a terminal and for JSON.

Accuracy, calibration error and purity are fractions. The mean and the spread (sample standard
deviation) are over stream orders. The gain over zero-shot comes with the interval of
``crg.metrics.paired_interval``.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from crg import metrics
from crg.bench.plan import Plan
from crg.results.measurements import correct_rows
from crg.results.schema import Row, Run, Source

Summary = dict[str, Any]

_AVERAGED = ("ece", "nll", "purity", "worst_class_accuracy", "ms_per_step", "ms_per_step_median")


def summarise(planned: Plan, done: Mapping[str, Run]) -> Summary:
    """The whole comparison; ``files`` holds one summary per dataset and method."""
    outline = planned.outline
    runs: dict[tuple[int, int], list[Run]] = {}
    for cell in outline.cells:
        if cell.key is not None and cell.key in done:
            runs.setdefault((cell.source, cell.row), []).append(done[cell.key])
    files = {
        source.name: _with_best({
            row.label: _row(row, runs.get((place, number), ()))
            for number, row in enumerate(outline.rows)
        })
        for place, source in enumerate(outline.sources)
    }  # fmt: skip
    facts = {source.name: _facts(source) for source in outline.sources}
    return {"files": files, "seeds": list(outline.seeds), "data": facts}


def _facts(source: Source) -> Summary:
    names = ("path", "sha256", "n_samples", "n_classes", "n_views")
    return {**{name: getattr(source, name) for name in names}, "labelled": True}


def _row(row: Row, runs: Sequence[Run]) -> Summary:
    """What the runs of a method come to; without any, as when all failed, nothing is known."""
    return {
        "method": row.method,
        "options": dict(row.options),
        "accuracy": _spread([run.metrics["accuracy"] for run in runs]),
        **{name: _mean([run.metrics.get(name) for run in runs]) for name in _AVERAGED},
        "gain": _gain(runs),
    }


def _spread(values: Sequence[float]) -> Mapping[str, Any] | None:
    """Mean, sample standard deviation (None for a single order) and the values themselves."""
    if not values:
        return None
    std = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": std, "per_order": list(values)}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _gain(runs: Sequence[Run]) -> Mapping[str, float] | None:
    if not runs:
        return None
    right = np.stack([correct_rows(run.metrics, run.n_samples) for run in runs])
    baseline = np.stack([correct_rows(run.zero_shot, run.n_samples) for run in runs])
    return asdict(metrics.paired_interval(right, baseline))


def _with_best(rows: Mapping[str, Summary]) -> dict[str, Summary]:
    """Mark the rows of the highest mean accuracy; equal ones are best together."""
    known = [row["accuracy"]["mean"] for row in rows.values() if row["accuracy"] is not None]
    top = max(known, default=None)
    return {
        label: {**row, "best": row["accuracy"] is not None and row["accuracy"]["mean"] == top}
        for label, row in rows.items()
    }
