"""The tables of experiments: the main table, the win/tie/loss grid, and one per dataset."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from crg.report.contrasts import tally
from crg.report.experiment import Comparison, Experiment, MethodResult, is_best
from crg.report.tables import (
    METHOD,
    Column,
    Table,
    gain_text,
    lines_text,
    mean_percent,
    percent,
    rival_text,
    spread_text,
)
from crg.results.schema import Source, Variant
from crg.streams import SHUFFLED
from crg.types import counted


def row_name(row: Variant) -> str:
    """The label, flagged if labels were used or if it answers at the end of the stream."""
    flags = ["tuned with labels" if row.tuned else "uses labels"] * row.uses_labels
    flags += ["offline"] * row.offline  # it sees all images before it answers
    return f"{row.label} ({', '.join(flags)})" if flags else row.label


def source_name(source: Source) -> str:
    """The name of a dataset, flagged where its text features are not the model's own."""
    return f"{source.name} ({source.text_flag})" if source.text_flag else source.name


def sources_name(comparisons: Sequence[Comparison]) -> str:
    """The name of a dataset and of the further sets of class names it was measured with."""
    first = comparisons[0].source
    names = dict.fromkeys(source_name(each.source) for each in comparisons)
    return "; ".join(name.removeprefix(f"{first.name}, ") for name in names)


_FIGURES = {  # attributes of a MethodResult
    "accuracy": Column("accuracy %", spread_text),
    "gain": Column("gain over zero-shot", gain_text),
    "rival": Column("to best other", rival_text),
    "step": Column("to the variant it extends", rival_text),
    "ece": Column("ECE %", mean_percent, is_optional=True),
    "nll": Column("NLL", lambda each: f"{each.mean:.3f}", is_optional=True),
    "worst_class_accuracy": Column("worst class %", mean_percent),
    "purity": Column("cache purity %", mean_percent, is_optional=True),
    "peak_bytes": Column("peak MB", lambda each: f"{each / 1e6:.0f}"),
    "reported": Column("in papers %", lambda each: f"{each.value:.2f}{'*' * bool(each.notes)}"),
    "lines": Column("lines", lines_text),
    "remark": Column("remarks", is_text=True),
}
_SHORT = ("accuracy", "gain", "ece", "nll", "purity", "remark")


def _table(results: Sequence[MethodResult], names: Sequence[str], title: str) -> Table:
    """A row per method, with the figures of these names as far as there are any."""
    columns = (METHOD, *(_FIGURES[name] for name in names))
    rows = [(row_name(each.row), *(getattr(each, name) for name in names)) for each in results]
    best = frozenset((n, 1) for n, each in enumerate(results) if each.best)
    return Table(columns, tuple(rows), title, best).without_empty_columns()


def comparison_table(comparison: Comparison, figure: str = "table", has_file: bool = True) -> Table:
    """All figures of all methods on one dataset in one setting."""
    unused = ["remark", "rival" if figure == "waterfall" else "step", *["lines"] * (not has_file)]
    shown = [each for each in comparison.results if each.accuracy]
    title = f"{source_name(comparison.source)}: {comparison.n_scored} images scored"
    numbers = [each.reported for each in shown if each.reported]
    sources = dict.fromkeys(f"In papers: {number.source}." for number in numbers)
    odd = dict.fromkeys(f"* {note}" for number in numbers for note in number.notes)
    table = _table(shown, [name for name in _FIGURES if name not in unused], title)
    return replace(table, notes=(*sources, *odd))


def short_table(comparison: Comparison) -> Table:
    """The main figures of every method, and why some were not run: for a terminal."""
    return _table(comparison.results, _SHORT, source_name(comparison.source))


def short_tables(experiment: Experiment) -> list[Table]:
    """A short table per dataset and setting; the title counts images, classes and orders."""
    several = len(experiment.outline.settings) > 1
    orders, tables = counted(len(experiment.outline.seeds), "order"), []
    for each in experiment.comparisons:
        table, source = short_table(each), each.source
        setting = f", {each.setting.label}" if several else ""
        facts = f"{counted(source.n_samples, 'image')}, {source.n_classes} classes, {orders}"
        tables.append(replace(table, title=f"{table.title}{setting}: {facts}"))
    return tables


