"""The tables of experiments: what all of them say together, and those of each one."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import msgspec

from crg.report import tables as formats
from crg.report.contrasts import AVERAGED, QUALITY, Contrast, Spread, tally
from crg.report.experiment import Comparison, Experiment, MethodResult, is_best
from crg.report.tables import METHOD, Column, Table, gain_text, percent, points
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
    "accuracy": Column("accuracy %", formats.spread_text),
    "gain": Column("gain over zero-shot", gain_text),
    "rival": Column("to the method in brackets", formats.rival_text),
    "ece": Column("ECE %", formats.mean_percent, is_optional=True),
    "aurc": Column("AURC %", formats.mean_percent, is_optional=True),
    "accuracy_at_90": Column("accuracy at 90% coverage", formats.mean_percent, is_optional=True),
    "nll": Column("NLL", lambda each: f"{each.mean:.3f}", is_optional=True),
    "worst_class_accuracy": Column("worst class %", formats.mean_percent),
    "purity": Column("cache purity %", formats.mean_percent, is_optional=True),
    "ms_per_step": Column("ms per image", lambda each: f"{each:.3g}"),
    "peak_bytes": Column("peak MB", lambda each: f"{each / 1e6:.0f}"),
    "lines": Column("lines", formats.lines_text),
    "remark": Column("remarks", is_text=True),
}
_SHORT = ("accuracy", "gain", "ece", "nll", "purity", "remark")


def _table(results: Sequence[MethodResult], names: Sequence[str], title: str) -> Table:
    """A row per method, with the figures of these names as far as there are any."""
    columns = (METHOD, *(_FIGURES[name] for name in names))
    rows = [(row_name(each.row), *(getattr(each, name) for name in names)) for each in results]
    best = frozenset((n, 1) for n, each in enumerate(results) if each.best)
    return Table(columns, tuple(rows), title, best).without_empty_columns()


def comparison_table(comparison: Comparison, has_file: bool = True) -> Table:
    """All figures of all methods on one dataset in one setting."""
    names = [name for name in _FIGURES if name != "remark" and (has_file or name != "lines")]
    title = f"{source_name(comparison.source)}: {comparison.n_scored} images scored"
    return _table([each for each in comparison.results if each.accuracy], names, title)


def papers_tables(experiment: Experiment) -> list[Table]:
    """Measured beside reported accuracy: a table per dataset that papers have numbers for."""
    tables: list[Table] = []
    measured = (e for c in experiment.comparisons for e in c.results if e.accuracy is not None)
    numbers = sorted((n for each in measured for n in each.reported), key=lambda n: n.rank)
    papers = {number.source: number.citation for number in numbers}
    columns = [METHOD, Column("ours", percent)]
    for name in papers:
        columns.append(Column(name, lambda each: f"{each.value:.2f}{'*' * bool(each.notes)}"))
        columns.append(Column("difference", points))
    for comparison in experiment.comparisons:
        source, rows = comparison.source, []
        for each in comparison.results:
            found = {number.source: number for number in each.reported}
            if each.accuracy is not None and found:
                mine = each.accuracy.mean
                pairs = [(n, n and mine - n.value / 100) for n in map(found.get, papers)]
                rows.append((row_name(each.row), mine, *itertools.chain(*pairs)))
        text = (source.text_flag or "the model's own").removesuffix(" text")
        facts = f"ours has {counted(source.n_views, 'view')} and {text} text"
        title = f"{source.name}, {source.n_samples:,} images: {facts}"
        if rows:
            tables.append(Table(tuple(columns), tuple(rows), title).without_empty_columns())
    odd = dict.fromkeys(f"* {note}" for number in numbers for note in number.notes)
    notes = (*(f"{name}: {citation}." for name, citation in papers.items()), *odd)
    return [*tables[:-1], *(replace(table, notes=notes) for table in tables[-1:])]


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
    gain, means = result.gain, {name: getattr(result, name) for name in AVERAGED[1:]}
    return {
        "method": result.row.method,
        "options": dict(result.row.options),
        "accuracy": result.accuracy and asdict(result.accuracy),
        **{name: spread and spread.mean for name, spread in means.items()},
        "ms_per_step": result.ms_per_step,
        "gain": gain and {**asdict(gain.interval), "verdict": gain.verdict},
        "best": result.best,
    }


def setting_names(comparisons: Sequence[Comparison]) -> list[str]:
    """The settings of one dataset, told apart by their class names where they share a label."""
    labels = [each.setting.label for each in comparisons]
    return [
        label if labels.count(label) == 1 else f"{label} ({each.source.name.split(', ')[-1]})"
        for label, each in zip(labels, comparisons, strict=True)
    ]


def settings_table(comparisons: Sequence[Comparison]) -> Table:
    """One dataset: methods by settings, gain over zero-shot; zero-shot has its accuracy."""
    rows: list[tuple[Any, ...]] = []
    best: set[tuple[int, int]] = set()
    for row in (each.row for each in comparisons[0].results):
        results = [comparison.of(row.label) for comparison in comparisons]
        if lines := [line for each in results for line in each.lines]:
            best |= {(len(rows), n) for n, each in enumerate(results, start=1) if each.best}
            rows.append((row_name(row), *results, lines))
    settings = (Column(name, _accuracy_and_gain) for name in setting_names(comparisons))
    columns = (METHOD, *settings, _FIGURES["lines"])
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
    """Means over the datasets: accuracy under label noise, or the gain at a cold start."""
    kind = experiment.outline.figure
    found: dict[str, dict[str, list[float]]] = {}
    for comparison in experiment.comparisons:
        for each in comparison.results:
            mine = found.setdefault(row_name(each.row), {})
            for n, gain in each.first_gain.items():
                mine.setdefault(f"first {n}", []).append(gain.interval.mean)
            if each.accuracy and kind == "noise":
                mine.setdefault(comparison.setting.label, []).append(each.accuracy.mean)
    names = dict.fromkeys(name for mine in found.values() for name in mine)
    n = max((len(values) for mine in found.values() for values in mine.values()), default=0)
    columns = (METHOD, *(Column(name, percent if kind == "noise" else points) for name in names))
    rows = [
        (label, *(statistics.fmean(v) if len(v) == n else None for v in mine.values()))
        for label, mine in found.items()
        if [*mine] == [*names] != []
    ]
    title = "Accuracy in %" if kind == "noise" else "Cold start: gain over zero-shot"
    table = Table(columns, tuple(rows), f"{title}, mean over {n} datasets")
    return table.without_empty_columns() if n > 1 else None


def tables_of(experiment: Experiment) -> list[Table]:
    """The tables of an experiment: one or two per dataset, methods by settings if several."""
    tables = [*filter(None, [mean_table(experiment)])]
    for comparisons in experiment.by_source().values():
        if len(comparisons) > 1:
            tables.append(settings_table(comparisons))
        else:
            tables.append(comparison_table(comparisons[0], bool(experiment.path)))
        tables += filter(None, map(first_table, comparisons))
    return tables


def groups_of(experiments: Sequence[Experiment]) -> dict[str, list[Comparison]]:
    """The first plain comparison of each dataset, in experiments whose figure is a table if any."""
    found: dict[str, Comparison] = {}
    main = [each for each in experiments if each.outline.figure == "table"] or experiments
    for each in (each for experiment in main for each in experiment.comparisons):
        scenario = each.setting.scenario
        is_plain = scenario.order == SHUFFLED and not scenario.mislabelled and not each.source.then
        if is_plain and any(result.gain for result in each.results):
            found.setdefault(each.source.name, each)
    groups = {"feature files": False, "rendered shapes": True}
    return {
        kind: comparisons
        for kind, is_rendered in groups.items()
        if (comparisons := [c for c in found.values() if c.source.is_rendered == is_rendered])
    }


def methods_of(comparisons: Iterable[Comparison]) -> dict[str, list[MethodResult | None]]:
    """Measured methods in default options, with their result in each comparison.

    Those that use labels, or see all images first, come last.
    """
    plain: list[dict[str, MethodResult]] = []
    for comparison in comparisons:
        plain.append({})
        for each in comparison.results:
            row = each.row
            if each.accuracy is not None and not row.options and not row.tuned:
                name = row.label if row.offline else row.method
                plain[-1][row_name(msgspec.structs.replace(row, label=name))] = each
    kinds = {name: result.row.kind for each in plain for name, result in each.items()}
    names = sorted(kinds, key=lambda name: kinds[name])
    return {name: [each.get(name) for each in plain] for name in names}


def ranked(comparisons: Sequence[Comparison]) -> list[tuple[str, list[Contrast], float]]:
    """The methods without labels that were measured on all datasets, the best mean gain first."""
    found = []
    for method, results in methods_of(comparisons).items():
        gains = [each.gain for each in results if each and each.gain and not each.row.kind]
        if len(gains) == len(results):
            found.append((method, gains, statistics.fmean(gain.interval.mean for gain in gains)))
    return sorted(found, key=lambda each: -each[2])


def main_tables(experiments: Sequence[Experiment]) -> list[Table]:
    """Gain over zero-shot, methods by datasets: feature files, then rendered shapes."""
    tables = []
    for kind, comparisons in groups_of(experiments).items():
        methods, means = methods_of(comparisons), {name: m for name, _, m in ranked(comparisons)}
        columns = [METHOD, *(Column(source_name(c.source), _main_cell) for c in comparisons)]
        columns.append(Column("mean gain without labels", points))
        rows = [(name, *results, means.get(name)) for name, results in methods.items()]
        best = {
            (row, column + 1)
            for row, results in enumerate(methods.values())
            for column, each in enumerate(results)
            if each and is_best(each, [e for other in methods.values() if (e := other[column])])
        }
        title = f"Gain over zero-shot, {kind}"
        tables.append(Table(tuple(columns), tuple(rows), title, frozenset(best)))
    return tables


def _main_cell(result: MethodResult) -> str:
    accuracy = percent(result.accuracy.mean) if result.accuracy else ""
    return gain_text(result.gain) if result.gain else f"{accuracy}%"


def quality_tables(experiments: Sequence[Experiment]) -> list[Table]:
    """What accuracy does not say, mean over the datasets, and the ranking by ``outside``."""
    tables = []
    for kind, comparisons in groups_of(experiments).items():
        found = [[each for each in results if each] for results in methods_of(comparisons).values()]
        means = [_mean_result(each) for each in found if len(each) == len(comparisons)]
        title = f"{kind.capitalize()}: mean over {counted(len(comparisons), 'dataset')}"
        tables.append(_table(means, (*QUALITY, "ms_per_step"), title))
    starts = [each for each in experiments if each.outline.figure == "cold_start"]
    tables[1:1] = filter(None, map(mean_table, starts))  # beside the first there is room
    rows: dict[str, float] = {}
    for comparison in (each for experiment in experiments for each in experiment.comparisons):
        for each in comparison.results:  # the same for every method: it takes features and text
            if each.outside_auroc is not None:
                rows.setdefault(source_name(comparison.source), each.outside_auroc.mean)
    columns = (Column("dataset", is_text=True), Column("AUROC of outside, %", percent))
    tables.append(Table(columns, tuple(rows.items()), "Out-of-distribution images"))
    return [table for table in tables if table.rows]


def _mean_result(results: Sequence[MethodResult]) -> MethodResult:
    """The means of a method over datasets; None where one lacks a metric."""
    means: dict[str, Any] = {}
    for name in QUALITY:
        spreads = [getattr(each, name) for each in results]
        if None not in spreads:
            means[name] = Spread(statistics.fmean(each.mean for each in spreads), None, ())
    times = [each.ms_per_step for each in results if each.ms_per_step is not None]
    time = statistics.median(times) if times else None
    return MethodResult(results[0].row, "measured", ms_per_step=time, **means)


def tally_table(experiments: Sequence[Experiment]) -> Table:
    """Win / tie / loss against zero-shot: methods in default options by experiments."""
    found = [methods_of(experiment.comparisons) for experiment in experiments]
    everywhere = methods_of(each for experiment in experiments for each in experiment.comparisons)
    rows = []
    for name, results in everywhere.items():
        gains = [
            [e.gain for e in some.get(name, ()) if e and e.gain]
            for some in (*found, {name: results})
        ]
        if gains[-1]:
            rows.append((name, *(tally(each) if each else None for each in gains)))
    titles = [*(each.outline.title for each in experiments), "all"]
    columns = (METHOD, *(Column(t, lambda count: " / ".join(map(str, count))) for t in titles))
    return Table(columns, tuple(rows), "Win / tie / loss against zero-shot")


def not_run_line(experiment: Experiment) -> str:
    """Missing datasets and methods that were not run, with their reasons, in one line."""
    missing = [source.name for source in experiment.missing]
    parts = [f"datasets not found: {'; '.join(missing)}"] if missing else []
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
    shown = [*main_tables(experiments), tally_table(experiments), *quality_tables(experiments)]
    parts = [render(table) for table in shown]
    for experiment in experiments:
        parts.append(heading.format(experiment.outline.title, experiment.path))
        parts += map(render, (*papers_tables(experiment), *tables_of(experiment)))
    return "\n\n".join(parts) + "\n"
