"""Tables for people: shares in per cent, the best row in bold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from crg.types import Result

Summary = Mapping[str, Any]

COLUMNS = ("method", "accuracy %", "gain (95% interval)", "ECE %", "NLL", "purity %", "ms/step")
_RUN_ROWS = (
    ("accuracy %", "accuracy", 100),
    ("worst class %", "worst_class_accuracy", 100),
    ("ECE %", "ece", 100),
    ("NLL", "nll", 1),
    ("cache purity %", "purity", 100),
    ("ms per step, mean", "ms_per_step", 1),
    ("ms per step, median", "ms_per_step_median", 1),
)
_NOTHING = "-"


def rich_tables(summary: Summary) -> Iterable[Group]:
    """One table per file for a terminal."""
    for path, rows in summary["files"].items():
        table = Table()
        for place, column in enumerate(COLUMNS):
            table.add_column(column, justify="left" if place == 0 else "right", no_wrap=True)
        for label, row in rows.items():
            style = "bold" if row["best"] else ""
            table.add_row(*(Text(cell, style=style) for cell in _cells(label, row)))
        yield Group(Text(_title(path, summary)), table)  # a table would wrap its own title


def markdown_tables(summary: Summary) -> str:
    """One table per file in Markdown."""
    return "\n\n".join(
        _markdown_table(_title(path, summary), rows) for path, rows in summary["files"].items()
    )


def run_table(path: str, result: Result) -> Group:
    """One run beside zero-shot."""
    table = Table()
    table.add_column("")
    table.add_column(Text(result.method), justify="right")
    if result.method != "zero_shot":
        table.add_column("zero_shot", justify="right")
    for name, key, factor in _RUN_ROWS:
        shown = [_number(each.get(key), factor, 3 if factor == 1 else 2)
                 for each in (result.metrics, result.zero_shot)]  # fmt: skip
        if shown != [_NOTHING, _NOTHING]:
            table.add_row(name, *shown[: len(table.columns) - 1])
    return Group(Text(f"{path}: {result.n_samples} pictures, seed {result.seed}"), table)


def _markdown_table(title: str, rows: Summary) -> str:
    lines = [
        f"**{title}**\n",
        "| " + " | ".join(COLUMNS) + " |",
        "| --- |" + " ---: |" * (len(COLUMNS) - 1),
    ]
    for label, row in rows.items():
        cells = [cell.replace("|", "\\|") for cell in _cells(label, row)]
        if row["best"]:
            cells[:2] = [f"**{cell}**" for cell in cells[:2]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _title(path: str, summary: Summary) -> str:
    facts, n_orders = summary["data"][path], len(summary["seeds"])
    orders = f"{n_orders} order{'s' if n_orders > 1 else ''}"
    labels = "" if facts["labelled"] else ", no labels and so no accuracy"
    return f"{path}: {facts['n_samples']} pictures, {facts['n_classes']} classes, {orders}{labels}"


def _cells(label: str, row: Summary) -> list[str]:
    return [
        label,
        _accuracy(row["accuracy"]),
        _gain(row),
        _number(row["ece"], 100, 2),
        _number(row["nll"], 1, 3),
        _number(row["purity"], 100, 1),
        _number(row["ms_per_step"], 1, 3),
    ]


def _accuracy(spread: Summary | None) -> str:
    if spread is None:
        return _NOTHING
    deviation = "" if spread["std"] is None else f" ± {100 * spread['std']:.2f}"
    return f"{100 * spread['mean']:.2f}{deviation}"


def _gain(row: Summary) -> str:
    gain = row["gain"]
    if gain is None or row["method"] == "zero_shot":
        return _NOTHING
    return f"{100 * gain['mean']:+.2f} [{100 * gain['low']:+.2f}, {100 * gain['high']:+.2f}]"


def _number(value: float | None, factor: int, digits: int) -> str:
    return _NOTHING if value is None else f"{factor * value:.{digits}f}"