def summary(experiment: Experiment) -> dict[str, Any]:
    """The figures of an experiment with one setting as JSON values, by dataset and method."""
    names = ("path", "sha256", "n_samples", "n_classes", "n_views")
    found = experiment.comparisons
    return {
        "files": {c.source.name: {r.row.label: _figures(r) for r in c.results} for c in found},
        "seeds": list(experiment.outline.seeds),
        "data": {c.source.name: {each: getattr(c.source, each) for each in names} for c in found},
    }


def _figures(result: MethodResult) -> dict[str, Any]:
    gain, spreads = result.gain, ("ece", "nll", "purity", "worst_class_accuracy")
    means = {name: getattr(result, name) for name in spreads}
    return {
        "method": result.row.method,
        "options": dict(result.row.options),
        "accuracy": result.accuracy and asdict(result.accuracy),
        **{name: spread and spread.mean for name, spread in means.items()},
        "gain": gain and {**asdict(gain.interval), "verdict": gain.verdict},
        "best": result.best,
    }


def settings_table(comparisons: Sequence[Comparison]) -> Table:
    """One dataset: methods by settings, gain over zero-shot; zero-shot has its accuracy."""
    labels = [each.row.label for each in comparisons[0].results]
    found = [[comparison.of(label) for comparison in comparisons] for label in labels]
    rows: list[tuple[Any, ...]] = []
    best: set[tuple[int, int]] = set()
    for results in found:
        known = [each for each in results if each.accuracy is not None]
        if not known:
            continue
        best |= {(len(rows), n) for n, each in enumerate(results, start=1) if each.best}
        lines = tuple(line for each in known for line in each.lines)
        rows.append((row_name(known[0].row), *results, lines))
    columns = (
        METHOD,
        *(Column(each.setting.label, _accuracy_and_gain) for each in comparisons),
        _FIGURES["lines"],
    )
    return Table(columns, tuple(rows), sources_name(comparisons), frozenset(best))


def _accuracy_and_gain(result: MethodResult) -> str:
    mean = result.status if result.accuracy is None else percent(result.accuracy.mean)
    return mean if result.gain is None else f"{mean}; {gain_text(result.gain)}"


def first_table(comparison: Comparison) -> Table | None:
    """Gain over zero-shot on the first images of the stream."""
    shown = [each for each in comparison.results if each.first_gain]
    sizes = sorted({n for each in shown for n in each.first_gain})
    columns = (METHOD, *(Column(f"first {n}", gain_text) for n in sizes))
    rows = tuple((row_name(each.row), *(each.first_gain.get(n) for n in sizes)) for each in shown)
    return Table(columns, rows, f"{source_name(comparison.source)}: cold start") if rows else None


def mean_table(experiment: Experiment) -> Table | None:
    """Accuracy, mean over the datasets: methods by settings; None for a single dataset."""
    groups = experiment.by_source().values()
    labels = [each.label for each in experiment.outline.settings]
    rows = []
    for row in experiment.outline.rows:
        found: dict[str, list[float]] = {label: [] for label in labels}
        for each in (comparison for group in groups for comparison in group):
            if accuracy := each.of(row.label).accuracy:
                found[each.setting.label].append(accuracy.mean)
        if all(len(values) == len(groups) for values in found.values()):
            rows.append((row_name(row), *(sum(v) / len(v) for v in found.values())))
    title = f"Accuracy in %, mean over {len(groups)} datasets"
    columns = (METHOD, *(Column(label, percent) for label in labels))
    return Table(columns, tuple(rows), title) if rows and len(groups) > 1 else None


def tables_of(experiment: Experiment) -> list[Table]:
    """The tables of an experiment: one or two per dataset, methods by settings if several."""
    figure = experiment.outline.figure
    tables: list[Table] = []
    if figure == "noise":
        tables += filter(None, [mean_table(experiment)])
    for comparisons in experiment.by_source().values():
        if len(comparisons) > 1:
            tables.append(settings_table(comparisons))
        else:
            tables.append(comparison_table(comparisons[0], figure, bool(experiment.path)))
        if figure == "cold_start":
            tables += filter(None, map(first_table, comparisons))
    return tables


def _usual(experiments: Iterable[Experiment]) -> dict[str, Comparison]:
    """The plain comparison of each dataset: the one with the most methods in default options."""
    found: dict[str, Comparison] = {}
    for experiment in experiments:
        for each in experiment.comparisons:
            mine = found.get(each.source.name)
            scenario = each.setting.scenario
            is_usual = scenario.order == SHUFFLED and not scenario.mislabelled
            if is_usual and not each.source.then:
                if mine is None or len(_plain(each)) > len(_plain(mine)):
                    found[each.source.name] = each
    return found


