"""Tables for people: shares in %, the best row in bold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

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
_LEAST_NEEDED = (4, 5, 3, 6)  # of COLUMNS, in the order in which a narrow terminal loses them


def rich_tables(summary: Summary, width: int) -> Iterable[Group]:
    """One table per file for a terminal of ``width``; columns that do not fit are left out."""
    for path, rows in summary["files"].items():
        cells = [_cells(label, row) for label, row in rows.items()]
        kept = _fitting(cells, width)
        table = Table()
        for place in kept:
            justify: Literal["left", "right"] = "left" if place == 0 else "right"
            table.add_column(COLUMNS[place], justify=justify, no_wrap=True)
        for texts, row in zip(cells, rows.values(), strict=True):
            style = "bold" if row["best"] else ""
            table.add_row(*(Text(texts[place], style=style) for place in kept))
        yield Group(Text(_title(path, summary)), table)  # a table would wrap its own title


def _fitting(cells: list[list[str]], width: int) -> list[int]:
    """The columns that fit side by side; accuracy and gain are the last to go."""
    widths = [max(map(len, texts)) + 3 for texts in zip(COLUMNS, *cells, strict=True)]
    kept = list(range(len(COLUMNS)))
    for place in _LEAST_NEEDED:
        if sum(widths[each] for each in kept) + 1 > width:
            kept.remove(place)
    return kept


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
    return Group(Text(f"{path}: {_images(result.n_samples)}, seed {result.seed}"), table)


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
    return f"{path}: {_images(facts['n_samples'])}, {facts['n_classes']} classes, {orders}{labels}"


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count} images"


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
