"""Results files made of chosen answers, so that every figure is known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crg.report.experiment import Experiment, read_experiments
from crg.results.measurements import packed_bits
from crg.results.provenance import failed_run, surroundings
from crg.results.schema import Cell, Data, Outline, Result, Setting, Source, Variant
from crg.streams.orders import shuffled

Bits = np.ndarray[Any, Any]
BASE = Variant("zero_shot", "zero_shot")
PLAIN = Source("toy", dataset="toy", n_samples=200, n_classes=4, n_views=1, model="mini")
SHUFFLED = Setting(label="shuffled")


def share(n_right: int, n: int = 200, first: int = 0) -> Bits:
    """``n`` images of which ``n_right``, from the ``first`` on, are answered correctly."""
    return (np.arange(n) >= first) & (np.arange(n) < first + n_right)


def measured(right: Bits, seed: int, scored: Bits | None = None, **more: Any) -> dict[str, Any]:
    """Metrics of a run that answered these rows of the file correctly."""
    kept = np.ones(len(right), dtype=bool) if scored is None else scored
    order = np.flatnonzero(kept)[shuffled(int(kept.sum()), seed)]
    accuracy = float(right[kept].mean())
    found = {
        "accuracy": accuracy,
        "worst_class_accuracy": accuracy / 2,
        "ece": 0.1,
        "aurc": 0.2,
        "accuracy_at_90": accuracy,
        "outside_auroc": None,
        "nll": 1.0 + seed,
        "purity": None,
        "purity_over_time": [],
        "correct": packed_bits(right & kept),
        "right_in_order": packed_bits(right[order]),
        "n_scored": int(kept.sum()),
        "reliability": [[len(order), 0.5, accuracy], [0, None, None]],
        "mislabelled": None,
        "ms_per_step_median": 0.5,
    }
    streamed = {} if scored is None else {"streamed": packed_bits(kept)}
    return {**found, **streamed, **more}


class Book:
    """A results file to be: add runs method by method, then read the experiment."""

    def __init__(
        self,
        rows: Sequence[Variant],
        figure: str = "table",
        orders: int = 5,
        sources: Sequence[Source] = (PLAIN,),
        settings: Sequence[Setting] = (SHUFFLED,),
        **more: Any,
    ) -> None:
        self.rows, self.sources, self.settings = (BASE, *rows), tuple(sources), tuple(settings)
        self.figure, self.seeds, self.more = figure, tuple(range(orders)), more
        self.cells: list[Cell] = []
        self.records: list[dict[str, Any]] = []

    def add(
        self,
        label: str,
        right: Bits | Sequence[Bits],
        base: Bits | None = None,
        *,
        source: int = 0,
        setting: int = 0,
        options: Mapping[str, Any] | None = None,
        **metrics: Any,
    ) -> None:
        """A run per order (one for all of them if ``right`` is a single list of one)."""
        each = [right] * len(self.seeds) if isinstance(right, np.ndarray) else list(right)
        for seed, answers in zip(self.seeds, each, strict=False):
            cell = self.expect(label, seed, source, setting)
            yardstick = np.zeros_like(answers) if base is None else base
            run = Result(
                data=Data("toy.npz", "0" * 64),
                method=self.rows[cell.row].method,
                given={},
                seed=seed,
                key=str(cell.key),
                options=dict(options or self.rows[cell.row].options),
                metrics=measured(answers, seed, **metrics),
                zero_shot=measured(yardstick, seed, metrics.get("scored")),
                n_samples=len(answers),
                seconds=1.0,
                **surroundings(),
            )
            self.records.append(msgspec.to_builtins(run))

    def expect(self, label: str, seed: int = 0, source: int = 0, setting: int = 0) -> Cell:
        """A cell of the outline, run or not."""
        key = f"{source}-{setting}-{label}-{seed}"
        self.cells.append(Cell(source, setting, self._row(label), seed, key))
        return self.cells[-1]

    def _row(self, label: str) -> int:
        return [each.label for each in self.rows].index(label)

    def fail(self, key: str, reason: str) -> None:
        """A run that failed."""
        self.records.append(msgspec.to_builtins(failed_run(key, reason)))

    def refuse(self, label: str, reason: str) -> None:
        """A method that the experiment does not run, and why."""
        self.cells.append(Cell(0, 0, self._row(label), 0, None, reason))

    @property
    def outline(self) -> Outline:
        """The outline of the experiment so far."""
        facts = {"name": "toys", "title": "Toys", "about": "Made up.", **self.more}
        return Outline(
            figure=self.figure, rows=self.rows, sources=self.sources, settings=self.settings,
            seeds=self.seeds, cells=tuple(self.cells), **facts,
        )  # fmt: skip

    def write(self, path: Path) -> Path:
        """The outline and then the runs, a line each."""
        outline = msgspec.to_builtins(self.outline)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(each) + "\n" for each in (outline, *self.records))
        return path

    def read(self, folder: Path) -> Experiment:
        """The experiment that the file holds."""
        [experiment] = read_experiments([self.write(folder / "toys.jsonl")])
        return experiment
