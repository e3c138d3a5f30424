"""``crg compare``: methods over feature files in several stream orders.

A list of methods is separated by commas. ``label=crg:negative=false,gaussian=false`` is CRG
with options under another label: a part ``key=value`` belongs to the variant before it,
unless the value is the name of a method. No character is special to a shell.
"""

from __future__ import annotations

import contextlib
import glob
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from rich.console import Group
from rich.text import Text

from crg.bench.design import RowDesign
from crg.bench.plan import Plan, plan_files
from crg.bench.run import EngineOptions, begin, missing, run_specs
from crg.cli import shared
from crg.cli.progress import Display
from crg.methods.registry import DEFAULT, list_methods
from crg.report.experiment import Experiment, experiments_of
from crg.report.layout import short_tables, summary
from crg.report.tables import to_terminal
from crg.results import ledger
from crg.results.ledger import Ledger
from crg.suggest import nearest
from crg.types import InputError

FAILED = 1  # exit code where a run failed
DEFAULT_METHODS = f"zero_shot,tda,dpe,crg,{DEFAULT}"


def parse_methods(texts: Iterable[str], pairs: Iterable[str] = ()) -> list[RowDesign]:
    """The methods that are asked for, as rows, with ``METHOD.key=value`` options applied."""
    variants = [_variant(group) for text in texts for group in _grouped(text)]
    if not variants:
        raise InputError("No method is named: give --methods a list such as zero_shot,crg.")
    for pair in pairs:
        [(name, value)] = shared.parse_options([pair]).items()
        variants = _with_option(variants, name, value)
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


def _variant(group: list[str]) -> RowDesign:
    """``label=method:key=value`` with any of label and options left out."""
    head, _, first_option = group[0].partition(":")
    label, equals, method = head.partition("=")
    if not equals:
        method, label = head, ",".join(group).rstrip(":")
    if not (label and method):
        raise InputError(f"{','.join(group)!r} names no method: write label=method:key=value.")
    options = shared.parse_options([part for part in (first_option, *group[1:]) if part])
    return RowDesign(method, label, options)


def _with_option(variants: list[RowDesign], name: str, value: str) -> list[RowDesign]:
    """Set an option of the variant ``LABEL.key``, or of all variants of the method of this name.

    ``key`` alone is for the only variant that is not zero-shot. A variant's own options stay.
    """
    target, _, key = name.rpartition(".")
    others = [each for each in variants if each.method != "zero_shot"]
    if not target and len(others) != 1:
        raise InputError(
            f"'{name}={value}' does not say which method it is for: write METHOD.key=value, "
            f"for example crg.{name}={value}."
        )
    chosen = others if not target else [v for v in variants if v.label == target]
    chosen = chosen or [v for v in variants if v.method == target]
    if not chosen:
        known = {name for v in variants for name in (v.label, v.method)}
        raise InputError(
            f"-o {name} is for {target!r}, which is not compared: {nearest(target, known)}"
        )
    return [
        RowDesign(v.method, v.label, {key: value, **v.options} if v in chosen else v.options)
        for v in variants
    ]


comparison_options = shared.options(
    click.option("--orders", default=5, show_default=True, type=shared.POSITIVE,
                 help="How many stream orders to average over."),
    click.option("--workers", type=shared.POSITIVE,
                 help="Processes to run in.  [default: one per processor]"),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, with fractions."),
)  # fmt: skip


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--methods", "texts", multiple=True, default=[DEFAULT_METHODS], show_default=True,
              metavar="LIST", help="Methods or variants of them; may be repeated.")  # fmt: skip
@click.option("-o", "pairs", multiple=True, metavar="[METHOD.]KEY=VALUE",
              help="Set an option of one method.")  # fmt: skip
@shared.few_option
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0),
              help="Seed of the first order; the next ones count up.")  # fmt: skip
@comparison_options
@click.option("--results", "results_path", default=ledger.DEFAULT_PATH, show_default=True,
              type=shared.FILE, help="File that gets a line of JSON for each run.")  # fmt: skip
@click.option("--no-results", is_flag=True, help="Keep no results file.")
@shared.plugin_option
def compare(
    files: tuple[str, ...], few: str | None, texts: tuple[str, ...], pairs: tuple[str, ...],
    orders: int, seed: int, workers: int | None, as_json: bool, results_path: Path,
    no_results: bool,
) -> None:  # fmt: skip
    """Compare methods on feature files: mean and spread over stream orders.

    The gain over zero-shot has a 95% interval from a paired bootstrap over orders and
    images. Zero-shot is always among the methods. Runs that the results file holds are not run
    again, so after Ctrl-C the same command continues. crg report draws the results file.

    \b
    Example:
      crg compare a.npz --methods crg -o queue_size=16
      crg compare a.npz b.npz --methods tda,crg -o crg.queue_size=16 --orders 5
      crg compare a.npz --methods crg,bare=crg:negative=false,gaussian=false
    The last one compares CRG with a variant of it that is called "bare".
    """
    named = _expanded(files)
    first = {Path(each).resolve(): each for each in reversed(named)}
    paths = [each for each in dict.fromkeys(named) if each in first.values()]
    if len(paths) < len(named):
        shared.note("a file that was given twice counts once.")
    rows = parse_methods(texts, pairs)
    planned = plan_files(paths, rows, orders, seed, few, shared.loaded_plugins())
    if not no_results:
        ledger.check_writable(results_path, or_none=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.jsonl") if no_results else results_path
        known = shared.read_results(path)
        failed = run_missing(planned, known, EngineOptions(workers=workers), is_kept=not no_results)
        print_experiments(experiments_of(known.refresh(), planned.outline.name), as_json)
    end_with(failed)


def _expanded(files: Sequence[str]) -> list[str]:
    """The files, with globs that the shell left alone replaced by their matches."""
    found: list[str] = []
    for file in files:
        matches = [file]
        if glob.has_magic(file) and not Path(file).exists():
            matches = sorted(glob.glob(file, recursive=True))
        if not matches:
            raise InputError(f"Nothing matches {file}: check the pattern and the folder.")
        found += matches
    return found


def run_missing(
    planned: Plan,
    known: Ledger,
    options: EngineOptions,
    lines: bool = False,
    is_kept: bool = True,
) -> int:
    """Run what the results file does not hold, with a progress display, and count what failed.

    Ctrl-C ends the command and says what is kept. In a pipe, ``lines`` report the progress.
    """
    begin(planned, known)
    left = missing(planned, known)
    try:
        with Display("runs", len(left), lines) as shown:
            runs = run_specs(
                left, known, options, lambda spec, *count: shown.running(spec.name, *count)
            )
            with contextlib.closing(runs):
                for spec, failure in runs:
                    shown.finished(spec.name, failure)
    except KeyboardInterrupt:
        done = known.refresh().runs  # a run may have been written at the moment of Ctrl-C
        kept = f"{sum(spec.key in done for spec in planned.specs)} of {len(planned.specs)} runs"
        where = f"are kept in {known.path}, and the same command continues from there"
        click.echo(f"Stopped: {kept} {where if is_kept else 'were done, none is kept'}.", err=True)
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
