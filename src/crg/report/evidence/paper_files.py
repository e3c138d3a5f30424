"""Files of papers' numbers that a user brings, read with suspicion."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from crg.bench.tables import Table, parsed
from crg.methods.options import nearest
from crg.results.papers import NOTES, Papers, bundled_papers, known_experiments, papers_of


def with_papers(path: str | os.PathLike[str] | None) -> Papers:
    """The bundled papers; before them those of a file, if one is named.

    It has the form of the bundled ``papers.toml``: ``[sources]``, ``[[table]]``, ``[[slip]]``,
    ``[[protocol]]`` and ``[[statement]]``.
    """
    if path is None:
        return bundled_papers()
    file = Path(path)
    data = parsed(file, "name the TOML file of papers' numbers", ("table", *NOTES))
    top = Table(data, file)
    sources = top.mapping("sources")
    for key, source in sources.items():
        if not isinstance(source, str):
            top.refuse(f"source {key} is {source!r}", "give the words that name the paper.")
    tables = top.tables("table", "table")
    notes = [(kind, each) for kind in NOTES for each in top.tables(kind, kind)]
    top.finish()
    if not tables and not notes:
        top.refuse("it has no numbers", "write them below [[table]].")
    for table in tables:
        _check_table(table, sources)
    for kind, note in notes:
        _check_note(kind, note, sources)
    return papers_of(data, str(file)).before(bundled_papers())


def _check_table(table: Table, sources: Mapping[str, str]) -> None:
    _check_experiment(table, table.text("experiment"))
    table.text("backbone")
    _check_source(table, table.text("source"), sources)
    columns = table.texts("columns")
    if len(set(columns)) < len(columns):
        table.refuse(f"columns are {', '.join(columns)}", "name each dataset once.")
    rows = table.mapping("rows")
    table.finish()
    if not rows:
        table.refuse("rows are missing", "write one per method below [table.rows].")
    for method, values in rows.items():
        if not isinstance(values, list) or len(values) != len(columns):
            table.refuse(f"{method} is {values!r}", f"give {len(columns)} numbers, one per column.")
        _check_shares(table, method, values)


def _check_shares(table: Table, method: str, values: Sequence[object]) -> None:
    for value in values:
        if type(value) not in (int, float) or not 0 <= float(str(value)) <= 100:
            table.refuse(f"{method} has {value!r}", "give a percentage from 0 to 100.")


def _check_note(kind: str, note: Table, sources: Mapping[str, str]) -> None:
    note.text("note")
    if kind == "slip":
        note.text("paper", "")
    if note.has("source") or kind == "statement":
        _check_source(note, note.text("source"), sources)
    if note.has("experiment"):
        _check_experiment(note, note.text("experiment"))
    if note.has("backbone"):
        note.text("backbone")
    for key in ("methods", "datasets"):
        if note.has(key):
            note.texts(key)
    note.finish()


def _check_experiment(table: Table, name: str) -> None:
    if name not in known_experiments():
        table.refuse(f"experiment is {name!r}", nearest(name, known_experiments()))


def _check_source(table: Table, key: str, sources: Mapping[str, str]) -> None:
    if key not in sources:
        table.refuse(f"source is {key!r}", "name one of the keys below [sources].")
