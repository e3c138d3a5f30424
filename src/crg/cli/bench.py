"""``crg bench``: an experiment from its file, on whatever data is there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from crg.bench.design import Design, read_design, with_methods
from crg.bench.plan import Plan, count_runs, narrowed, plan
from crg.bench.rendered import FOLDER
from crg.bench.run import EngineOptions, append_new, begin, no_longer_shown
from crg.bench.sources import (
    VARIABLE,
    Prospect,
    discover,
    find_prospects,
    named_paths,
    unknown_datasets,
)
from crg.cli.progress import EncodingBar, end_with, run_missing
from crg.cli.report import print_experiment
from crg.cli.shared import F, loaded_plugins, note, plugin_option, read_results
from crg.report.experiment import experiments_of
from crg.results import ledger
from crg.results.ledger import Ledger
from crg.results.schema import ENOUGH_ORDERS
from crg.threads import processors
from crg.types import InputError

_SHOWN_MISSING = 2  # datasets that are not there: on most machines that is nearly all of them


def _data_options(command: F) -> F:
    folder = click.Path(path_type=Path, file_okay=False)
    for option in reversed((
        click.option("--data", multiple=True, metavar="PATH", type=click.Path(path_type=Path),
                     help="Feature file, store, or folder of them; may be repeated.  "
                          f"[default: the variable {VARIABLE}]"),
        click.option("--only", metavar="TEXT",
                     help="Only sources whose name contains this, in capitals or not."),
        click.option("--folder", default=FOLDER, show_default=True, type=folder,
                     help="Where rendered shapes are encoded."),
        click.option("--root", type=folder,
                     help="Folder that holds the datasets of the catalogue, for the gallery."),
    )):  # fmt: skip
        command = option(command)
    return command


def _running_options(command: F) -> F:
    positive = click.IntRange(min=1)
    for option in reversed((
        click.option("--methods", "texts", multiple=True, metavar="LIST",
                     help="Only these methods, as in crg compare; one that the file does not "
                          "name, such as a plug-in, joins it.  [default: all of the file]"),
        click.option("--orders", type=positive,
                     help="How many stream orders.  [default: as the file says]"),
        click.option("--workers", type=positive,
                     help="Processes to run in.  [default: one per processor]"),
        click.option("--engine", default="processes", show_default=True,
                     type=click.Choice(["processes", "ray"]), help="Who does the runs."),
        click.option("--address", help="Ray cluster to use.  [default: one on this machine]"),
        click.option("--results", "results_path", metavar="FILE",
                     type=click.Path(path_type=Path, dir_okay=False),
                     help="Where each run is kept.  [default: results/NAME.jsonl]"),
    )):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--quick", is_flag=True, help="The reduced form: minutes rather than hours.")
@click.option("--list", "list_only", is_flag=True, help="Print what would be run, and stop.")
@_data_options
@_running_options
@plugin_option
def bench(
    file: Path,
    quick: bool,
    list_only: bool,
    data: tuple[Path, ...],
    only: str | None,
    folder: Path,
    root: Path | None,
    **given: Any,
) -> None:
    """Run the experiment of a TOML file on whatever data is there.

    Rendered shapes are always there; datasets that are missing are named. Each run is kept as
    soon as it is done: after Ctrl-C the same command does only what is missing. The exit code
    is 1 if a run failed, and the same command tries it again.

    \b
    Example:
      crg bench experiments/ablation.toml --quick
      crg bench experiments/robustness.toml --data stores/ --workers 8
      crg bench experiments/streams.toml --list
      crg bench experiments/noise.toml --methods mine --plugin mine.py
    """
    design, chosen = _design(file, quick, given["orders"], given["texts"])
    machinery = EngineOptions(given["engine"], given["workers"], given["address"])
    prospects = _prospects(design, data, folder, only)
    if list_only:
        rows = [row for row in design.rows if row.label in chosen]
        _print_list(replace(design, rows=tuple(rows)), prospects)
        return
    path = given["results_path"] or _default_results(design)
    ledger.make_folder(path)
    ledger.check_writable(path)
    known = read_results(path)
    planned = narrowed(_planned(design, prospects, folder, machinery), chosen, known.runs)
    for sentence in no_longer_shown(planned, path, known):
        note(sentence)
    begin(planned, path, known)
    failed = run_missing(planned, path, known, machinery)
    if design.gallery:
        _add_gallery(planned, path, root)
    _print(design.name, known)
    end_with(failed)


def _design(
    file: Path, quick: bool, orders: int | None, methods: Sequence[str]
) -> tuple[Design, set[str]]:
    """The design of a file as it was asked for, and the labels of the rows that shall be run."""
    design = read_design(file)
    design = design.reduced() if quick else design
    chosen = {row.label for row in design.rows}
    if methods:
        from crg.cli.compare import parse_methods

        design, chosen = with_methods(design, parse_methods(methods))
    design = replace(design, orders=orders or design.orders)
    if design.orders < ENOUGH_ORDERS:
        note(f"fewer than {ENOUGH_ORDERS} orders say little: no row is called better by them.")
    return design, chosen


def _prospects(
    design: Design, data: Sequence[Path], folder: Path, only: str | None
) -> list[Prospect]:
    """The sources that were asked for, with a note on whatever cannot be used."""

    def leave_out(path: Path, why: str) -> None:
        if _is_asked_for(path.name, only):
            note(why)

    found = discover(named_paths(data), leave_out)
    prospects = find_prospects(design, found, folder)
    for sentence in unknown_datasets(design, [each.dataset for each in prospects]):
        note(sentence)
    if not prospects:
        raise InputError(
            "No data was found: name feature files, stores or folders of them with --data."
        )
    chosen = [each for each in prospects if _is_asked_for(each.name, only)]
    if not chosen:
        names = ", ".join(repr(each.name) for each in prospects)
        raise InputError(f"No source has {only!r} in its name: there is {names}.")
    return chosen


def _is_asked_for(name: str, only: str | None) -> bool:
    return only is None or only.casefold() in name.casefold()


def _default_results(design: Design) -> Path:
    return Path("results", f"{design.name}{'-quick' if design.is_quick else ''}.jsonl")


def _add_gallery(planned: Plan, path: Path, root: Path | None) -> None:
    from crg.bench.gallery import galleries

    known = ledger.read(path)
    for line in galleries(planned, known.runs, root):
        append_new(path, line, known)


def _planned(
    design: Design, prospects: Sequence[Prospect], folder: Path, machinery: EngineOptions
) -> Plan:
    workers = machinery.workers or processors()
    with contextlib.closing(EncodingBar()) as bar:
        planned = plan(design, prospects, folder, loaded_plugins(), workers, bar.tell)
    for before, now in zip(prospects, planned.prospects, strict=True):
        if now.missing != before.missing:
            note(f"{now.missing}")
    return planned


def _print_list(design: Design, prospects: Sequence[Prospect]) -> None:
    click.echo(f"{design.name}: {design.title}")
    for each in prospects:
        where = each.missing or ", ".join(map(str, each.paths))
        rendered = " (rendered)" if each.shapes else ""
        few = f", labelled images {each.few}" if each.few else ""
        click.echo(f"  source  {each.name}{rendered}: {where}{few}")
    for row in design.rows:
        tuned = ", tuned on labels" if row.is_tuned else ""
        click.echo(f"  row     {row.label} ({row.method}{tuned})")
    for setting in design.settings:
        click.echo(f"  setting {setting.label}")
    click.echo(f"  orders  {design.orders}")
    click.echo(f"At most {count_runs(design, prospects)} runs.")


def _print(name: str, known: Ledger) -> None:
    """Print the tables of an experiment, then the datasets that are missing."""
    [experiment] = experiments_of(known.refresh(), name)
    print_experiment(experiment)
    for source in experiment.missing[:_SHOWN_MISSING]:
        click.echo(f"{source.name}: {source.missing}")
    more = len(experiment.missing) - _SHOWN_MISSING
    if more > 0:
        click.echo(f"{more} more are not there either; --list names them all.")
    path = known.path
    click.echo(f"The runs are in {path}; crg report {path} --out report.html draws them.", err=True)
