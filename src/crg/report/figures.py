"""Figures by matplotlib: SVG for the page, PDF for papers; several panels each.

A figure is a list of marks, which are drawn and can be downloaded as CSV. In figures of lines a
method has one colour and line style everywhere; intervals have the colour of their verdict.
Text and axes take the colour of the page around them, so that figures suit light and dark.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from crg.atomic import check_ours, make_folder, replacing
from crg.extras import library
from crg.images.reading import read_image
from crg.report import layout
from crg.report.contrasts import Contrast, Curve
from crg.report.experiment import Comparison, Experiment, MethodResult
from crg.report.tables import points
from crg.results.schema import Variant
from crg.types import InputError

COLD_START = 500  # images
CREATOR = "crg report"  # marks our PDF files
PDF_MARK = f"/Creator ({CREATOR})".encode()
PICTURE = "crg demo: images that adaptation corrects, and running accuracy"  # marks our pictures
_STYLE = ("<style>svg{color:#1c2430;background:#fff;font-family:system-ui,sans-serif}@media "
          "(prefers-color-scheme:dark){svg{color:#e6e9ee;background:#14181e}}</style>")  # fmt: skip
_INK = "#1a2b3c"  # becomes the colour of the page's text
_INCHES = (4.0, 2.8)
WIDE = (10.0, 3.8)  # inches of a figure that fills a wide screen
_STEADY = 50  # images after which the running accuracy is drawn: before, it is mostly noise
_MANY_POINTS = 20  # of a line, which has a band instead of bars then
_VERDICTS = {"better": "#159a55", "worse": "#e0483c", "": "#8a8f98"}

# Okabe and Ito's colours, which most colour-blind people can distinguish; zero-shot is grey.
_COLOURS = {
    "zero_shot": "#808080", "tda": "#e69f00", "dpe": "#0072b2", "crg": "#d55e00",
    "gda": "#009e73", "tpt": "#cc79a7", "difftpt": "#56b4e9", "tip_adapter": "#a89a00",
    "coop": "#8c564b", "anchored": "#7b3fb5", "dota": "#17a2a2", "oga": "#b03060",
    "onzeta": "#5a7d2a", "logit_bias": "#3b4cc0", "class_prior": "#f078c8", "freetta": "#3fb0e0",
}  # fmt: skip
_OTHERS = ("#00838f", "#9e6b00", "#4e7d00", "#6a5acd")
_DASHES = ((0, ()), (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)), (0, (1, 2)))
_INKED = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "text.color")
_LOOK = {
    **dict.fromkeys(_INKED, _INK),
    **dict.fromkeys(("text.parse_math", "axes.spines.top", "axes.spines.right"), False),
    "font.size": 9,
}


@dataclass(frozen=True)
class LineStyle:
    """Colour and dashes of a method."""

    colour: str
    dashes: tuple[int, tuple[float, ...]]

    @property
    def dash_array(self) -> str:
        """The line style as SVG writes it."""
        return " ".join(str(2 * each) for each in self.dashes[1]) or "none"


def styles_of(rows: Iterable[Variant]) -> dict[str, LineStyle]:
    """A style per line: the method has the colour, its variants differ in their dashes."""
    styles: dict[str, LineStyle] = {}
    variants: dict[str, int] = {}
    unknown: dict[str, str] = {}
    for row in map(_as_line, rows):
        colour = _COLOURS.get(row.method) or unknown.setdefault(
            row.method, _OTHERS[len(unknown) % len(_OTHERS)]
        )
        place = 0  # with default options it is the method itself, which looks the same everywhere
        if row.options or row.tuned or row.offline:
            place = variants[row.method] = variants.get(row.method, 0) + 1
        dash = 1 if row.method == "zero_shot" else (place - 1) % 4 + 1 if place else 0
        styles[row.label] = LineStyle(colour, _DASHES[dash])
    return styles


def _as_line(row: Variant) -> Variant:
    """The line that a variant belongs to: its own, or that of its series."""
    if row.x is None:
        return row
    options = {"series": row.series} if row.series else {}
    return msgspec.structs.replace(row, label=row.series or row.method, options=options)


@dataclass(frozen=True)
class Mark:
    """One value of a figure with its interval or deviation, in % or percentage points."""

    panel: str
    name: str  # of the line or of the mark in its row: a method or a dataset
    place: float | str | None  # on the axis: a number, or the name of a row; None: everywhere
    mean: float
    low: float
    high: float
    verdict: str = ""


@dataclass(frozen=True)
class Figure:
    """The marks of a figure, and how to draw them."""

    name: str
    kind: str
    marks: Sequence[Mark]
    draw: _Draw
    titles: tuple[str, str]  # of the axes
    styles: Mapping[str, LineStyle]
    is_shared: bool = False  # whether all panels have the same x axis

    @property
    def legend(self) -> dict[str, LineStyle]:
        """The style of every line; other figures name their marks."""
        names = dict.fromkeys(mark.name for mark in self.marks if self.draw is _lines)
        return {name: style for name, style in self.styles.items() if name in names}

    def drawn(self, inches: tuple[float, float] = _INCHES) -> Iterable[tuple[str, Any]]:
        """Title and matplotlib figure of each panel."""
        ends = (min(mark.low for mark in self.marks) - 1, max(mark.high for mark in self.marks) + 1)
        for title in dict.fromkeys(mark.panel for mark in self.marks):
            figure, axes = _canvas(inches)
            self.draw(axes, [mark for mark in self.marks if mark.panel == title], self.styles)
            axes.set(xlabel=self.titles[0], ylabel=self.titles[1])
            if self.is_shared:
                axes.set_xlim(ends)
            yield title, figure

    def svgs(self, inches: tuple[float, float] = _INCHES) -> list[tuple[str, str]]:
        """Title and SVG element of each panel."""
        name = f"{self.name} {inches[0]:g}"
        return [(title, to_svg(each, f"{name}: {title}")) for title, each in self.drawn(inches)]

    def csv(self) -> str:
        """All marks as a CSV file."""
        file = io.StringIO()
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(field.name for field in fields(Mark))
        lines.writerows(astuple(mark) for mark in self.marks)
        return file.getvalue()


_Draw = Callable[[Any, Sequence[Mark], Mapping[str, LineStyle]], None]


def figure_of(experiment: Experiment, kind: str | None = None) -> Figure | None:
    """The figure that answers the question of an experiment; None without anything to draw."""
    outline = experiment.outline
    kind = kind or (outline.figure if outline.figure in KINDS else "table")
    draw, marks_of, x, y = KINDS[kind]
    cells = _cells(experiment, marks_of in (_streams, _numbers))
    marks = [mark for cell in cells for mark in marks_of(cell)]
    titles = (outline.x_title or x, y)
    name, styles = f"{outline.name}-{kind}", styles_of(outline.rows)
    return Figure(name, kind, marks, draw, titles, styles, kind == "streams") if marks else None


def overview(experiments: Sequence[Experiment]) -> Figure | None:
    """The gain of every method without labels on every dataset, best on the first group first."""
    marks: list[Mark] = []
    groups = [*layout.groups_of(experiments).values()]
    comparisons = [each for group in groups for each in group]
    means = {method: mean for group in groups[:1] for method, _, mean in layout.ranked(group)}
    for method, gains, _ in sorted(layout.ranked(comparisons), key=lambda each: -means[each[0]]):
        title = f"{method}: mean {points(means[method])}"
        for comparison, gain in zip(comparisons, gains, strict=True):
            marks += _gain(title, method, comparison.source.name, gain)
    found = Figure("overview", "overview", marks, _intervals, ("gain, points", ""), {}, True)
    return found if marks and len(comparisons) > 1 else None


def save_pdf(experiments: Iterable[Experiment], folder: Path) -> list[Path]:
    """A PDF per panel, named by experiment and panel."""
    make_folder(folder, "--out")
    paths = []
    for experiment in experiments:
        found = figure_of(experiment)
        for title, figure in found.drawn() if found else ():
            name = re.sub(r"[^\w.-]+", "-", f"{experiment.outline.name}-{title}").strip("-")
            paths.append(folder / f"{name}.pdf")
            check_ours(paths[-1], PDF_MARK, "--out")
            if found and found.legend:
                figure.axes[0].legend(frameon=False, fontsize=6, labelcolor=_INK)
            facts = {"CreationDate": None, "Creator": CREATOR}
            with replacing(paths[-1]) as partial:
                figure.savefig(partial, format="pdf", metadata=facts)
    return paths


def picture(experiment: Experiment) -> str:
    """An SVG file: images that the first method corrects, beside the running accuracy."""
    [comparison] = experiment.comparisons
    _, first = comparison.pair() or (None, None)
    images = {image.truth: image for image in experiment.gallery.get(comparison.source.name, ())
              if first and image.answers.get(first.row.label) == image.truth}  # fmt: skip
    if first is None or first.gain is None or not images:
        raise InputError("No answer was corrected, so there is no picture: render more --images.")
    figure, axes = _canvas((9.0, 3.5))
    grid = figure.add_gridspec(4, 3, width_ratios=(1, 1, 1.35))
    axes.set_subplotspec(grid[:, 2])
    found = figure_of(experiment, "learning")
    assert found is not None
    found.draw(axes, found.marks, found.styles)
    axes.set(xlabel=found.titles[0], ylabel=found.titles[1])
    for place, image in enumerate(list(images.values())[:8]):  # the wrong answer above the right
        card = figure.add_subplot(grid[place % 4, place // 4])
        card.imshow(read_image(base64.b64decode(image.png)), interpolation="none")
        card.set_axis_off()
        card.set_anchor("W")
        [wrong] = {*image.answers.values()} - {image.truth}
        for y, text in ((0.7, f"✗ {wrong}"), (0.28, f"✓ {image.truth}")):
            card.text(1.06, y, textwrap.fill(text, 26), transform=card.transAxes, va="center",
                      fontsize=8, color=_INK, in_layout=False)  # fmt: skip
    said = f"{first.gain.corrected} answers corrected, {first.gain.broken} broken"
    figure.suptitle(f"✗ zero-shot   ✓ adapted: {said}", x=0.01, ha="left", fontsize=9, color=_INK)
    return to_svg(figure, PICTURE).replace("<defs>", f"{_STYLE}<defs>", 1)


def to_svg(figure: Any, label: str) -> str:
    """A figure as an SVG element whose text takes font and colour of the page."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.S)
    used = set(re.findall(r'(?:url\(|xlink:href=")#([\w-]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda m: m[0] if m[1] in used else "", svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?|<defs>\s*<style.*?</defs>", "", svg, flags=re.S)
    svg = re.sub(r"(\d\.\d)\d+", r"\1", svg).replace(_INK, "currentColor")
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r">\s+<", "><", re.sub(r"\s*\n\s*", " ", svg))
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1).strip()


