"""``crg bench``: an experiment from its file, on whatever data is there; or one run again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from crg.bench import sources as data_sources
from crg.bench.design import Design, read_as_asked
from crg.bench.plan import count_runs, narrowed, plan
from crg.bench.run import EngineOptions, add_galleries
from crg.cli import shared
from crg.cli.compare import end_with, print_experiments, run_missing
from crg.cli.progress import Display
from crg.report.experiment import experiments_of
from crg.results.schema import ENOUGH_ORDERS, Source
from crg.threads import processors
from crg.types import InputError

_SHOWN_MISSING = 2  # datasets that are not there: on most machines that is nearly all of them
DIFFERENT = 1  # exit code of a repetition
_WIDEST = 60  # characters of a value


_OPTIONS = shared.options(
    click.option("--data", multiple=True, metavar="PATH", type=click.Path(path_type=Path),
                 envvar="CRG_DATA", help="Feature file, store, or folder of them; may be repeated."
                      "  [default: the variable CRG_DATA]"),
    click.option("--only", metavar="TEXT",
                 help="Only datasets whose name contains this, ignoring case."),
    click.option("--folder", default=data_sources.FOLDER, show_default=True, type=shared.FOLDER,
                 help="Where rendered shapes are encoded."),
    click.option("--methods", "texts", multiple=True, metavar="LIST",
                 help="Only these methods, as in crg compare; one that the file does not "
                      "name, such as a plug-in, is added.  [default: all of the file]"),
    click.option("--orders", type=shared.POSITIVE,
                 help="How many stream orders.  [default: as the file says]"),
    shared.options_of(EngineOptions),
    shared.address_option,
    click.option("--results", "results_path", metavar="FILE", type=shared.FILE,
                 help="Results file.  [default: results/NAME.jsonl]"),
    click.option("--rerun", metavar="FILE:LINE",
                 help="Repeat one run of a results file instead, by its line."),
    shared.plugin_option,
)  # fmt: skip


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--quick", is_flag=True, help="The reduced form: minutes rather than hours.")
@click.option("--list", "list_only", is_flag=True, help="Print what would be run, and stop.")
@_OPTIONS
def bench(
    file: Path | None, quick: bool, list_only: bool, data: tuple[Path, ...], only: str | None,
    folder: Path, rerun: str | None, results_path: Path | None, **given: Any,
) -> None:  # fmt: skip
    """Run the experiment in a TOML file on the data that is available.

    Rendered shapes are always available; missing datasets are listed. Each run is saved as
    soon as it is done: after Ctrl-C the same command does only what is missing. The exit code
    is 1 if a run failed, and the same command tries it again.

    --rerun repeats one run instead and compares all that was measured, except times and memory.
    The exit code is 0 if everything is the same to the last bit, and 1 if not. The data must be
    the same; rendered shapes that are gone are rendered again.

    \b
    Example:
      crg bench experiments/ablation.toml --quick
      crg bench experiments/robustness.toml --data stores/ --workers 8
      crg bench experiments/streams.toml --list
      crg bench experiments/noise.toml --methods mine --plugin mine.py
      crg bench --rerun docs/results/results.jsonl.gz:263 --data features/
    """
    if rerun is not None:
        _rerun(rerun, data, folder)
        return
    if file is None:
        raise InputError("No experiment is named: give its TOML file, or --rerun FILE:LINE.")
    design, chosen = read_as_asked(file, quick, given["orders"], given["texts"])
    if design.orders < ENOUGH_ORDERS:
        shared.note(f"with fewer than {ENOUGH_ORDERS} orders no difference is called significant.")
    engine = EngineOptions(given["engine"], given["workers"], given["address"])
    sources = data_sources.find_asked(design, data, folder, only, shared.note)
    if list_only:
        rows = [row for row in design.rows if row.label in chosen]
        _print_list(replace(design, rows=tuple(rows)), sources)
        return
    name = f"{design.name}{'-quick' if design.quick is None else ''}"
    path = results_path or Path("results", f"{name}.jsonl")
    known = shared.open_results(path)
    own, workers = shared.loaded_plugins(), engine.workers or processors()
    with Display("datasets", len(sources)) as shown:
        whole = plan(design, sources, folder, own, workers, shown.encoding)
    for before, now in zip(sources, whole.outline.sources, strict=True):
        if now.missing != before.missing:
            shared.note(f"{now.missing}")
    planned = narrowed(whole, chosen, known.runs)
    failed = run_missing(planned, known, engine, lines=True)
    if design.gallery:
        add_galleries(planned.outline, known)
    _print_results(experiments_of(known.refresh(), design.name), path)
    end_with(failed)


def _print_list(design: Design, sources: Sequence[Source]) -> None:
    click.echo(f"{design.name}: {design.title}")
    for each in sources:
        where = each.missing or ", ".join(each.paths)
        rendered = " (rendered)" if each.is_rendered else ""
        few = f", labelled images {each.few}" if each.few else ""
        click.echo(f"  dataset {each.name}{rendered}: {where}{few}")
    for row in design.rows:
        tuned = ", tuned on labels" if row.is_tuned else ""
        click.echo(f"  row     {row.label} ({row.method}{tuned})")
    for setting in design.settings:
        click.echo(f"  setting {setting.label}")
    click.echo(f"  orders  {design.orders}")
    click.echo(f"At most {count_runs(design, sources)} runs.")


def _print_results(experiments: Sequence[Any], path: Path) -> None:
    print_experiments(experiments)
    missing = [source for experiment in experiments for source in experiment.missing]
    for source in missing[:_SHOWN_MISSING]:
        click.secho(f"{source.name}: {source.missing}", dim=True)
    if (more := len(missing) - _SHOWN_MISSING) > 0:
        click.secho(f"{more} more are not there either; --list names them all.", dim=True)
    click.echo(f"The runs are in {path}; crg report {path} --out report.html draws them.", err=True)


def _rerun(line: str, data: Sequence[Path], folder: Path) -> None:
    """Repeat a run, print how it compares, and exit with 1 if anything differs."""
    from crg.bench.rerun import rerun

    own = shared.loaded_plugins()
    with Display("datasets", None) as shown:
        found = rerun(line, data, folder, own, shared.note, shown.encoding)
    run, same, differences = found
    click.echo(f"{line}: {run.method}, seed {run.seed}, {run.data.path}")
    total = len(same) + len(differences)
    click.echo(f"The same to the last bit: {len(same)} of {total} values.")
    for name, (before, now) in differences.items():
        numbers = isinstance(before, int | float) and isinstance(now, int | float)
        far = f" ({now - before:+.2g})" if numbers else ""
        click.echo(f"Not the same: {name} was {_brief(before)} and is {_brief(now)}{far}.")
    if not differences:
        click.echo("Everything was measured again as it was.")
    click.get_current_context().exit(DIFFERENT if differences else 0)


def _brief(value: Any) -> str:
    return repr(value) if len(repr(value)) <= _WIDEST else f"{value!r:.{_WIDEST}}..."
