"""Results files: the latest outline of each experiment in them, with its runs."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crg.bench.shortening import SHORT
from crg.report.evidence.lines import Known
from crg.report.evidence.printed import printed_tables
from crg.report.evidence.runs import Run
from crg.report.evidence.study import Shown, Study, Table, Trace
from crg.report.evidence.tabling import Tell, tables_of
from crg.report.evidence.wording import listing, quoted
from crg.results import ledger as results
from crg.results import outline
from crg.results.outline import ENOUGH_IMAGES, ENOUGH_ORDERS, Outline
from crg.results.papers import Papers, bundled_papers
from crg.results.soundness import DIGEST, LeftOut, is_run, sentences_on
from crg.types import InputError

GALLERY = "gallery"


def read_studies(
    paths: Iterable[str | os.PathLike[str]],
    tell: Tell = lambda what: None,
    papers: Papers | None = None,
    on_left_out: Callable[[str], None] = lambda sentence: None,
) -> list[Study]:
    """What the results files say, a study per file and experiment; a folder is all its files.

    It takes about a second per table, mostly for the intervals; ``tell`` hears where it is.
    ``papers`` are those whose numbers stand beside; by default the bundled ones.
    ``on_left_out`` hears what was left out of files, which the notes of their studies tell too.
    """
    given = [Path(path) for path in paths]
    files = list(dict.fromkeys(file for path in given for file in _files(path)))
    believed = bundled_papers() if papers is None else papers
    studies: list[Study] = []
    for file in files:
        ledger = results.read_ledger(file)
        outlines, left_out = _outlines(ledger)
        sentences = tuple(sentences_on(file, left_out))
        found = [_study(each, ledger, str(file), sentences, tell, believed) for each in outlines]
        for sentence in sentences if found else ():
            on_left_out(sentence)
        studies += found
    if not studies:
        raise InputError(_nothing_to_draw(given, files))
    return studies


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.jsonl")) or sorted(path.glob("*.jsonl.gz"))
    if not path.exists():
        raise InputError(f"{path} does not exist: name a results file or a folder of them.")
    return [path]


def _outlines(ledger: results.Ledger) -> tuple[list[Outline], list[LeftOut]]:
    """The latest outline of each experiment that is one, and all lines that are left out."""
    found: dict[str, Outline] = {}
    left_out = list(ledger.left_out)
    for number, record in zip(ledger.numbers, ledger.records, strict=True):
        if record.get("kind") == outline.KIND:
            about = _whole_outline(record)
            if about is None:
                left_out.append(LeftOut(number, "is no outline of an experiment", record))
            else:
                found[record["key"]] = about
    return list(found.values()), left_out


def _whole_outline(record: results.Record) -> Outline | None:
    """The outline in a record; None where it is none, or its cells lead to nothing."""
    try:
        about = outline.from_record(record)
        lists = (about.sources, about.settings, about.rows)
        places = {(cell.source, cell.setting, cell.row) for cell in about.cells}
        led = all(0 <= n < len(e) for each in places for n, e in zip(each, lists, strict=True))
        is_filled = all(len(each) for each in (*lists, about.seeds))
    except outline.NO_OUTLINE:
        return None
    texts = (about.name, about.title, about.about, about.figure)
    return about if led and is_filled and all(isinstance(each, str) for each in texts) else None


def _nothing_to_draw(given: Sequence[Path], files: Sequence[Path]) -> str:
    """Why files without any experiment have no report, and what would help."""
    named = ", ".join(map(str, given)) or "No results file"
    ledgers = [results.read_ledger(file) for file in files]
    records = [record for ledger in ledgers for record in ledger.records]
    if any(record.get("kind") == SHORT or DIGEST in record for record in records):
        pages = dict.fromkeys(file.parent / "report.html" for file in files)
        beside = [str(page) for page in pages if page.exists()] or ["the page made with them"]
        return (
            f"{named} holds short lines only, which are kept for crg rerun: open "
            f"{' and '.join(beside)}, or draw what a new crg bench measures."
        )
    lines = [line for ledger in ledgers for line in _outlines(ledger)[1]]
    why = f" (line {lines[0].number} {lines[0].why})" if lines else ""
    return f"{named} holds no experiment{why}: run one with crg bench."


def _study(
    about: Outline,
    ledger: results.Ledger,
    file: str,
    left_out: tuple[str, ...],
    tell: Tell,
    papers: Papers,
) -> Study:
    wanted = {cell.key for cell in about.cells if cell.key is not None}
    runs: dict[str, Run] = {}
    failures: dict[str, str] = {}
    for number, record in zip(ledger.numbers, ledger.records, strict=True):
        key = record["key"]
        if key not in wanted:
            continue
        if record.get("kind") == results.FAILURE:
            failures[key] = record["reason"]
        elif is_run(record):
            runs[key] = Run(record, Trace(file, number, key, record["seed"]))
    machine = _machine(runs.values())
    tables = tables_of(Known(about, runs, failures, papers), tell)
    missing = tuple(source for source in about.sources if source.missing is not None)
    return Study(
        outline=about,
        tables=tables,
        missing=missing,
        printed=printed_tables(about, missing, papers),
        gallery=_galleries(about.name, ledger.records),
        machine=machine,
        notes=(*_notes(about, machine), *_small_tables(tables), *left_out),
        path=file,
    )


def _galleries(name: str, records: Iterable[results.Record]) -> dict[str, tuple[Shown, ...]]:
    """The latest gallery of each source; one without images counts for none."""
    latest = {
        record["source"]: record["images"]
        for record in records
        if record.get("kind") == GALLERY and record["experiment"] == name
    }
    return {source: tuple(map(_shown, images)) for source, images in latest.items() if images}


def _shown(image: Mapping[str, Any]) -> Shown:
    png = base64.b64decode(image["png"])
    return Shown(image["id"], png, image["truth"], image["answers"])


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
    if any(", " in machine.get(name, "") for name in ("host", "processor")):
        notes.append("The runs come from several machines, so their times cannot be compared.")
    if ", " in machine.get("crg", ""):
        notes.append(f"The runs come from several versions of crg: {machine['crg']}.")
    return tuple(notes)


def _small_tables(tables: Iterable[Table]) -> list[str]:
    """Where too few images were scored for any verdict."""
    small = [table for table in tables if not table.has_enough_images]
    places = (f"{quoted(table.source.name)} ({table.setting.label})" for table in small)
    if not small:
        return []
    return [
        f"Fewer than {ENOUGH_IMAGES} images were scored in an order of {listing(places)}: "
        "no row is called better or worse there."
    ]
