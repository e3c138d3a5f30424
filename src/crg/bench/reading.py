"""From the TOML file of an experiment to its design."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from crg.bench.checking import check_label, check_row, check_whole
from crg.bench.design import (
    FIGURES,
    CatalogueRequest,
    DataRequest,
    Design,
    FilesRequest,
    Quick,
    RowRequest,
    SettingRequest,
    ShapesRequest,
)
from crg.bench.grid import typed_options
from crg.bench.tables import Table, parsed
from crg.datasets.catalog import find_entry, get_entry
from crg.evaluate import BASELINE
from crg.methods.registry import get_method
from crg.presets import presets_of
from crg.results.outline import ENOUGH_ORDERS
from crg.shapes.dataset import CLEAN
from crg.shapes.shifts import check_shift
from crg.streams.scenario import ORDERS, SHUFFLED, Scenario
from crg.types import InputError

PUBLISHED = "published"


def read_design(path: str | os.PathLike[str]) -> Design:
    """The experiment of a file; every mistake is refused before anything is run."""
    file = Path(path)
    lists = ("row", "setting", "data")
    top = Table(parsed(file, "name the TOML file of an experiment", lists), file)
    design = Design(
        name=top.text("name", file.stem),
        title=top.text("title", file.stem),
        about=" ".join(top.text("about", "").split()),
        figure=top.text("figure", "table", FIGURES),
        reported=top.text("reported", ""),
        orders=top.count("orders", ENOUGH_ORDERS),
        x_title=top.text("x_title", ""),
        measures_memory=top.flag("memory"),
        has_gallery=top.flag("gallery"),
        rows=_with_zero_shot(tuple(_row(each) for each in top.tables("row", "row"))),
        settings=tuple(_setting(each) for each in top.tables("setting", "setting"))
        or (SettingRequest(SHUFFLED),),
        data=tuple(_data(each) for each in top.tables("data", "data")),
        quick=_quick(top.table("quick")),
    )
    top.finish()
    check_whole(top, design)
    return design


def _with_zero_shot(rows: tuple[RowRequest, ...]) -> tuple[RowRequest, ...]:
    """The rows with plain zero-shot among them: it is what the others are measured against."""
    if any(row.method == BASELINE and not row.options for row in rows):
        return rows
    return (RowRequest(BASELINE, BASELINE), *rows)


def _row(table: Table) -> RowRequest:
    method = table.text("method")
    label = table.text("label", method)
    table.place = f"{table.place} ({label!r})"
    row = RowRequest(
        label=label,
        method=method,
        options=table.mapping("options"),
        published=table.text("preset", "none", ("none", PUBLISHED)) == PUBLISHED,
        per_dataset=_per_dataset(table),
        tuned_by_hand=table.flag("tuned"),
        several_views=table.flag("several_views"),
        about=table.text("about", ""),
        x=table.optional_number("x"),
        series=table.text("series", ""),
        against=table.text("against", ""),
    )
    table.finish()
    check_row(table, row)
    _check_options(table, row)
    return row


def _per_dataset(table: Table) -> dict[str, Any]:
    """Options by the name that the catalogue has for a dataset, whichever one was written."""
    given = table.mapping("per_dataset")
    return {entry.name if (entry := find_entry(k)) else k: each for k, each in given.items()}


def _check_options(table: Table, row: RowRequest) -> None:
    for dataset, options in row.per_dataset.items():
        if not isinstance(options, dict):
            table.refuse(f"per_dataset.{dataset} is {options!r}", "give a table of options.")
    try:
        get_method(row.method)
        for options in ({}, *row.per_dataset.values()):
            typed_options(row.method, {**row.options, **options})
    except InputError as error:
        table.blame(error)
    if row.published and not presets_of(row.method):
        table.refuse(f"{row.method} has no published preset", "leave the preset out.")


def _setting(table: Table) -> SettingRequest:
    order = table.text("order", SHUFFLED, ORDERS)
    label = table.text("label", order)
    check_label(table, label)
    table.place = f"{table.place} ({label!r})"
    strength, x = table.optional_number("strength"), table.optional_number("x")
    images = table.optional_count("images")
    mislabelled = table.optional_number("mislabelled") or 0.0
    table.finish()
    try:
        return SettingRequest(label, Scenario(order, strength, images, mislabelled), x)
    except InputError as error:
        table.blame(error)


def _data(table: Table) -> DataRequest:
    kinds = [key for key in ("datasets", "shapes", "files") if table.has(key)]
    if len(kinds) != 1:
        named = " and ".join(kinds) or "nothing"
        table.refuse(f"it asks for {named}", "give one of datasets, shapes and files.")
    request: DataRequest
    if kinds == ["datasets"]:
        request = _catalogue(table)
    elif kinds == ["shapes"]:
        request = _shapes(table)
    else:
        request = FilesRequest()
        if not table.flag("files"):
            table.refuse("files is false", "leave the table out.")
    table.finish()
    return request


def _catalogue(table: Table) -> CatalogueRequest:
    try:
        names = tuple(get_entry(name).name for name in table.texts("datasets"))
    except InputError as error:
        table.blame(error)
    if not table.has("models"):
        table.refuse("models is missing", 'name those that encoded the stores, such as ["RN50"].')
    return CatalogueRequest(names, table.texts("models"))


def _shapes(table: Table) -> ShapesRequest:
    shifts, severity = table.texts("shapes"), table.count("severity", ShapesRequest.severity)
    _check_shifts(table, shifts, severity)
    return ShapesRequest(
        shifts=shifts,
        severity=severity,
        images=table.count("images", ShapesRequest.images),
        views=table.count("views", ShapesRequest.views),
        shots=table.count("shots", 0, at_least=0),
        generated=table.count("generated", 0, at_least=0),
    )


def _check_shifts(table: Table, shifts: tuple[str, ...], severity: int) -> None:
    try:
        for shift in shifts:
            check_shift(None if shift == CLEAN else shift, severity)
    except InputError as error:
        table.blame(error)


def _quick(table: Table) -> Quick:
    shifts = table.texts("shapes") if table.has("shapes") else None
    _check_shifts(table, shifts or (), 1)
    quick = Quick(
        orders=table.optional_count("orders"),
        shifts=shifts,
        images=table.optional_count("images"),
        views=table.optional_count("views"),
        shots=table.optional_count("shots", at_least=0),
        generated=table.optional_count("generated", at_least=0),
        at_most=table.optional_count("at_most"),
    )
    table.finish()
    return quick
