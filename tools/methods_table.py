"""Every method on the same rendered images: the tables of docs/methods.md.

``python tools/methods_table.py --folder build/methods`` encodes three shifted streams with
mini (once), runs all methods over several stream orders, measures peak memory in a process
of its own per method, and writes docs/results/methods.json and the tables. What is done is
kept in the folder, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crg
from crg.bench.design import DataDesign, Design, RowDesign, completed
from crg.bench.plan import plan as lay_out
from crg.bench.run import Machinery, begin, missing_jobs, run_jobs, summarise
from crg.bench.sources import Prospect
from crg.encoders import load_encoder
from crg.encoding import encode
from crg.engine import RunSpec
from crg.engine.worker import peak_bytes
from crg.generation.variations import relight
from crg.images.views import Recipe
from crg.report.tables import METHOD, Column, Table, percent, spread_of_summary, to_markdown
from crg.results import ledger
from crg.shapes import shape_images

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "methods.md", ROOT / "docs" / "results" / "methods.json"
BEGIN, END = "<!-- methods:begin -->", "<!-- methods:end -->"
STREAM_SEED, LABELLED_SEED = 11, 111  # neither trained mini nor chose the strength of a shift
N_CLASSES, SHOTS, GENERATED = 32, 4, 8


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    folder: Path
    shifts: tuple[str, ...]
    severity: int
    images: int
    views: int
    orders: int
    methods: tuple[str, ...]
    workers: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write."""
    plan = _plan(arguments)
    plan.folder.mkdir(parents=True, exist_ok=True)
    shifts = {shift: dict(_measured(plan, shift)) for shift in plan.shifts}
    kept = {"images": plan.images, "views": plan.views, "severity": plan.severity,
            "orders": plan.orders, "shots": SHOTS, "shifts": shifts}  # fmt: skip
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    page = PAGE.read_text()
    head, tail = page[: page.index(BEGIN)], page[page.index(END) :]
    PAGE.write_text(f"{head}{BEGIN}\n{tables(kept)}\n{tail}")
    return 0


def _plan(arguments: Sequence[str] | None) -> Plan:
    parser = argparse.ArgumentParser(description="Measure every method on rendered shapes.")
    parser.add_argument("--folder", type=Path, default=Path("build/methods"))
    parser.add_argument("--shifts", default="night,fog,noise")
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--images", type=int, default=480)
    parser.add_argument("--views", type=int, default=8)
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--methods", default=",".join(crg.list_methods()))
    parser.add_argument("--workers", type=int, default=2)
    given = vars(parser.parse_args(arguments))
    lists = {name: tuple(given[name].split(",")) for name in ("shifts", "methods")}
    return Plan(**{**given, **lists})


def _measured(plan: Plan, shift: str) -> Iterator[tuple[str, dict[str, Any]]]:
    store, few = _store(plan, shift), _labelled(plan, shift)
    rows = _compared(plan, shift, store, few)
    for method in plan.methods:
        needs = list(crg.get_method(method).needs)
        yield method, {**rows[method], "needs": needs, "peak_bytes": _peak(store, method, few)}


def _compared(plan: Plan, shift: str, store: Path, few: Path) -> dict[str, Any]:
    """The methods in every order; those that forget each image in one, which is enough."""
    design = completed(
        Design(
            name=shift,
            rows=tuple(RowDesign(each) for each in plan.methods),
            data=(DataDesign(files=True),),
            orders=plan.orders,
        )
    )
    planned = lay_out(design, [Prospect(shift, shift, (store,), few)], plan.folder)
    path = plan.folder / "results.jsonl"
    known = ledger.read(path)
    begin(planned, path, known)
    left = missing_jobs(planned, known)
    for number, done in enumerate(run_jobs(left, (), path, Machinery(workers=plan.workers)), 1):
        print(f"{shift}: {number} of {len(left)} runs", file=sys.stderr)
        if done.failure is not None:
            raise RuntimeError(f"{done.job.name} failed: {done.failure}")
    [rows] = summarise(planned, ledger.read(path).runs)["files"].values()
    return dict(rows)


def _store(plan: Plan, shift: str) -> Path:
    """The stream, with views that stand in for generated ones as the last of each image."""
    images = shape_images(shift, plan.severity, plan.images, STREAM_SEED)
    folder = plan.folder / f"{shift}-{plan.severity}"
    # crops in other light: no diffusion model is available for images of shapes
    made = relight(images, plan.folder / f"{shift}-{plan.severity}-made", GENERATED)
    mini, recipe = load_encoder("mini"), Recipe(views=plan.views)
    encode(images, mini, recipe, folder, workers=2, variations=made)
    return folder


def _labelled(plan: Plan, shift: str) -> Path:
    """Labelled images of the same shift, which only few-shot methods look at."""
    images = shape_images(shift, plan.severity, SHOTS * N_CLASSES, LABELLED_SEED)
    folder = plan.folder / f"{shift}-{plan.severity}-labelled"
    encode(images, load_encoder("mini"), Recipe(), folder, workers=2)
    return folder


def _peak(store: Path, method: str, few: Path) -> int:
    """Bytes that a process of its own needs at most to run the method over 64 images."""
    peak = peak_bytes(RunSpec(str(store), method, few=str(few)))
    if peak is None:
        raise RuntimeError(f"The memory of {method} could not be measured.")
    return peak


def tables(kept: Mapping[str, Any]) -> str:
    """Accuracy per shift, then cost and needs."""
    shifts: Mapping[str, Mapping[str, Any]] = kept["shifts"]
    methods = list(next(iter(shifts.values())))
    best = {
        (row, column)
        for row, method in enumerate(methods)
        for column, rows in enumerate(shifts.values(), start=1)
        if rows[method]["best"]
    }
    accuracy = Table(
        (METHOD, *(Column(shift, spread_of_summary) for shift in shifts)),
        tuple((each, *(rows[each]["accuracy"] for rows in shifts.values())) for each in methods),
        best=frozenset(best),
    )
    return "\n".join([
        f"Accuracy in %, mean ± standard deviation over {kept['orders']} stream orders; "
        f"{kept['images']} images per shift, severity {kept['severity']}, {kept['views']} "
        f"views; few-shot methods see {kept['shots']} labelled images per class; the answers of "
        "tpt and difftpt do not depend on the order:\n",
        to_markdown(accuracy),
        "\nCalibration error in % (mean over the shifts), median milliseconds per image "
        "beyond the encoder, without training, and the most memory that a process needed, which "
        "includes Python, NumPy and, where it is used, torch:\n",
        to_markdown(_costs({each: [rows[each] for rows in shifts.values()] for each in methods})),
    ])  # fmt: skip


def _costs(methods: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    def mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
        return sum(float(row[name]) for row in rows) / len(rows)

    columns = (
        METHOD,
        Column("ECE %", percent),
        Column("ms per image", lambda value: f"{value:.2f}"),
        Column("peak MB", lambda value: f"{value / 1e6:.0f}"),
        Column("needs", ", ".join, is_text=True),
    )
    names = ("ece", "ms_per_step_median", "peak_bytes")
    cells = tuple(
        (each, *(mean(rows, name) for name in names), rows[0]["needs"] or None)
        for each, rows in methods.items()
    )
    return Table(columns, cells)


if __name__ == "__main__":
    raise SystemExit(main())
