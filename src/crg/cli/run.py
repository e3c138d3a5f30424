"""``crg run``: one method over one file."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click
import msgspec
from rich.console import Group
from rich.text import Text

from crg import state_file
from crg.atomic import locked
from crg.bench.sources import origin_of
from crg.cli.shared import (
    few_option,
    loaded_plugins,
    output,
    parse_options,
    plugin_option,
    print_json,
    progress,
    results_options,
)
from crg.engine import read_once, read_with_few
from crg.evaluate import run as evaluate_run
from crg.methods.registry import DEFAULT, typed_options
from crg.report.tables import Column, Table, to_terminal
from crg.results import ledger
from crg.results.provenance import make_run
from crg.types import InputError, Result

_ROWS = (
    ("accuracy %", "accuracy", 100),
    ("worst class %", "worst_class_accuracy", 100),
    ("ECE %", "ece", 100),
    ("NLL", "nll", 1),
    ("purity %", "purity", 100),
    ("ms per step, mean", "ms_per_step", 1),
    ("ms per step, median", "ms_per_step_median", 1),
)


@click.command()
@click.argument("file")
@click.option("--method", default=DEFAULT, show_default=True, help="Name of the method.")
@click.option("-o", "pairs", multiple=True, metavar="KEY=VALUE", help="Set a method's option.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Order.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--save-state", type=click.Path(path_type=Path), help="Keep what was learnt here.")
@few_option
@results_options
@plugin_option
def run(
    file: str,
    method: str,
    few: str | None,
    pairs: tuple[str, ...],
    seed: int,
    as_json: bool,
    save_state: Path | None,
    results_path: Path,
    no_results: bool,
) -> None:
    """Run one method over a feature file, beside zero-shot on the same stream.

    \b
    Example:
      crg run features.npz --method crg -o queue_size=12 --seed 0
    """
    options = typed_options(method, parse_options(pairs))
    features = read_with_few(file, few)
    _check_before_running(save_state, None if no_results else results_path)
    keep = contextlib.nullcontext() if save_state is None else locked(save_state)
    with keep, progress("images", len(features)) as advance:
        result = evaluate_run(
            features, method, options, seed, save_state=save_state, on_step=lambda step: advance()
        )
    labelled = None if few is None else (few, read_once(few).sha256)
    origin = origin_of(file, features.sha256, method, loaded_plugins(), labelled)
    line = make_run(result, origin, options)
    if not no_results:
        ledger.append(results_path, line)
    if as_json:
        print_json(msgspec.to_builtins(line))
    else:
        output().print(_table(file, result))


def _check_before_running(save_state: Path | None, results_path: Path | None) -> None:
    if save_state is not None and save_state.is_file():
        fault = "already" if state_file.is_state(save_state) else "and is not a saved state"
        raise InputError(f"{save_state} exists {fault}: choose another name with --save-state.")
    if results_path is not None:
        ledger.check_writable(results_path, or_none=True)


def _table(path: str, result: Result) -> Group:
    """One run beside zero-shot."""
    has_baseline = result.method != "zero_shot"
    rows = []
    for name, key, factor in _ROWS:
        values = [result.metrics.get(key), result.zero_shot.get(key)]
        if values != [None, None]:
            digits = 3 if factor == 1 else 2
            shown = [None if each is None else f"{factor * each:.{digits}f}" for each in values]
            rows.append((name, *(shown if has_baseline else shown[:1])))
    heads = [result.method, "zero_shot"] if has_baseline else [result.method]
    columns = (Column("", is_text=True), *map(Column, heads))
    images = "1 image" if result.n_samples == 1 else f"{result.n_samples} images"
    title = f"{path}: {images}, seed {result.seed}"
    return Group(Text(title), to_terminal(Table(columns, tuple(rows))))