def _canvas(inches: tuple[float, float]) -> tuple[Any, Any]:
    with library("matplotlib", "report").rc_context(_LOOK):
        figure = library("matplotlib.figure", "report").Figure(inches, layout="constrained")
        axes = figure.add_subplot()
    axes.grid(alpha=0.2, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _gain(panel: str, name: str, place: str, gain: Contrast | None) -> list[Mark]:
    if gain is None:
        return []
    seen = gain.interval
    mean, low, high = (round(100 * end, 4) for end in (seen.mean, seen.low, seen.high))
    return [Mark(panel, name, place, mean, low, high, gain.verdict)]


def _value(panel: str, name: str, x: float | None, mean: float, std: float | None) -> Mark:
    std = std or 0.0
    mean, low, high = (round(100 * end, 4) for end in (mean, mean - std, mean + std))
    return Mark(panel, name, x, mean, low, high)


class _Cell(NamedTuple):
    """A method on a dataset in a setting."""

    dataset: str
    setting: str
    comparison: Comparison
    result: MethodResult


def _cells(experiment: Experiment, of_settings: bool) -> Iterable[_Cell]:
    """All methods on all datasets, in all settings or in the first one."""
    for group in experiment.by_source().values():
        name, settings = layout.sources_name(group), layout.setting_names(group)
        for setting, each in [*zip(settings, group, strict=True)][: None if of_settings else 1]:
            yield from (_Cell(name, setting, each, result) for result in each.results)


def _gains(cell: _Cell) -> Iterable[Mark]:
    row = cell.result.row
    return _gain(cell.dataset, row.label, layout.row_name(row), cell.result.gain)


def _streams(cell: _Cell) -> Iterable[Mark]:
    """A panel per method, a row per setting, in it a mark per dataset."""
    return _gain(cell.result.row.label, cell.dataset, cell.setting, cell.result.gain)


def _numbers(cell: _Cell) -> Iterable[Mark]:
    """Accuracy against the number of the method or of the setting."""
    row, accuracy = cell.result.row, cell.result.accuracy
    x = cell.comparison.setting.x if row.x is None else row.x
    label = _as_line(row).label
    return [_value(cell.dataset, label, x, accuracy.mean, accuracy.std)] if accuracy else []


def _curve(cell: _Cell, points: Curve, first: float = 0, last: float = np.inf) -> Iterable[Mark]:
    label = cell.result.row.label
    return [_value(cell.dataset, label, *point) for point in points if first <= point[0] <= last]


def _cold_start(cell: _Cell) -> Iterable[Mark]:
    return _curve(cell, cell.result.learning, last=COLD_START)


def _purity(cell: _Cell) -> Iterable[Mark]:
    track = cell.result.purity_over_time
    return _curve(cell, tuple((x, 1 - mean, std) for x, mean, std in track))


def _learning(cell: _Cell) -> Iterable[Mark]:
    """Running accuracy of zero-shot and of the first method."""
    base, first = cell.comparison.pair() or (None, None)
    if first is None or not first.baseline_learning or cell.result not in (base, first):
        return []
    points = first.learning if cell.result is first else first.baseline_learning
    return _curve(cell, points, min(_STEADY, points[-1][0]))


def _intervals(axes: Any, marks: Sequence[Mark], styles: Mapping[str, LineStyle]) -> None:
    """A row per place, in it an interval per name, each in the colour of its verdict."""
    places, names = (list(dict.fromkeys(getattr(mark, each) for mark in marks))
                     for each in ("place", "name"))  # fmt: skip
    several = len({(mark.place, mark.name) for mark in marks}) > len(places)
    for verdict, colour in _VERDICTS.items():
        mine = [mark for mark in marks if mark.verdict == verdict]
        shift = [0.75 * ((names.index(m.name) + 0.5) / len(names) - 0.5) * several for m in mine]
        ys = [places.index(mark.place) + by for mark, by in zip(mine, shift, strict=True)]
        lines = axes.hlines(ys, [m.low for m in mine], [m.high for m in mine], colors=colour)
        lines.set_linewidth(1.2 if several else 1.8)
        face = colour if verdict else "none"
        axes.scatter([m.mean for m in mine], ys, 7 if several else 20, facecolors=face,
                     edgecolors=colour, linewidths=1, zorder=3)  # fmt: skip
    axes.axvline(0, color="#808080", lw=1, zorder=0)
    texts = [textwrap.fill(str(place), 26, max_lines=3, placeholder="…") for place in places]
    axes.set_yticks(range(len(places)), texts)
    axes.set_ylim(len(places) - 0.4, -0.6)
    tall = max(0.055 * len(names) * several, 0.2 + 0.11 * max(t.count("\n") for t in texts))
    axes.figure.set_size_inches(_INCHES[0], max(1.4, tall * len(places) + 0.6))


def _lines(axes: Any, marks: Sequence[Mark], styles: Mapping[str, LineStyle]) -> None:
    """A line per name, with bars at few points and a band along many."""
    for name in dict.fromkeys(mark.name for mark in marks):
        colour, dashes = styles[name].colour, styles[name].dashes
        look: Any = {"label": name, "color": colour, "linestyle": dashes, "linewidth": 1.8}
        mine = sorted((m.place, m.mean, m.low, m.high) for m in marks
                      if m.name == name and m.place is not None)  # fmt: skip
        if not mine:  # it has no number: the same everywhere
            [flat] = {mark.mean for mark in marks if mark.name == name}
            axes.axhline(flat, **look)
            continue
        x, mean, low, high = np.array(mine).T
        if len(mine) < _MANY_POINTS:
            look |= {"marker": "o", "markersize": 4, "elinewidth": 0.8}
            axes.errorbar(x, mean, (mean - low, high - mean), **look)
        else:
            axes.plot(x, mean, **look)
            axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)


