"""Figures over the stream and over numbers: learning, purity, sweeps, noise and shots."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from crg.report.charts.axes import pen, pens_of
from crg.report.charts.lines import Series, Titles, band_chart, thinned
from crg.report.evidence.averages import Group, means_caption
from crg.report.evidence.captions import caption, loss_caption
from crg.report.evidence.study import Contrast, Curve, Line, Point, Study, Table
from crg.report.markup import Figure
from crg.report.study_captions import learning_caption

_HEADER = ("row", "x", "mean", "low", "high")
_WRONG = "share of cache insertions with a wrong label, %"


def learning_figure(study: Study, source: str) -> list[Figure]:
    """Accuracy so far against images seen."""
    curves = {line.row.label: line.learning for line in _first(study, source).lines}
    base = zero_shot_label(study)
    titles = Titles("images seen", "right so far, %")
    return _figure(
        study, source, "learning", curves, titles, lambda: learning_caption(_drawn(curves), base)
    )


def cold_start_figure(study: Study, source: str) -> list[Figure]:
    """The learning curve, under the sentence of the experiment."""
    return [
        replace(each, caption=caption(study, source)) for each in learning_figure(study, source)
    ]


def purity_figure(study: Study, source: str) -> list[Figure]:
    """Error rate of the labels in the cache against images seen."""
    curves = {
        line.row.label: tuple(
            Point(p.x, 1 - p.mean, 1 - p.high, 1 - p.low) for p in line.purity_over_time
        )
        for line in _first(study, source).lines
    }
    titles = Titles("images seen", "wrong labels in the cache, %")
    return _figure(study, source, "cache-error", curves, titles, _told(study, source))


def sweep_figure(study: Study, source: str) -> list[Figure]:
    """Accuracy against the number that the rows are about, zero-shot as a level."""
    return _against_rows(study, source, "sweep", float, float)


def shots_figure(study: Study, source: str) -> list[Figure]:
    """Accuracy against slots per class, which double from one to the next."""
    return _against_rows(study, source, "shots", math.log2, lambda x: 2**x)


def noise_figures(study: Study, source: str) -> list[Figure]:
    """Accuracy against the share that is mislabelled, and what of it is lost."""
    tables = study.tables_of(source)
    marks = _marks(tables)
    level = _over_settings(tables, accuracy_point)
    titles = Titles(_WRONG, "accuracy, %", marks)
    figures = _figure(study, source, "noise", level, titles, _told(study, source), marked=True)
    lost = _over_settings(tables, _change_point)
    words = loss_caption(study, source)
    if not words:
        return figures
    loss = Titles(_WRONG, "change in accuracy, points", marks)
    return figures + _figure(study, source, "noise-loss", lost, loss, lambda: words, marked=True)


def mean_figures(study: Study, groups: Sequence[Group]) -> list[Figure]:
    """Mean accuracy over sources against the share that is mislabelled; of noise only."""
    if study.outline.figure != "noise":
        return []
    curves: dict[str, Curve] = {}
    for row in study.outline.rows:
        means = [(_share(group.tables[0]), group.average(row.label).mean) for group in groups]
        known = tuple(Point(x, mean, mean, mean) for x, mean in means if mean is not None)
        curves |= {row.label: known} if known else {}
    marks = _marks([group.tables[0] for group in groups])
    titles = Titles(_WRONG, "mean accuracy, %", marks)
    words = means_caption(study, groups)
    return _figure(study, "mean", "noise", curves, titles, lambda: words, marked=True)


def zero_shot_label(study: Study) -> str | None:
    """What the row of zero-shot is called."""
    rows = (row.label for row in study.outline.rows if row.method == "zero_shot")
    return next(rows, None)


def accuracy_point(line: Line, x: float) -> Point | None:
    """Accuracy with one standard deviation to each side."""
    if line.accuracy is None:
        return None
    mean, std = line.accuracy.mean, line.accuracy.std or 0.0
    return Point(x, mean, mean - std, mean + std)


def _change_point(line: Line, x: float) -> Point | None:
    """The change from the first setting with its 95% interval."""
    if x == 0 and line.accuracy is not None:
        return Point(x, 0.0, 0.0, 0.0)
    change: Contrast | None = line.to_first_setting
    if change is None:
        return None
    return Point(x, change.interval.mean, change.interval.low, change.interval.high)


def _over_settings(
    tables: tuple[Table, ...], point_of: Callable[[Line, float], Point | None]
) -> dict[str, Curve]:
    curves: dict[str, Curve] = {}
    for table in tables:
        for line in table.lines:
            point = point_of(line, _share(table))
            if point is not None:
                curves[line.row.label] = (*curves.get(line.row.label, ()), point)
    return curves


def _marks(tables: Sequence[Table]) -> tuple[tuple[float, str], ...]:
    return tuple((share, f"{100 * share:g}") for share in map(_share, tables))


def _share(table: Table) -> float:
    return table.setting.scenario.mislabelled


def _first(study: Study, source: str) -> Table:
    return study.tables_of(source)[0]


def _against_rows(
    study: Study,
    source: str,
    what: str,
    stretch: Callable[[float], float],
    at: Callable[[float], float],
) -> list[Figure]:
    """Accuracy of rows against their numbers, a line per series; ``at`` undoes ``stretch``."""
    table = _first(study, source)
    curves: dict[str, Curve] = {}
    for line in table.lines:
        number, name = line.row.x, line.row.series or line.row.method
        point = None if number is None else accuracy_point(line, stretch(number))
        if point is not None:
            curves[name] = (*curves.get(name, ()), point)
    if not curves:
        return []
    xs = sorted({point.x for curve in curves.values() for point in curve})
    curves |= _level(study, table, xs[0], xs[-1])
    titles = Titles(study.outline.x_title, "accuracy, %", tuple((x, f"{at(x):g}") for x in xs))
    words = _told(study, source)
    return _figure(study, source, what, curves, titles, words, marked=True, at=at)


def _level(study: Study, table: Table, low: float, high: float) -> dict[str, Curve]:
    """Zero-shot from one end of the figure to the other."""
    label = zero_shot_label(study)
    for line in table.lines:
        ends = [accuracy_point(line, x) for x in (low, high)]
        if line.row.label == label and ends[0] and ends[1]:
            return {label: (ends[0], ends[1])}
    return {}


def _told(study: Study, source: str) -> Callable[[], str]:
    """The sentence of the experiment, made only once there is something to say it of."""
    return lambda: caption(study, source)


def _drawn(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    return {name: thinned(curve) for name, curve in curves.items() if curve}


def _figure(
    study: Study, source: str, what: str, curves: Mapping[str, Curve], titles: Titles,
    words: Callable[[], str], marked: bool = False, at: Callable[[float], float] = float,
) -> list[Figure]:  # fmt: skip
    """A figure in %; none where nothing was measured. ``at`` undoes a stretched axis."""
    drawn = _drawn(curves)
    if not drawn:
        return []
    pens = pens_of(study.outline.rows)
    series = [
        Series(name, _in_percent(curve), pens.get(name) or pen(3 + place), marked)
        for place, (name, curve) in enumerate(drawn.items())
    ]
    data = tuple(
        (each.name, round(at(p.x), 4), round(p.mean, 4), round(p.low, 4), round(p.high, 4))
        for each in series
        for p in each.points
    )
    name = f"{study.outline.name} {source} {what}"
    return [Figure(name, (band_chart(series, titles),), words(), _HEADER, data)]


def _in_percent(curve: Curve) -> Curve:
    return tuple(Point(p.x, 100 * p.mean, 100 * p.low, 100 * p.high) for p in curve)
