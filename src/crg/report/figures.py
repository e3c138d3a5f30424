"""Figures by matplotlib: SVG for the page, PDF for papers; a panel per dataset.

A method has one colour, line style and marker in all figures. Each kind of figure has one fixed
caption. Text and axes take the colour of the page around them, so that figures suit light and dark.
"""

from __future__ import annotations

import base64
import html
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crg.atomic import check_ours, make_folder, replacing
from crg.extras import library
from crg.images.reading import read_image
from crg.report.contrasts import Point
from crg.report.experiment import Comparison, Experiment, MethodResult
from crg.report.layout import row_name, sources_name
from crg.results.schema import Outline, ShownImage, Variant
from crg.types import InputError

COLD_START = 500  # images
CREATOR = "crg report"  # marks our PDF files
PDF_MARK = f"/Creator ({CREATOR})".encode()
PICTURE = "crg demo: images that adaptation corrects, and running accuracy"  # marks our pictures
_STYLE = ("<style>svg{color:#1c2430;background:#fff;font-family:system-ui,sans-serif}@media "
          "(prefers-color-scheme:dark){svg{color:#e6e9ee;background:#14181e}}</style>")  # fmt: skip
_INK = "#1a2b3c"  # becomes the colour of the page's text
_INCHES = (4.2, 2.9)
WIDE = (10.0, 3.8)  # inches of a figure that fills a wide screen
_STEADY = 50  # images after which the running accuracy is drawn: before, it is mostly noise
_ENOUGH_ANSWERS = 20  # of similar confidence, for their accuracy to be drawn

CAPTIONS = {
    "table": "Gain over zero-shot in percentage points with its 95% interval.",
    "waterfall": "Ablation: gain over zero-shot in percentage points with its 95% interval.",
    "noise": "Accuracy against the fraction of wrong labels among cache insertions; bars are one "
             "standard deviation over stream orders.",
    "learning": "Running accuracy: the fraction of correct answers so far, in the same stream "
                "orders; bands are one standard deviation over orders.",
    "cold_start": f"Cold start: running accuracy over the first {COLD_START} images; bands are one "
                  "standard deviation over stream orders.",
    "streams": "Gain over zero-shot per setting in percentage points with its 95% interval.",
    "purity": "Cache errors: fraction of cached images under a wrong class over the stream.",
    "sweep": "Accuracy against the number varied; bars are one standard deviation over stream "
             "orders.",
    "shots": "Accuracy against images per class in the cache; bars are one standard deviation over "
             "stream orders.",
    "heat": "Accuracy in % over the two numbers varied.",
    "reliability": "Calibration: accuracy against confidence; on the diagonal they agree.",
}  # fmt: skip

# Okabe and Ito's colours, which most colour-blind people can distinguish; zero-shot is grey.
_COLOURS = {
    "zero_shot": "#808080", "tda": "#e69f00", "dpe": "#0072b2", "crg": "#d55e00",
    "gda": "#009e73", "tpt": "#cc79a7", "difftpt": "#56b4e9", "tip_adapter": "#a89a00",
    "coop": "#8c564b", "anchored": "#7b3fb5", "dota": "#17a2a2", "oga": "#b03060",
    "onzeta": "#5a7d2a", "logit_bias": "#3b4cc0", "class_prior": "#c2185b",
}  # fmt: skip
_OTHERS = ("#00838f", "#9e6b00", "#4e7d00", "#6a5acd")
_DASHES = ((0, ()), (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)), (0, (1, 2)))
_MARKERS = "osD^vPX*"
_INKED = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "text.color")
_PLAIN = {
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True)
class LineStyle:
    """Colour, dashes and marker of a method."""

    colour: str
    dashes: tuple[int, tuple[float, ...]]
    marker: str

    @property
    def dash_array(self) -> str:
        """The line style as SVG writes it."""
        return " ".join(str(2 * each) for each in self.dashes[1]) or "none"

    def line(self, marker: bool = False) -> dict[str, Any]:
        """The arguments of a matplotlib line."""
        style = {"color": self.colour, "linestyle": self.dashes, "linewidth": 1.8}
        return {**style, "marker": self.marker, "markersize": 4} if marker else style