def _ends(axes: Any, marks: Sequence[Mark], styles: Mapping[str, LineStyle]) -> None:
    """Lines that are named at their ends."""
    _lines(axes, marks, styles)
    last = {mark.name: mark for mark in marks}
    top = max(last, key=lambda name: last[name].mean)
    for name, mark in last.items():
        text = f"{textwrap.shorten(name, 20)}\n{mark.mean:.1f}%"
        axes.annotate(text, (mark.place, mark.mean), (6, 0), textcoords="offset points",
                      va="bottom" if name == top else "top", color=_INK)  # fmt: skip
    axes.margins(x=0)


# how to draw, what, and the titles of the axes; captions are in the template
KINDS: Mapping[str, tuple[_Draw, Callable[[_Cell], Iterable[Mark]], str, str]] = {
    "table": (_intervals, _gains, "gain, points", ""),
    "waterfall": (_intervals, _gains, "gain, points", ""),
    "streams": (_intervals, _streams, "gain, points", ""),
    "noise": (_lines, _numbers, "setting", "accuracy, %"),
    "sweep": (_lines, _numbers, "value", "accuracy, %"),
    "shots": (_lines, _numbers, "images per class", "accuracy, %"),
    "learning": (_ends, _learning, "images seen", "running accuracy, %"),
    "cold_start": (_lines, _cold_start, "images seen", "running accuracy, %"),
    "purity": (_lines, _purity, "images seen", "cache errors, %"),
}
