"""``crg compare``: several methods over several files in several stream orders.

A list of methods is separated by commas. ``label=crg:negative=false,gaussian=false`` is CRG
with options under a label of its own: a part ``key=value`` belongs to the variant before it,
unless the value is the name of a method. No character is special to a shell.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from crg.bench.design import DataDesign, Design, RowDesign, completed
from crg.bench.plan import Plan, plan
from crg.bench.run import EngineOptions, begin, no_longer_shown
from crg.bench.sources import Prospect
from crg.cli.progress import end_with, run_missing
from crg.cli.report import print_experiment
from crg.cli.shared import (
    F,
    few_option,
    loaded_plugins,
    note,
    parse_options,
    plugin_option,
    read_results,
    results_options,
)
from crg.methods.registry import list_methods
from crg.report.experiment import experiments_of
from crg.results import ledger
from crg.suggest import nearest
from crg.threads import processors
from crg.types import InputError


def parse_methods(texts: Iterable[str], pairs: Iterable[str] = ()) -> list[RowDesign]:
    """The methods that are asked for, as rows, with ``METHOD.key=value`` options applied."""
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


def _variant(group: list[str]) -> RowDesign:
    """``label=method:key=value`` with any of label and options left out."""
    head, _, first_option = group[0].partition(":")
    label, equals, method = head.partition("=")
    if not equals:
        method, label = head, ",".join(group).rstrip(":")
    if not (label and method):
        raise InputError(f"{','.join(group)!r} names no method: write label=method:key=value.")
    options = parse_options([part for part in (first_option, *group[1:]) if part])
    return RowDesign(method, label, options)


def _split_pair(pair: str) -> tuple[str, str, str]:
    [(name, value)] = parse_options([pair]).items()
    target, dot, key = name.rpartition(".")
    if not (dot and target and key):
        raise InputError(
            f"{pair!r} does not say which method it is for: write METHOD.key=value, "
            f"for example crg.{name}={value}."
        )
    return target, key, value


def _with_option(variants: list[RowDesign], target: str, key: str, value: str) -> list[RowDesign]:
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
        RowDesign(v.method, v.label, {key: value, **v.options} if v in chosen else v.options)
        for v in variants
    ]


DEFAULT_METHODS = "zero_shot,tda,dpe,crg,anchored"


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
@few_option
@comparison_options
@results_options
@plugin_option
def compare(
    files: tuple[str, ...],
    few: str | None,
    texts: tuple[str, ...],
    pairs: tuple[str, ...],
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
    images. Zero-shot is always among the methods. Runs that the results file holds are not run
    again, so after Ctrl-C the same command continues. crg report draws the results file.

    \b
    Example:
      crg compare a.npz b.npz --methods tda,crg -o crg.queue_size=16 --orders 5
      crg compare a.npz --methods crg,bare=crg:negative=false,gaussian=false
    The second one compares CRG with a variant of it that is called "bare".
    """
    named = _expanded(files)
    paths = _distinct(named)
    if len(paths) < len(named):
        note("a file that was given twice counts once.")
    design = _design(paths, parse_methods(texts, pairs), orders)
    prospects = [
        Prospect(path, Path(path).stem, (Path(path),), None if few is None else Path(few))
        for path in paths
    ]
    planned = plan(design, prospects, Path(), loaded_plugins(), first_seed=seed)
    for cell in planned.outline.cells:
        if cell.reason is not None:
            raise InputError(cell.reason)
    with _results(None if no_results else results_path) as path:
        for sentence in no_longer_shown(planned, path, ledger.read(path)):
            note(sentence)
        failed = run_plan(planned, path, workers, is_kept=not no_results)
        [experiment] = experiments_of(ledger.read(path), planned.outline.name)
        print_experiment(experiment, "json" if as_json else layout)
    end_with(failed)


def _design(paths: Sequence[str], rows: Sequence[RowDesign], orders: int) -> Design:
    """The comparison as the design of an experiment; it is named after its files."""
    names = ", ".join(dict.fromkeys(Path(path).stem for path in paths))
    places = "\n".join(str(Path(path).resolve()) for path in paths)
    return completed(
        Design(
            name=f"compare-{hashlib.sha256(places.encode()).hexdigest()[:8]}",
            title=f"Comparison on {names}",
            rows=tuple(rows),
            data=(DataDesign(files=True),),
            orders=orders,
        )
    )


def _expanded(files: Sequence[str]) -> list[str]:
    """The files, with globs that the shell left alone in place of what they match."""
    found: list[str] = []
    for file in files:
        matches = [file]
        if glob.has_magic(file) and not Path(file).exists():
            matches = sorted(glob.glob(file, recursive=True))
        if not matches:
            raise InputError(f"Nothing matches {file}: check the pattern and the folder.")
        found += matches
    return found


def _distinct(paths: Sequence[str]) -> list[str]:
    """The paths without those that lead to a file already named."""
    first = {Path(path).resolve(): path for path in reversed(paths)}
    return list(dict.fromkeys(first[Path(path).resolve()] for path in paths))


@contextlib.contextmanager
def _results(path: Path | None) -> Iterator[Path]:
    """The results file, or one that is gone with the command."""
    if path is not None:
        ledger.check_writable(path, or_none=True)
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder, "results.jsonl")


def run_plan(planned: Plan, path: Path, workers: int, is_kept: bool) -> int:
    """Run a plan into a results file, silently in a pipe; how many runs failed."""
    known = read_results(path)
    begin(planned, path, known)
    machinery = EngineOptions(workers=workers)
    return run_missing(planned, path, known, machinery, lines=False, is_kept=is_kept)
