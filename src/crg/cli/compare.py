"""``crg compare``: several methods over several files in several stream orders.

A list of methods is separated by commas. ``label=crg:negative=false,gaussian=false`` is CRG
with options under a label of its own: a part ``key=value`` belongs to the variant before it,
unless the value is the name of a method. No character is special to a shell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from crg.bench.grid import (
    Cell,
    Finished,
    Grid,
    Variant,
    iter_grid,
    plan_grid,
    summarise,
    with_baseline,
)
from crg.cli.progress import grid_progress
from crg.cli.shared import (
    INTERRUPTED,
    F,
    few_option,
    loaded_plugins,
    note,
    output,
    parse_options,
    plugin_option,
    print_json,
    results_options,
    tell_of_left_out,
)
from crg.cli.tables import markdown_tables, rich_tables
from crg.engine import RunSpec
from crg.methods.options import nearest
from crg.methods.registry import list_methods
from crg.results import ledger
from crg.threads import processors
from crg.types import InputError


def parse_variants(texts: Iterable[str], pairs: Iterable[str] = ()) -> list[Variant]:
    """The variants that are asked for, with ``METHOD.key=value`` options applied."""
    variants = [_variant(group) for text in texts for group in _grouped(text)]
    if not variants:
        raise InputError("No method is named: give --methods a list such as zero_shot,crg.")
    for target, key, value in map(_split_pair, pairs):
        variants = _with_option(variants, target, key, value)
    return variants


def _grouped(text: str) -> list[list[str]]:
    """Parts of the list, each with the option parts that belong to it."""
    groups: list[list[str]] = []
    for part in (piece.strip() for piece in text.split(",")):
        value = part.partition("=")[2]
        continues = bool(value) and ":" not in part and value not in list_methods()
        if continues and groups and ":" in groups[-1][0]:
            groups[-1].append(part)
        elif part:
            groups.append([part])
    return groups


def _variant(group: list[str]) -> Variant:
    """``label=method:key=value`` with any of label and options left out."""
    head, _, first_option = group[0].partition(":")
    label, equals, method = head.partition("=")
    if not equals:
        method, label = head, ",".join(group).rstrip(":")
    if not (label and method):
        raise InputError(f"{','.join(group)!r} names no method: write label=method:key=value.")
    options = parse_options([part for part in (first_option, *group[1:]) if part])
    return Variant(label, method, options)


def _split_pair(pair: str) -> tuple[str, str, str]:
    [(name, value)] = parse_options([pair]).items()
    target, dot, key = name.rpartition(".")
    if not (dot and target and key):
        raise InputError(
            f"{pair!r} does not say which method it is for: write METHOD.key=value, "
            f"for example crg.{name}={value}."
        )
    return target, key, value


def _with_option(variants: list[Variant], target: str, key: str, value: str) -> list[Variant]:
    """Set an option of the variant labelled ``target``, or of all variants of that method.

    What a variant sets for itself stays: it is the more particular wish.
    """
    chosen = [v for v in variants if v.label == target] or [
        v for v in variants if v.method == target
    ]
    if not chosen:
        known = {name for v in variants for name in (v.label, v.method)}
        raise InputError(
            f"-o {target}.{key} is for {target!r}, which is not compared: {nearest(target, known)}"
        )
    return [
        Variant(v.label, v.method, {key: value, **v.options} if v in chosen else v.options)
        for v in variants
    ]


DEFAULT_METHODS = "zero_shot,tda,dpe,crg"


def comparison_options(command: F) -> F:
    """Options of every command that compares."""
    positive = click.IntRange(min=1)
    for option in (
        click.option("--format", "layout", type=click.Choice(["table", "markdown"]),
                     default="table", show_default=True, help="How to print the table."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON; shares are fractions."),
        click.option("--workers", type=positive, default=processors,
                     help="Processes to run in.  [default: one per processor]"),
        click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0),
                     help="Seed of the first order; the next ones count up."),
        click.option("--orders", default=5, show_default=True, type=positive,
                     help="How many stream orders to average over."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--methods", "texts", multiple=True, default=[DEFAULT_METHODS], show_default=True,
              metavar="LIST", help="Methods or variants of them; may be repeated.")  # fmt: skip
@click.option("-o", "pairs", multiple=True, metavar="METHOD.KEY=VALUE",
              help="Set an option of one method.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Reuse the runs that the results file holds.")
@few_option
@comparison_options
@results_options
@plugin_option
def compare(
    files: tuple[str, ...],
    few: str | None,
    texts: tuple[str, ...],
    pairs: tuple[str, ...],
    resume: bool,
    orders: int,
    seed: int,
    workers: int,
    as_json: bool,
    layout: str,
    results_path: Path,
    no_results: bool,
) -> None:
    """Compare methods on feature files: mean and spread over stream orders.

    The gain over zero-shot has a 95% interval from a paired bootstrap over orders and
    images. Zero-shot is always among the rows.

    \b
    Example:
      crg compare a.npz b.npz --methods tda,crg -o crg.queue_size=16 --orders 5
      crg compare a.npz --methods crg,bare=crg:negative=false,gaussian=false
    The second one compares CRG with a variant of it that is called "bare".
    """
    if resume and no_results:
        raise InputError("--resume needs a results file: leave out --no-results.")
    variants = with_baseline(parse_variants(texts, pairs))
    grid = plan_grid(files, variants, range(seed, seed + orders), loaded_plugins(), few)
    if len(grid.files) < len(files):
        note("a file that was given twice counts once.")
    if resume:
        tell_of_left_out(results_path)
    finished = run_with_progress(grid, None if no_results else results_path, resume, workers)
    print_summary(summarise(grid, finished), as_json, layout)


def run_with_progress(
    grid: Grid, results_path: Path | None, resume: bool, workers: int
) -> list[Finished]:
    """All runs, with bars on a terminal; Ctrl-C ends the command and says what is kept."""
    done: list[Finished] = []
    names = {id(cell.spec): _name(cell) for cell in grid.cells}
    try:
        with grid_progress(grid.n_runs, lines=False) as shown:

            def tell(spec: RunSpec, n_done: int, total: int) -> None:
                shown.advanced(names[id(spec)], n_done, total)

            for finished in iter_grid(grid, results_path, resume, workers, tell):
                shown.finished(_name(finished.cells[0]))
                done.append(finished)
    except KeyboardInterrupt:
        click.echo(_farewell(grid, len(done), results_path), err=True)
        click.get_current_context().exit(INTERRUPTED)
    return done


def print_summary(summary: Mapping[str, Any], as_json: bool, layout: str) -> None:
    """The comparison in the form that was asked for."""
    if as_json:
        print_json(summary)
    elif layout == "markdown":
        click.echo(markdown_tables(summary))
    else:
        console = output()
        for table in rich_tables(summary, console.width):
            console.print(table)


def _name(cell: Cell) -> str:
    return f"{cell.label}, {cell.file.path}, order {cell.spec.seed}"


def _farewell(grid: Grid, n_done: int, results_path: Path | None) -> str:
    if results_path is None:
        return f"Stopped after {n_done} of {grid.n_runs} runs, of which none is kept."
    # Counted on the disk: a run may have been written in the moment of the interruption.
    records = ledger.read_ledger(results_path).records
    n_kept = len(ledger.find(records, [cell.key for cell in grid.cells]))
    return (
        f"Stopped: {n_kept} of {grid.n_runs} runs are kept in {results_path}, "
        "and the same command with --resume continues from there."
    )
