"""``crg datasets``: the datasets of the paper, one of them, or a check of one on disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from crg.cli.progress import Display
from crg.cli.shared import json_option, output, print_json
from crg.datasets import catalog, load_dataset
from crg.datasets.check import CheckReport, check_dataset
from crg.shapes.shifts import SEVERITIES, SHIFTS

_SHOWN = 10  # files that are listed for each problem; --json lists all
_WRONG = 1  # exit code


@click.command()
@click.argument("words", metavar="[NAME | check NAME]", nargs=-1)
@click.option("--root", type=click.Path(path_type=Path),
              help="With check: the folder that holds the data.")  # fmt: skip
@json_option
@click.pass_context
def datasets(ctx: click.Context, words: tuple[str, ...], root: Path | None, as_json: bool) -> None:
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
            _check(ctx, name, root, as_json)
        case ["check", *_]:
            raise click.UsageError("crg datasets check takes one name")
        case _ if root is not None:
            raise click.UsageError("--root belongs to crg datasets check NAME")
        case []:
            _list(as_json)
        case ["shapes"]:
            _describe_shapes(as_json)
        case [name]:
            _describe(catalog.get_entry(name), as_json)
        case _:
            raise click.UsageError("crg datasets takes one name")


def _list(as_json: bool) -> None:
    entries = list(catalog.catalogue().values())
    if as_json:
        print_json({"datasets": [_facts(entry) for entry in entries]})
        return
    table = Table("dataset", "title")
    for heading in ("classes", "test images", "paper draws"):
        table.add_column(heading, justify="right")
    table.add_column("reader")
    for entry in entries:
        sample = f"{catalog.SAMPLE_SIZE:,}" if entry.sampled else "all"
        numbers = f"{entry.classes:,}", f"{entry.test:,}", sample
        table.add_row(entry.name, entry.title, *numbers, entry.reader)
    output().print(table)
    output().print(
        "crg datasets NAME says how its files are laid out and where to get them.\n"
        "shapes, and shapes:SHIFT:SEVERITY, are rendered on the spot and need no files."
    )


def _describe(entry: catalog.DatasetEntry, as_json: bool) -> None:
    if as_json:
        print_json(_facts(entry))
        return
    lines = [
        f"{entry.title}: {entry.classes:,} classes, {entry.test:,} test images",
        f"source: {entry.source}",
        f"licence: {entry.licence or 'see the source'}",
        "\ntemplates:\n" + "\n".join(f"  {each}" for each in entry.templates),
        "\nfiles below the root:\n" + "\n".join(f"  {each}" for each in catalog.layout(entry)),
    ]
    if entry.class_names:
        lines.append("\nclass names: " + ", ".join(entry.class_names))
    if entry.sampled:
        drawn = f"limit {catalog.SAMPLE_SIZE}, seed {catalog.SAMPLE_SEED}, sha256 of the indices"
        drawn = f"{catalog.SAMPLE_SIZE:,} at random; ours: {drawn} {entry.sample_sha256}"
        lines.append(f"\nThe paper draws {drawn}")
    output().print(*map(Text, lines), sep="\n")


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


def _facts(entry: catalog.DatasetEntry) -> dict[str, Any]:
    facts = {**dataclasses.asdict(entry), "layout": catalog.layout(entry)}
    drawn = {"size": catalog.SAMPLE_SIZE, "seed": catalog.SAMPLE_SEED}
    drawn["sha256"] = facts.pop("sample_sha256")
    return {**facts, "sample": drawn if facts.pop("sampled") else None}


def _check(ctx: click.Context, name: str, root: Path | None, as_json: bool) -> None:
    with Display("datasets", 1) as shown:
        report = check_dataset(name, root, lambda *count: shown.running(name, *count))
    if as_json:
        print_json({"fine": not report.problems, **dataclasses.asdict(report)})
    else:
        output().print(*map(Text, _sentences(report)), sep="\n")
    ctx.exit(_WRONG if report.problems else 0)


def _sentences(report: CheckReport) -> Iterator[str]:
    for problem in report.problems:
        yield f"{report.name}: {problem.sentence}"
        yield from (f"  {each}" for each in problem.items[:_SHOWN])
        if len(problem.items) > _SHOWN:
            yield f"  and {len(problem.items) - _SHOWN:,} more: --json lists them all"
    if report.problems and report.source:
        yield f"Get {report.name} from {report.source}"
    if not report.problems:
        found = f"{report.n_classes:,} classes, {report.n_images:,} images"
        yield f"{report.name}: all is fine ({found})."
    if report.n_ignored:
        yield f"{report.n_ignored:,} files are not images or in no class."
