"""``crg compare``: methods over feature files in several stream orders."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import Group
from rich.text import Text

from crg.bench.design import parse_methods
from crg.bench.plan import Plan, plan_files
from crg.bench.run import EngineOptions, append_new, run_specs
from crg.bench.sources import discover
from crg.cli import shared
from crg.cli.progress import Display
from crg.methods.registry import DEFAULT
from crg.report.experiment import Experiment, experiments_of
from crg.report.layout import short_tables, summary
from crg.report.tables import to_terminal
from crg.results import ledger
from crg.results.ledger import Ledger
from crg.results.schema import ENOUGH_ORDERS

FAILED = 1  # exit code where a run failed
DEFAULT_METHODS = f"zero_shot,tda,dpe,crg,{DEFAULT}"


orders_option = click.option("--orders", default=ENOUGH_ORDERS, show_default=True,
                             type=shared.POSITIVE,
                             help="How many stream orders to average over.")  # fmt: skip


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...",
                type=click.Path(path_type=Path))  # fmt: skip
@click.option("--methods", "texts", multiple=True, default=[DEFAULT_METHODS], show_default=True,
              metavar="LIST", help="Methods or variants of them; may be repeated.")  # fmt: skip
@shared.few_option
@orders_option
@shared.options_of(EngineOptions, "workers")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with fractions.")
@click.option("--results", "results_path", default=ledger.DEFAULT_PATH, show_default=True,
              type=shared.FILE, help="File that gets a line of JSON for each run.")  # fmt: skip
@shared.plugin_option
def compare(
    files: tuple[Path, ...], few: str | None, texts: tuple[str, ...], orders: int,
    workers: int | None, as_json: bool, results_path: Path,
) -> None:  # fmt: skip
    """Compare methods on feature files: mean and spread over stream orders.

    FILE is a feature file, a store, or a folder of them. The gain over zero-shot has a 95%
    interval from a paired bootstrap over orders and images. Zero-shot is always among the methods.
    Runs that the results file holds are not run again, so after Ctrl-C the same command continues.
    crg report draws the results file.

    \b
    Example:
      crg compare a.npz --methods crg:queue_size=16
      crg compare a.npz features/ --methods tda,crg --orders 20
      crg compare a.npz --methods crg,bare=crg:negative=false,gaussian=false
    The last one compares CRG with a variant of it that is called "bare".
    """
    found = discover(files, lambda path, why: shared.note(why))
    planned = plan_files(found, parse_methods(texts), orders, few, shared.loaded_plugins())
    known = shared.open_results(results_path)
    failed = run_missing(planned, known, EngineOptions(workers=workers))
    print_experiments(experiments_of(known.refresh(), planned.outline.name), as_json)
    end_with(failed)


def run_missing(
    planned: Plan, known: Ledger, options: EngineOptions, lines: bool = False, is_kept: bool = True
) -> int:
    """Run what the results file does not hold, with a progress display, and count what failed.

    Ctrl-C ends the command and says what is kept. In a pipe, ``lines`` report the progress.
    """
    append_new(known, planned.outline)
    done = known.runs
    left = [spec for spec in planned.specs if spec.key not in done]  # failed ones are tried again
    try:
        with Display("runs", len(left), lines) as shown:
            runs = run_specs(
                left, known, options, lambda spec, *count: shown.running(spec.name, *count)
            )
            with contextlib.closing(runs):
                for spec, failure in runs:
                    shown.finished(spec.name, failure)
    except KeyboardInterrupt:
        if not is_kept:
            raise
        done = known.refresh().runs  # a run may have been written at the moment of Ctrl-C
        kept = f"{sum(spec.key in done for spec in planned.specs)} of {len(planned.specs)} runs"
        where = f"are kept in {known.path}, and the same command continues from there"
        click.echo(f"Stopped: {kept} {where}.", err=True)
        click.get_current_context().exit(shared.INTERRUPTED)
    return shown.failed


def end_with(failed: int) -> None:
    """Say how many runs failed, and exit with 1 if any did."""
    if failed:
        runs, again = ("1 run", "it") if failed == 1 else (f"{failed} runs", "them")
        click.echo(f"{runs} failed: the same command tries {again} again.", err=True)
        click.get_current_context().exit(FAILED)


def print_experiments(experiments: Iterable[Experiment], as_json: bool = False) -> None:
    """The tables of experiments, or their figures as JSON."""
    console = shared.output()
    for experiment in experiments:
        if as_json:
            shared.print_json(summary(experiment))
            continue
        for table in short_tables(experiment):
            console.print(Group(Text(table.title), to_terminal(table, console.width)))
