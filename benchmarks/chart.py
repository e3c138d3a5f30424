"""Three panels: milliseconds per step against classes, width and steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import contenders as c
from report import median

CURVES = (c.ANCHORED, c.CRG, c.PLAIN, c.TDA, c.LEAST)
_COLOURS = dict(zip(CURVES, ("#1b7837", "#b2182b", "#ef8a62", "#2166ac", "#777777"), strict=True))


def draw(record: dict[str, Any], path: Path) -> None:
    """Write the chart as SVG, the same file for the same numbers."""
    plt.rcParams.update({"svg.hashsalt": "crg", "font.size": 10, "svg.fonttype": "none"})
    figure, (by_classes, by_width, by_steps) = plt.subplots(1, 3, figsize=(12, 3.8))
    _curves(by_classes, record["curves"]["classes"], "n_classes")
    _curves(by_width, record["curves"]["width"], "width")
    widths = {case["size"]["width"] for case in record["curves"]["classes"]}
    classes = {case["size"]["n_classes"] for case in record["curves"]["width"]}
    _label(by_classes, "classes K", f"D = {min(widths)}")
    _label(by_width, "width D", f"K = {min(classes)}")
    by_classes.legend(frameon=False, fontsize=9)
    steps, slowest = [m["step"] for m in record["long_run"]["crg"]], 0.0
    for name, method in ((c.CRG, "crg"), (c.ANCHORED, "anchored")):
        times = [m["median"] for m in record["long_run"][method]]
        by_steps.plot(steps, times, "o-", color=_COLOURS[name])
        slowest = max(slowest, *times)
    _mark(by_steps, steps)
    by_steps.set_ylim(0, 2 * slowest)
    _label(by_steps, "steps taken", "two long runs")
    by_steps.set_yscale("linear")
    figure.tight_layout()
    figure.savefig(path, format="svg", facecolor="white", metadata={"Date": None})
    plt.close(figure)


def _curves(axes: Any, cases: list[dict[str, Any]], key: str) -> None:
    places = [case["size"][key] for case in cases]
    for name in CURVES:
        times = [median(case, name) for case in cases]
        axes.plot(places, times, "o-", label=name, color=_COLOURS[name])
    axes.set_yscale("log")
    _mark(axes, places)


def _mark(axes: Any, places: list[int]) -> None:
    """A logarithmic axis with a mark at each measured place and nowhere else."""
    axes.set_xscale("log")
    axes.set_xticks(places, [f"{place:,}" for place in places])
    axes.minorticks_off()


def _label(axes: Any, what: str, title: str) -> None:
    axes.set(xlabel=what, ylabel="milliseconds per step", title=title)
    axes.grid(alpha=0.3)
