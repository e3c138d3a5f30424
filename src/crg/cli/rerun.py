"""``crg rerun``: a run again from its line in a results file, compared with it."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import click

from crg.bench.rendered import FOLDER, render_store, shapes_in
from crg.bench.rerun import (
    Line,
    Repetition,
    changed_since,
    check_data,
    check_trusted,
    find_line,
    is_number,
    repeat,
    with_data_at,
)
from crg.bench.sources import VARIABLE, named_paths
from crg.cli.progress import EncodingBar
from crg.cli.shared import loaded_plugins, note, plugin_option, print_json
from crg.results import ledger
from crg.threads import processors
from crg.types import InputError

_SHOWN = 60  # characters of a value
DIFFERENT = 1  # exit code
# What is named of all that is compared; --json names everything.
_MAIN = ("digest", "accuracy", "predicted", "ece", "nll", "worst_class_accuracy", "purity")


@click.command()
@click.argument("line")
@click.option("--results", "files", multiple=True, metavar="FILE",
              type=click.Path(path_type=Path, dir_okay=False),
              help="Results file; may be repeated.  "
                   f"[default: {ledger.DEFAULT_PATH}, and results/*.jsonl for keys]")  # fmt: skip
@click.option("--data", multiple=True, metavar="PATH", type=click.Path(path_type=Path),
              help="Where to look for data that is not where it was; may be repeated.  "
                   f"[default: the variable {VARIABLE}]")  # fmt: skip
@click.option("--folder", default=FOLDER, show_default=True,
              type=click.Path(path_type=Path, file_okay=False),
              help="Where rendered shapes are encoded again if they are not there.")  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, with the names of all that is compared."
)
@plugin_option
def rerun(
    line: str, files: tuple[Path, ...], data: tuple[Path, ...], folder: Path, as_json: bool
) -> None:
    """Run again what a line of a results file reports, and compare all that was measured.

    LINE is the number of a line, FILE:NUMBER, or the start of a run's key. Times and memory are
    not compared. The exit code is 0 if everything is the same to the last bit, and 1 if not: then
    it says how many answers are equal and how far the figures differ. Rendered shapes that are
    not there are rendered again, and may come out with other last bits; other data must be named
    and be the same.

    \b
    Example:
      crg rerun results/ablation.jsonl:12
      crg rerun 3 --results crg-results.jsonl
      crg rerun 5f2c81d9
      crg rerun docs/results/noise.jsonl.gz:9
      crg rerun docs/results/ablation.jsonl.gz:145 --data features/
    """
    found = find_line(line, list(files) or _default_files(line))
    check_trusted(found.run, loaded_plugins())
    with contextlib.closing(EncodingBar()) as bar:
        render = functools.partial(_rendered, folder=folder, bar=bar)
        run = with_data_at(found.run, named_paths(data), render)
    same_data = check_data(run)
    notes = changed_since(run)
    if not same_data:
        notes.append("the shapes were encoded here with other last bits than the run saw.")
    for sentence in notes:
        note(sentence)
    repetition = repeat(run, loaded_plugins(), same_data)
    if as_json:
        print_json(_as_plain(found, repetition, notes))
    else:
        _print(found, repetition)
    click.get_current_context().exit(0 if repetition.is_same else DIFFERENT)


def _rendered(name: str, folder: Path, bar: EncodingBar) -> Path | None:
    """The store of rendered shapes that has this name, made again if need be."""
    if shapes_in(name) is None:
        return None
    if not (folder / name).exists():
        note(f"{name} is not there and is rendered again into {folder}.")
    return render_store(name, folder, processors(), bar.tell)


def _default_files(line: str) -> list[Path]:
    """For a number the one default file; for a key wherever results usually are."""
    usual = Path(ledger.DEFAULT_PATH)
    if is_number(line):
        return [usual]
    files = [path for path in (usual, *sorted(Path("results").glob("*.jsonl"))) if path.exists()]
    if not files and ":" not in line and not Path(line).is_file():
        raise InputError(f"There is neither {usual} nor results/*.jsonl: name one with --results.")
    return files


def _as_plain(line: Line, repetition: Repetition, notes: list[str]) -> dict[str, Any]:
    return {
        "file": line.file,
        "line": line.number,
        "key": line.run.key,
        "same": list(repetition.same),
        "other": {name: list(pair) for name, pair in repetition.differences.items()},
        "is_same": repetition.is_same,
        "equal_answers": repetition.answers and list(repetition.answers),
        "notes": notes,
    }


def _print(line: Line, repetition: Repetition) -> None:
    run = line.run
    click.echo(f"{line.file}:{line.number}: {run.method}, seed {run.seed}, {run.data.path}")
    click.echo(_count_of_same(repetition))
    if not repetition.is_same and repetition.answers:
        equal, total = repetition.answers
        click.echo(f"Equal answers: {equal} of {total}.")
    for name, (before, now) in repetition.differences.items():
        click.echo(f"Not the same: {name} was {_brief(before)} and is {_brief(now)}"
                   f"{_how_far(before, now)}.")  # fmt: skip
    if repetition.is_same:
        accuracy = run.metrics.get("accuracy")
        known = "" if accuracy is None else f", accuracy {100 * accuracy:.2f}%"
        click.echo(f"Everything was measured again as it was{known}.")


def _count_of_same(repetition: Repetition) -> str:
    """How many values are the same, and which of those that people look for."""
    same = repetition.same
    total = len(same) + len(repetition.other)
    main = [name for name in _MAIN if name in same]
    among = f", among them {', '.join(main)}" if main else ""
    return f"The same to the last bit: {len(same)} of {total} values{among}."


def _how_far(before: Any, now: Any) -> str:
    numbers = isinstance(before, int | float) and isinstance(now, int | float)
    return f" ({now - before:+.2g})" if numbers else ""


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
