"""Results files: the latest outline of each experiment in them, with its runs."""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crg import outline, results
from crg.evidence.lines import Known
from crg.evidence.printed import printed_tables
from crg.evidence.runs import Run
from crg.evidence.study import Shown, Study, Table, Trace
from crg.evidence.tabling import Tell, tables_of
from crg.evidence.wording import listing, quoted
from crg.outline import ENOUGH_ORDERS, ENOUGH_PICTURES, Outline
from crg.reported import Papers, bundled_papers
from crg.types import InputError

GALLERY = "gallery"
_Numbered = Sequence[tuple[int, results.Record]]


def read_studies(
    paths: Iterable[str | os.PathLike[str]],
    tell: Tell = lambda what: None,
    papers: Papers | None = None,
) -> list[Study]:
    """What the results files say, a study per file and experiment; a folder is all its files.

    It takes about a second per table, mostly for the intervals; ``tell`` hears where it is.
    ``papers`` are those whose numbers stand beside; by default the bundled ones.
    """
    given = [Path(path) for path in paths]
    files = [file for path in given for file in _files(path)]
    believed = bundled_papers() if papers is None else papers
    studies = [
        study for file in dict.fromkeys(files) for study in _studies_of(file, tell, believed)
    ]
    if not studies:
        named = ", ".join(map(str, given)) or "No results file"
        raise InputError(f"{named} holds no experiment: run one with crg bench.")
    return studies


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.jsonl"))
    if not path.exists():
        raise InputError(f"{path} does not exist: name a results file or a folder of them.")
    return [path]


def _studies_of(file: Path, tell: Tell, papers: Papers) -> list[Study]:
    ledger = results.read_ledger(file)
    numbered = list(zip(ledger.numbers, ledger.records, strict=True))
    latest = {record["key"]: record for _, record in numbered if record.get("kind") == outline.KIND}
    torn = tuple(
        f"Line {number} of {file} cannot be read and is left out." for number in ledger.torn
    )
    return [
        _study(outline.from_record(record), numbered, str(file), torn, tell, papers)
        for record in latest.values()
    ]


def _study(
    about: Outline,
    numbered: _Numbered,
    file: str,
    torn: tuple[str, ...],
    tell: Tell,
    papers: Papers,
) -> Study:
    wanted = {cell.key for cell in about.cells if cell.key is not None}
    runs: dict[str, Run] = {}
    failures: dict[str, str] = {}
    for number, record in numbered:
        key = record["key"]
        if key not in wanted:
            continue
        if record.get("kind") == results.FAILURE:
            failures[key] = record["reason"]
        elif "kind" not in record:
            runs[key] = Run(record, Trace(file, number, key, record["seed"]))
    machine = _machine(runs.values())
    tables = tables_of(Known(about, runs, failures, papers), tell)
    missing = tuple(source for source in about.sources if source.missing is not None)
    return Study(
        outline=about,
        tables=tables,
        missing=missing,
        printed=printed_tables(about, missing, papers),
        gallery=_galleries(about.name, numbered),
        machine=machine,
        notes=(*_notes(about, machine), *_small_tables(tables), *torn),
        path=file,
    )


def _galleries(name: str, numbered: _Numbered) -> dict[str, tuple[Shown, ...]]:
    """The latest gallery of each source; one without pictures counts for none."""
    latest = {
        record["source"]: record["pictures"]
        for _, record in numbered
        if record.get("kind") == GALLERY and record["experiment"] == name
    }
    return {source: tuple(map(_shown, pictures)) for source, pictures in latest.items() if pictures}


def _shown(picture: Mapping[str, Any]) -> Shown:
    png = base64.b64decode(picture["png"])
    return Shown(picture["id"], png, picture["truth"], picture["answers"])


def _machine(runs: Collection[Run]) -> dict[str, str]:
    """When, and versions and machine; where runs differ, all that there are."""
    found: dict[str, dict[str, None]] = {}
    times = sorted(run.record["time"] for run in runs if "time" in run.record)
    if times:
        found["measured"] = {f"{times[0]} to {times[-1]}": None}
    for run in runs:
        for part in ("versions", "machine"):
            for name, value in run.record.get(part, {}).items():
                if value is not None:
                    found.setdefault(name, {})[str(value)] = None
    return {name: ", ".join(values) for name, values in found.items()}


def _notes(about: Outline, machine: Mapping[str, str]) -> tuple[str, ...]:
    """What a reader must know before believing anything."""
    notes: list[str] = []
    if about.quick:
        notes.append("This is the reduced form of the experiment (--quick).")
    count = len(about.seeds)
    if count < ENOUGH_ORDERS:
        orders = "1 stream order" if count == 1 else f"{count} stream orders"
        notes.append(
            f"With {orders} no row is called better or worse: that takes at least {ENOUGH_ORDERS}."
        )
    if ", " in machine.get("host", ""):
        notes.append("The runs come from several machines, so their times cannot be compared.")
    if ", " in machine.get("crg", ""):
        notes.append(f"The runs come from several versions of crg: {machine['crg']}.")
    return tuple(notes)


def _small_tables(tables: Iterable[Table]) -> list[str]:
    """Where too few pictures were scored for any verdict."""
    small = [table for table in tables if not table.has_enough_pictures]
    places = (f"{quoted(table.source.name)} ({table.setting.label})" for table in small)
    if not small:
        return []
    return [
        f"Fewer than {ENOUGH_PICTURES} pictures were scored in an order of {listing(places)}: "
        "no row is called better or worse there."
    ]
