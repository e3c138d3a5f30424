"""``crg datasets``: the datasets of the paper, one of them, or a check of one on disk."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from crg.cli.shared import output, print_json, progress
from crg.datasets import load_dataset
from crg.datasets.catalog import (
    SAMPLE_SEED,
    SAMPLE_SIZE,
    DatasetEntry,
    catalogue,
    get_entry,
    layout,
)
from crg.datasets.check import CheckReport, Fault, check_dataset
from crg.shapes.shifts import SEVERITIES, SHIFTS
from crg.threads import processors

_SHOWN = 10  # files that are listed for each problem; --json lists all
_WRONG = 1  # exit code


@click.command()
@click.argument("words", metavar="[NAME | check NAME]", nargs=-1)
@click.option(
    "--root", type=click.Path(path_type=Path), help="With check: the folder that holds the data."
)
@click.option("--decode", is_flag=True, help="With check: decode every image, not its header.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def datasets(
    ctx: click.Context, words: tuple[str, ...], root: Path | None, decode: bool, as_json: bool
) -> None:
    """List the datasets, describe one, or check one on disk.

    NAME is a name from the list; check also takes a folder of your own with one folder per class,
    or a CSV file. Exit code of check: 0 all is fine, 1 something is wrong, 2 bad input.

    \b
    Example:
      crg datasets
      crg datasets eurosat
      crg datasets check eurosat --root /data
    """
    match words:
        case ["check", name]:
            _check(ctx, name, root, decode, as_json)
        case ["check", *_]:
            raise click.UsageError("crg datasets check takes one name")
        case _ if root is not None or decode:
            raise click.UsageError("--root and --decode belong to crg datasets check NAME")
        case []:
            _list(as_json)
        case ["shapes"]:
            _describe_shapes(as_json)
        case [name]:
            _describe(get_entry(name), as_json)
        case _:
            raise click.UsageError("crg datasets takes one name")


def _list(as_json: bool) -> None:
    entries = list(catalogue().values())
    if as_json:
        print_json({"datasets": [_facts(entry) for entry in entries]})
        return
    table = Table("dataset", "title")
    for heading in ("classes", "test images", "paper draws"):
        table.add_column(heading, justify="right")
    table.add_column("reader")
    for entry in entries:
        sample = f"{SAMPLE_SIZE:,}" if entry.sampled else "all"
        numbers = f"{entry.classes:,}", f"{entry.test:,}", sample
        table.add_row(entry.name, entry.title, *numbers, entry.reader)
    output().print(table)
    output().print(
        "crg datasets NAME says how its files are laid out and where to get them.\n"
        "shapes, and shapes:SHIFT:SEVERITY, are rendered on the spot and need no files."
    )


def _describe(entry: DatasetEntry, as_json: bool) -> None:
    if as_json:
        print_json(_facts(entry))
        return
    console = output()
    console.print(
        Text(f"{entry.title}: {entry.classes:,} classes, {entry.test:,} test images"),
        Text(f"source: {entry.source}"),
        Text(f"licence: {entry.licence or 'see the source'}"),
        Text("\ntemplates:\n" + "\n".join(f"  {each}" for each in entry.templates)),
        Text("\nfiles below the root:\n" + "\n".join(f"  {each}" for each in layout(entry))),
        sep="\n",
    )
    if entry.class_names:
        console.print(Text("\nclass names: " + ", ".join(entry.class_names)))
    if entry.sampled:
        console.print(
            Text(
                f"\nThe paper draws {SAMPLE_SIZE:,} at random; ours: limit {SAMPLE_SIZE}, seed "
                f"{SAMPLE_SEED}, sha256 of the indices {entry.sample_sha256}"
            )
        )


def _describe_shapes(as_json: bool) -> None:
    names = load_dataset("shapes", limit=1).class_names
    severities = [min(SEVERITIES), max(SEVERITIES)]
    if as_json:
        print_json({"name": "shapes", "class_names": names, "shifts": list(SHIFTS),
                    "severities": severities})  # fmt: skip
        return
    console = output()
    console.print(Text(f"shapes: {len(names)} classes, rendered on the spot: {', '.join(names)}"))
    kinds = f"SHIFT is one of {', '.join(SHIFTS)} and SEVERITY {severities[0]} to {severities[1]}"
    console.print(Text(f"shapes:SHIFT:SEVERITY is the same shifted, where {kinds}."))


def _facts(entry: DatasetEntry) -> dict[str, Any]:
    facts = dataclasses.asdict(entry)
    sample = {"size": SAMPLE_SIZE, "seed": SAMPLE_SEED, "sha256": facts.pop("sample_sha256")}
    return {**facts, "sample": sample if facts.pop("sampled") else None, "layout": layout(entry)}


def _check(ctx: click.Context, name: str, root: Path | None, decode: bool, as_json: bool) -> None:
    bar = functools.partial(progress, "images")
    report = check_dataset(name, root, decode=decode, workers=processors(), progress=bar)
    if as_json:
        print_json({"fine": not report.problems, **dataclasses.asdict(report)})
    else:
        _print_report(report)
    ctx.exit(_WRONG if report.problems else 0)


def _print_report(report: CheckReport) -> None:
    console = output()
    for problem in report.problems:
        console.print(Text(f"{report.name}: {problem.sentence}"))
        console.print(*_items(problem), sep="\n", end="\n" if problem.items else "")
    if report.problems and report.source:
        console.print(Text(f"Get {report.name} from {report.source}"))
    if not report.problems:
        found = f"{report.n_classes:,} classes, {report.n_images:,} images"
        console.print(Text(f"{report.name}: all is fine ({found})."))
    if report.n_ignored:
        console.print(Text(f"{report.n_ignored:,} files are not images or in no class."))


def _items(problem: Fault) -> list[Text]:
    lines = [f"  {each}" for each in problem.items[:_SHOWN]]
    if len(problem.items) > _SHOWN:
        lines.append(f"  and {len(problem.items) - _SHOWN:,} more: --json lists them all")
    return [Text(line) for line in lines]