def styles_of(rows: Iterable[Variant]) -> dict[str, LineStyle]:
    """A style per label: the method has the colour, its variants differ in line and marker."""
    styles: dict[str, LineStyle] = {}
    variants: dict[str, int] = {}
    unknown: dict[str, str] = {}
    for row in rows:
        colour = _COLOURS.get(row.method) or unknown.setdefault(
            row.method, _OTHERS[len(unknown) % len(_OTHERS)]
        )
        place = 0  # with default options it is the method itself, which looks the same everywhere
        if row.options or row.tuned or row.offline:
            place = variants[row.method] = variants.get(row.method, 0) + 1
        base = list(_COLOURS).index(row.method) if row.method in _COLOURS else 0
        dash = 1 if row.method == "zero_shot" else (place - 1) % 4 + 1 if place else 0
        marker = _MARKERS[(base + place) % len(_MARKERS)]
        styles[row.label] = LineStyle(colour, _DASHES[dash], marker)
    return styles


def drawings_of(
    experiment: Experiment, kind: str | None = None, inches: tuple[float, float] = _INCHES
) -> list[tuple[str, Any]]:
    """The figure that answers the question of an experiment: title and plot per dataset."""
    kind = kind or experiment.outline.figure
    draw = _KINDS.get(kind, _gains)
    styles = styles_of(experiment.outline.rows)
    made = []
    for comparisons in experiment.by_source().values():
        figure, axes = _canvas(inches)
        if draw(axes, experiment.outline, comparisons, styles):
            made.append((sources_name(comparisons), figure))
    return made


