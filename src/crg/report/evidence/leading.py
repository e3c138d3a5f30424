"""Who leads: the one meaning that bold has in tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from crg.report.evidence.study import Line, Spread, Study

BOLD = (
    "In tables, bold is the highest accuracy on a source, with the name of its row; where there "
    "is a column per setting or per number of images, it is the highest of the column. A row "
    "that lacks some of the orders is never bold."
)


def leading(lines: Iterable[Line], value: Callable[[Line], Spread | None]) -> frozenset[str]:
    """The labels of the complete rows without labels that are highest; equal ones share it."""
    found = {
        line.row.label: spread.mean
        for line in lines
        if line.status == "measured" and not line.row.uses_labels
        and (spread := value(line)) is not None
    }  # fmt: skip
    top = max(found.values(), default=None)
    return frozenset(label for label, mean in found.items() if mean == top)


def first_leading(lines: Iterable[Line], count: int) -> frozenset[str]:
    """Those that are highest over the first images."""
    return leading(lines, lambda line: line.first.get(count))


def bold_among(study: Study) -> str:
    """Which rows may be bold where some use labels; empty where none does."""
    if not any(row.uses_labels for row in study.outline.rows):
        return ""
    return (
        "Only rows that use no labels can be bold: those that use some (labelled images, or "
        "options chosen with labels) may well be higher."
    )
