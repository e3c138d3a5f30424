"""A table as text, cell by cell, before it becomes Markdown or LaTeX."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SheetRow:
    """``message`` stands in place of the cells after the first, where nothing was measured."""

    cells: tuple[str, ...]
    bold: tuple[int, ...] = ()  # places of the cells that tell of the highest accuracy
    message: str = ""


@dataclass(frozen=True)
class Sheet:
    """One table with what stands above and below it."""

    title: str
    facts: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[SheetRow, ...]
    notes: tuple[str, ...] = ()
    is_prose: bool = False  # sentences rather than figures