def save_pdf(experiments: Iterable[Experiment], folder: Path) -> list[Path]:
    """A PDF per panel, named by experiment and dataset."""
    make_folder(folder, "--figures")
    paths = []
    for experiment in experiments:
        for title, figure in drawings_of(experiment):
            name = re.sub(r"[^\w.-]+", "-", f"{experiment.outline.name}-{title}").strip("-")
            paths.append(folder / f"{name}.pdf")
            check_ours(paths[-1], PDF_MARK, "--figures")
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
    _learning(axes, experiment.outline, [comparison], styles_of(experiment.outline.rows))
    for place, image in enumerate(list(images.values())[:8]):
        _card(figure.add_subplot(grid[place % 4, place // 4]), image)
    said = f"{first.gain.corrected} answers corrected, {first.gain.broken} broken"
    figure.suptitle(f"✗ zero-shot   ✓ adapted: {said}", x=0.01, ha="left", fontsize=9, color=_INK)
    return to_svg(figure, PICTURE).replace("<defs>", f"{_STYLE}<defs>", 1)


def _card(axes: Any, image: ShownImage) -> None:
    """An image, and beside it zero-shot's wrong answer above the right one."""
    axes.imshow(read_image(base64.b64decode(image.png)), interpolation="none")
    axes.set_axis_off()
    axes.set_anchor("W")
    [wrong] = {*image.answers.values()} - {image.truth}
    for y, text in ((0.7, f"✗ {wrong}"), (0.28, f"✓ {image.truth}")):
        axes.text(1.06, y, textwrap.fill(text, 26), transform=axes.transAxes, va="center",
                  fontsize=8, color=_INK, in_layout=False)  # fmt: skip


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
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    found = 1
    while found:  # groups without attributes, innermost first
        svg, found = re.subn(r"<g>((?:<(?!/?g\b)[^>]*>[^<]*)*)</g>", r"\1", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1).strip()


def _canvas(inches: tuple[float, float]) -> tuple[Any, Any]:
    look: Any = dict.fromkeys(_INKED, _INK) | _PLAIN
    with library("matplotlib", "report").rc_context(look):
        figure = library("matplotlib.figure", "report").Figure(inches, layout="constrained")
        axes = figure.add_subplot()
    axes.grid(alpha=0.2, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


_Group = Sequence[Comparison]  # of one dataset
_Styles = Mapping[str, LineStyle]
_Draw = Callable[[Any, Outline, _Group, _Styles], bool]  # whether there was anything to draw


def _gains(axes: Any, outline: Outline, group: _Group, styles: _Styles) -> bool:
    shown = [each for each in group[0].results if each.gain is not None]
    for place, each in enumerate(reversed(shown)):
        _interval(axes, each, place, styles[each.row.label], horizontal=True)
    axes.axvline(0, color=_COLOURS["zero_shot"], lw=1)
    axes.set_ylim(-0.6, len(shown) - 0.4)
    names = [row_name(each.row) for each in reversed(shown)]
    axes.set_yticks(range(len(shown)), [n if len(n) <= 40 else f"{n[:39]}…" for n in names])
    axes.set_xlabel("gain, points")
    axes.figure.set_size_inches(_INCHES[0], max(1.4, 0.28 * len(shown) + 0.8))
    return bool(shown)


def _interval(
    axes: Any, each: MethodResult, place: float, style: LineStyle, horizontal: bool
) -> None:
    assert each.gain is not None
    seen = each.gain.interval
    mean, ends = 100 * seen.mean, [[100 * (seen.mean - seen.low)], [100 * (seen.high - seen.mean)]]
    where = {"xerr": ends} if horizontal else {"yerr": ends}
    point = (mean, place) if horizontal else (place, mean)
    axes.errorbar(*point, **where, color=style.colour, marker=style.marker, markersize=4.5,
                  linewidth=1.6, markerfacecolor=style.colour if each.gain.verdict else "none",
                  )  # fmt: skip


def _streams(axes: Any, outline: Outline, group: _Group, styles: _Styles) -> bool:
    labels = [each.row.label for each in group[0].results if each.gain is not None]
    for number, label in enumerate(labels):
        offset = 0.7 * ((number + 0.5) / len(labels) - 0.5)
        for place, comparison in enumerate(group):
            found = comparison.of(label)
            if found.gain is not None:
                _interval(axes, found, place + offset, styles[label], horizontal=False)
    axes.axhline(0, color="#808080", lw=1)
    names = [textwrap.fill(each.setting.label, 18) for each in group]
    axes.set_xticks(range(len(names)), names, rotation=35, ha="right")
    axes.set_ylabel("gain, points")
    return bool(labels)


def _settings(axes: Any, outline: Outline, group: _Group, styles: _Styles) -> bool:
    """Accuracy where settings are numbers, such as the fraction of wrong labels."""
    for row in outline.rows:
        points = [
            (each.setting.x, found.mean, found.std or 0.0)
            for each in group
            if (found := each.of(row.label).accuracy) and each.setting.x is not None
        ]
        _line(axes, points, styles[row.label], row.label)
    axes.set(xlabel=outline.x_title or "setting", ylabel="accuracy, %")
    return bool(axes.lines)


def _line(axes: Any, points: Sequence[Point], style: LineStyle, label: str) -> None:
    if points:
        x, mean, std = zip(*sorted(points), strict=True)
        axes.errorbar(x, 100 * np.array(mean), 100 * np.array(std), capsize=0,
                      elinewidth=0.8, label=label, **style.line(marker=True))  # fmt: skip


def _rows(axes: Any, outline: Outline, group: _Group, styles: _Styles) -> bool:
    """Accuracy against a number that varies over methods: a line per series, zero-shot flat."""
    series: dict[str, list[Point]] = {}
    methods: dict[str, str] = {}
    for each in group[0].results:
        if each.accuracy is not None and each.row.x is not None:
            name = each.row.series or each.row.method
            point = (each.row.x, each.accuracy.mean, each.accuracy.std or 0.0)
            series.setdefault(name, []).append(point)
            methods.setdefault(name, each.row.method)
    taken = list(methods.values())
    again = {name: n for n, name in enumerate(methods) if taken[n] in taken[:n]}
    own = styles_of(Variant(name, method, {"series": name} if name in again else {})
                  for name, method in methods.items())  # fmt: skip
    for name, points in series.items():
        _line(axes, points, own[name], name)
    base = next((each for each in group[0].results if each.row.is_baseline), None)
    if base is not None and base.accuracy is not None:
        style = styles[base.row.label]
        axes.axhline(100 * base.accuracy.mean, label=base.row.label, **style.line())
    axes.set(xlabel=outline.x_title or "value", ylabel="accuracy, %")
    axes.legend(frameon=False, fontsize=7.5, labelcolor=_INK)
    return bool(series)


def _curves(curve: Callable[[MethodResult], Iterable[Point]], title: str) -> _Draw:
    """A figure of curves over the images seen, with a band of one standard deviation."""

    def draw(axes: Any, outline: Outline, group: _Group, styles: _Styles) -> bool:
        for each in group[0].results:
            _band(axes, list(curve(each)), styles[each.row.label], each.row.label)
        axes.set(xlabel="images seen", ylabel=title)
        return bool(axes.lines)

    return draw


def _band(axes: Any, points: Sequence[Point], style: LineStyle, label: str) -> None:
    if points:
        x, mean, std = np.array(points).T * [[1], [100], [100]]
        axes.plot(x, mean, label=label, **style.line())
        band = {"color": style.colour, "alpha": 0.12, "linewidth": 0}
        axes.fill_between(x, mean - std, mean + std, **band)


def _learning(axes: Any, outline: Outline, group: _Group, styles: _Styles) -> bool:
    """Running accuracy of zero-shot and of the first method, named at the ends of the lines."""
    base, first = group[0].pair() or (None, None)
    if base is None or first is None or not first.baseline_learning:
        return False
    curves = {base.row.label: first.baseline_learning, first.row.label: first.learning}
    top = max(curves, key=lambda label: curves[label][-1][1])
    for label, points in curves.items():
        x, mean, _ = points[-1]
        shown = [point for point in points if point[0] >= min(_STEADY, x)]
        _band(axes, shown, styles[label], label)
        axes.annotate(f"{textwrap.shorten(label, 20)}\n{100 * mean:.1f}%", (x, 100 * mean), (6, 0),
                      textcoords="offset points", va="bottom" if label == top else "top",
                      color=_INK)  # fmt: skip
    axes.set(xlabel="images seen", ylabel="running accuracy, %", xmargin=0)
    return True


def _reliability(axes: Any, outline: Outline, group: _Group, styles: _Styles) -> bool:
    axes.plot([0, 100], [0, 100], color="#808080", lw=1)
    for each in group[0].results:
        bins = [each_bin for each_bin in each.reliability if each_bin[0] >= _ENOUGH_ANSWERS]
        if bins and not each.row.options:
            confidence, accuracy = ([100 * each_bin[n] for each_bin in bins] for n in (1, 2))
            style = styles[each.row.label].line(marker=True)
            axes.plot(confidence, accuracy, label=each.row.label, **style)
    axes.set(xlabel="confidence, %", ylabel="accuracy, %")
    return len(axes.lines) > 1


def _heat(axes: Any, outline: Outline, group: _Group, styles: _Styles) -> bool:
    shown = [each for each in group[0].results if each.accuracy and each.row.options]
    varied = [
        name
        for name in dict.fromkeys(name for each in shown for name in each.row.options)
        if len({str(each.row.options.get(name)) for each in shown}) > 1
    ]
    if len(varied) != 2:
        return _gains(axes, outline, group, styles)
    xs, ys = (sorted({each.row.options[name] for each in shown if name in each.row.options})
              for name in varied)  # fmt: skip
    values = [[float("nan")] * len(xs) for _ in ys]
    for each in shown:
        x, y = (each.row.options.get(name) for name in varied)
        if each.accuracy is not None and x in xs and y in ys:
            values[ys.index(y)][xs.index(x)] = 100 * each.accuracy.mean
    mesh = axes.pcolormesh(values, cmap="cividis")
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            if value == value:
                bright = mesh.norm(value) > 0.5
                axes.text(column + 0.5, row + 0.5, f"{value:.1f}", ha="center", va="center",
                          color="#111111" if bright else "#ffffff", fontsize=8)  # fmt: skip
    axes.set_xticks([n + 0.5 for n in range(len(xs))], [f"{x:g}" for x in xs])
    axes.set_yticks([n + 0.5 for n in range(len(ys))], [f"{y:g}" for y in ys])
    axes.set(xlabel=varied[0], ylabel=varied[1])
    axes.grid(False)
    return True


_KINDS: Mapping[str, _Draw] = {
    "table": _gains,
    "waterfall": _gains,
    "noise": _settings,
    "streams": _streams,
    "learning": _learning,
    "cold_start": _curves(
        lambda each: (point for point in each.learning if point[0] <= COLD_START),
        "running accuracy, %",
    ),
    "purity": _curves(
        lambda each: ((x, 1 - mean, std) for x, mean, std in each.purity_over_time),
        "cache errors, %",
    ),
    "sweep": _rows,
    "shots": _rows,
    "heat": _heat,
    "reliability": _reliability,
}
