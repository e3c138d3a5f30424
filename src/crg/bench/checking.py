"""What the file of an experiment must be as a whole: names, figures and what they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crg.bench.design import Design, FilesRequest, RowRequest, ShapesRequest
from crg.bench.rendered import Shapes
from crg.bench.tables import Table
from crg.datasets.catalog import catalogue, find_entry
from crg.evaluate import BASELINE
from crg.methods.options import nearest
from crg.results.papers import known_experiments


def check_whole(top: Table, design: Design) -> None:
    """Refuse what no single table of the file tells."""
    for kind, names in (
        ("rows", [row.label for row in design.rows]),
        ("settings", [setting.label for setting in design.settings]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            top.refuse(f"two {kind} are called {twice[0]!r}", "give one of them another label.")
    labels = {row.label for row in design.rows}
    for row in design.rows:
        if row.against and row.against not in labels - {row.label}:
            hint = nearest(row.against, labels - {row.label})
            top.refuse(f"the row {row.label!r} is held against {row.against!r}", hint)
    if not design.data:
        top.refuse("it names no data", "write [[data]] with datasets, shapes or files.")
    if not design.name or any(part in design.name for part in "/\\:"):
        top.refuse(f"name is {design.name!r}", "choose one without slashes and colons.")
    if design.reported and design.reported not in known_experiments():
        hint = nearest(design.reported, known_experiments())
        top.refuse(f"reported is {design.reported!r}", hint)
    _check_figure(top, design)
    _check_datasets(top, design)


def check_row(table: Table, row: RowRequest) -> None:
    """Refuse a label that stands for nothing, or for another row."""
    check_label(table, row.label)
    is_plain = row.method == BASELINE and not row.options
    if row.label == BASELINE and not is_plain:
        table.refuse(
            f"{BASELINE} is the name of the row that is always there", "give another label."
        )


def check_label(table: Table, label: str) -> None:
    """Refuse a label that tables could not show."""
    if not label.strip():
        table.refuse(f"label is {label!r}", "give a name, or leave it out for the usual one.")


def unknown_datasets(design: Design, sources: Iterable[str]) -> list[str]:
    """Sentences on options for single datasets that neither the catalogue nor a source knows."""
    known = set(sources)
    return [
        f"the row {row.label!r} has options for {name!r}, and no source is called so."
        for row in design.rows
        for name in row.per_dataset
        if find_entry(name) is None and name not in known
    ]


def _check_figure(top: Table, design: Design) -> None:
    needs = {
        "sweep": ("x in the rows that it shows", any(row.x is not None for row in design.rows)),
        "shots": ("x above 0 in the rows that it shows", _have_shots(design.rows)),
        "noise": ("x in every setting", all(each.x is not None for each in design.settings)),
        "heat": (
            f"two options, both numbers, that all rows but {BASELINE} give and that vary",
            _vary_in_two(design.rows),
        ),
    }
    need, is_met = needs.get(design.figure, ("", True))
    if not is_met:
        top.refuse(f"figure is {design.figure!r}", f"it needs {need}, or choose another figure.")


def _have_shots(rows: Sequence[RowRequest]) -> bool:
    places = [row.x for row in rows if row.x is not None]
    return bool(places) and min(places) > 0


def _vary_in_two(rows: Sequence[RowRequest]) -> bool:
    shown = [row.options for row in rows if row.method != BASELINE]
    names = {name for options in shown for name in options}
    varying = [name for name in names if len({str(each.get(name)) for each in shown}) > 1]
    values = [options.get(name) for options in shown for name in varying]
    return len(varying) == 2 and all(type(value) in (int, float) for value in values)


def _check_datasets(top: Table, design: Design) -> None:
    """Where no file can have the name of a dataset, one that nobody knows is a mistake."""
    if any(isinstance(request, FilesRequest) for request in design.data):
        return  # known once files are looked for
    shifts = [each for each in design.data if isinstance(each, ShapesRequest)]
    shapes = {
        Shapes(shift, each).name
        for each in shifts
        for shift in (*each.shifts, *(design.quick.shifts or ()))
    }
    for row in design.rows:
        for name in row.per_dataset:
            if find_entry(name) is None and name not in shapes:
                hint = nearest(name, {*catalogue(), *shapes})
                top.refuse(f"the row {row.label!r} has options for {name!r}", hint)
