"""Tables of ``crg compare`` and ``crg run`` for people: fractions in %, the best row in bold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group
from rich.text import Text

from crg.report.tables import Column, Table, summary_table, to_markdown, to_terminal
from crg.types import Result

Summary = Mapping[str, Any]

_LEAST_NEEDED = ("NLL", "purity %", "ECE %", "ms/step")  # what a narrow terminal loses first
_RUN_ROWS = (
    ("accuracy %", "accuracy", 100),
    ("worst class %", "worst_class_accuracy", 100),
    ("ECE %", "ece", 100),
    ("NLL", "nll", 1),
    ("cache purity %", "purity", 100),
    ("ms per step, mean", "ms_per_step", 1),
    ("ms per step, median", "ms_per_step_median", 1),
)


def rich_tables(summary: Summary, width: int) -> Iterable[Group]:
    """One table per file for a terminal of ``width``; columns that do not fit are left out."""
    for path, rows in summary["files"].items():
        table = to_terminal(summary_table(rows, ""), width, _LEAST_NEEDED)
        yield Group(Text(_title(path, summary)), table)  # a table would wrap its own title


def markdown_tables(summary: Summary) -> str:
    """One table per file in Markdown."""
    return "\n\n".join(
        to_markdown(summary_table(rows, _title(path, summary)))
        for path, rows in summary["files"].items()
    )


def run_table(path: str, result: Result) -> Group:
    """One run beside zero-shot."""
    has_baseline = result.method != "zero_shot"
    rows = []
    for name, key, factor in _RUN_ROWS:
        values = [result.metrics.get(key), result.zero_shot.get(key)]
        if values != [None, None]:
            digits = 3 if factor == 1 else 2
            shown = [None if each is None else f"{factor * each:.{digits}f}" for each in values]
            rows.append((name, *(shown if has_baseline else shown[:1])))
    heads = [result.method, "zero_shot"] if has_baseline else [result.method]
    columns = (Column("", is_text=True), *map(Column, heads))
    title = f"{path}: {_images(result.n_samples)}, seed {result.seed}"
    return Group(Text(title), to_terminal(Table(columns, tuple(rows))))


def _title(path: str, summary: Summary) -> str:
    facts, n_orders = summary["data"][path], len(summary["seeds"])
    orders = f"{n_orders} order{'s' if n_orders > 1 else ''}"
    labels = "" if facts["labelled"] else ", no labels and so no accuracy"
    return f"{path}: {_images(facts['n_samples'])}, {facts['n_classes']} classes, {orders}{labels}"


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count} images"