def _plain(comparison: Comparison) -> dict[str, MethodResult]:
    """Measured methods in their default options, by name; those with a second pass by label."""
    return {
        each.row.label if each.row.offline else each.row.method: each
        for each in comparison.results
        if each.accuracy is not None and not each.row.options and not each.row.tuned
    }


def main_tables(experiments: Sequence[Experiment]) -> list[Table]:
    """Gain over zero-shot, methods by datasets: feature files, then rendered shapes."""
    usual = _usual(experiments)
    tables = []
    for title, is_rendered in (("Feature files", False), ("Rendered shapes", True)):
        if mine := [each for each in usual.values() if each.source.is_rendered == is_rendered]:
            tables.append(_main_table(title, mine))
    return tables


def _main_table(title: str, comparisons: Sequence[Comparison]) -> Table:
    plain = [_plain(each) for each in comparisons]
    methods = _ordered(plain)
    rows = []
    for method in methods:
        row = next(each[method].row for each in plain if method in each)
        rows.append((row_name(row), *(each.get(method) for each in plain)))
    best = {
        (row, column)
        for column, each in enumerate(plain, start=1)
        for row, method in enumerate(methods)
        if method in each and is_best(each[method], each.values())
    }
    columns = (METHOD, *(Column(source_name(each.source), _main_cell) for each in comparisons))
    return Table(columns, tuple(rows), title, frozenset(best))


def _ordered(plain: Iterable[Mapping[str, MethodResult]]) -> list[str]:
    """The methods; those that use labels, or see all images first, come last."""
    kinds = {name: result.row.kind for each in plain for name, result in each.items()}
    return sorted(kinds, key=lambda name: kinds[name])


def _main_cell(result: MethodResult) -> str:
    if result.gain is None or result.row.is_baseline:
        return "" if result.accuracy is None else f"accuracy {percent(result.accuracy.mean)}"
    return gain_text(result.gain)


def tally_table(experiments: Sequence[Experiment]) -> Table:
    """Win / tie / loss against zero-shot: methods in default options by experiments."""
    plain = [[_plain(each) for each in experiment.comparisons] for experiment in experiments]
    rows = []
    for method in _ordered(each for some in plain for each in some):
        found = [[each[method] for each in some if method in each] for some in plain]
        results = [each for some in found for each in some]
        if not results[0].row.is_baseline:
            counts = [tally(each.gain for each in some) if some else None for some in found]
            total = tally(each.gain for each in results)
            rows.append((row_name(results[0].row), *counts, total))
    titles = [*(each.outline.title for each in experiments), "all"]
    columns = (METHOD, *(Column(t, lambda count: " / ".join(map(str, count))) for t in titles))
    return Table(columns, tuple(rows), "Win / tie / loss against zero-shot")


def not_run_line(experiment: Experiment) -> str:
    """Missing datasets and methods that were not run, with their reasons, in one line."""
    models: dict[str, list[str]] = {}
    for source in experiment.missing:
        models.setdefault(source.dataset or source.name, []).append(source.model or "")
    missing: dict[str, list[str]] = {}
    for dataset, its in models.items():
        missing.setdefault(" and ".join(filter(None, its)), []).append(dataset)
    parts = [
        f"datasets not found{f', {model}' if model else ''}: {', '.join(names)}"
        for model, names in missing.items()
    ]
    reasons: dict[str, dict[str, None]] = {}
    for comparison in experiment.comparisons:
        for each in comparison.results:
            if each.status != "measured" and each.reason:
                why = re.sub(r"^Method '\S+' ", "", each.reason.partition(": ")[0]).rstrip(".")
                reasons.setdefault(why, {})[each.row.label] = None
    parts += [f"{', '.join(labels)} ({why})" for why, labels in reasons.items()]
    return f"Not run: {'; '.join(parts)}." if parts else ""


def whole_text(
    experiments: Sequence[Experiment], render: Callable[[Table], str], heading: str
) -> str:
    """All tables as one text; ``heading`` has places for title and file of an experiment."""
    parts = [render(table) for table in main_tables(experiments)]
    parts.append(render(tally_table(experiments)))
    for experiment in experiments:
        parts.append(heading.format(experiment.outline.title, experiment.path))
        parts += [render(table) for table in tables_of(experiment)]
    return "\n\n".join(parts) + "\n"
