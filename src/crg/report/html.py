"""One self-contained page: style, plots and images are all in the file."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from crg.report.charts.axes import Axis
from crg.report.style import STYLE
from crg.report.writing import GENERATOR

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 16, 44  # the right margin holds the names of the lines

# Okabe and Ito's colours, which most colour-blind people can tell apart; zero-shot is grey.
COLOURS = ("#777777", "#e69f00", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8a800")

_DASHES = ("none", "9 5", "3 4")

Points = Sequence[tuple[float, float]]
Curve = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Example:
    """An image whose answer adaptation changed."""

    png: bytes
    truth: str
    zero_shot: str
    adapted: str


@dataclass(frozen=True)
class Demonstration:
    """All that the page shows."""

    title: str
    summary: Mapping[str, Any]  # of one file
    shown: str  # label of the row whose changed answers are shown
    running: Mapping[str, Curve]  # per row: images seen and running accuracy in %
    purity: Mapping[str, Curve]  # per row with a cache: images seen and purity in %
    corrected: tuple[Example, ...]  # wrong zero-shot, right with adaptation
    broken: tuple[Example, ...]  # the other way round
    n_corrected: int  # in the first order, of which the examples are the first
    n_broken: int
    facts: Mapping[str, Any]  # how it was made


def palette(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, so that a name has one colour on all charts of a page."""
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}


def line_chart(
    lines: Mapping[str, Points], x_title: str, y_title: str, colours: Mapping[str, str]
) -> str:
    """One line per name; the names stand at the ends of the lines."""
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    x, y = _horizontal(min(xs), max(xs)), _vertical(*_roomy(min(ys), max(ys)))
    parts = [_frame(x, y, x_title, y_title)]
    ends = _apart([y.place(points[-1][1]) for points in lines.values()])
    for number, (name, points) in enumerate(lines.items()):
        colour = colours[name]
        path = " ".join(f"{x.place(a):.1f},{y.place(b):.1f}" for a, b in points)
        dashes = _DASHES[number % len(_DASHES)]  # lines that lie on each other can both be seen
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" '
            f'stroke-dasharray="{dashes}"/>'
        )
        parts.append(_text(x.end + 8, ends[number] + 4, name, colour=colour))
    return _svg(parts, f"{y_title} against {x_title}")


def spread_chart(
    values: Mapping[str, Sequence[float]], y_title: str, colours: Mapping[str, str]
) -> str:
    """One column per name: a dot for each value and a bar at their mean."""
    every = [value for each in values.values() for value in each]
    y = _vertical(*_roomy(min(every), max(every)))
    x = Axis(-0.5, len(values) - 0.5, LEFT, WIDTH - 16)
    parts = [_frame(x, y, "", y_title, names=list(values))]
    for number, (name, dots) in enumerate(values.items()):
        colour, middle = colours[name], x.place(number)
        mean = sum(dots) / len(dots)
        parts.append(
            f'<line x1="{middle - 26:.1f}" x2="{middle + 26:.1f}" y1="{y.place(mean):.1f}" '
            f'y2="{y.place(mean):.1f}" stroke="{colour}" stroke-width="4"/>'
        )
        parts += [
            f'<circle cx="{middle + 5 * (place - (len(dots) - 1) / 2):.1f}" '
            f'cy="{y.place(dot):.1f}" r="3.5" fill="{colour}" fill-opacity="0.55"/>'
            for place, dot in enumerate(dots)
        ]
        parts.append(_text(middle, y.place(max(dots)) - 8, f"{mean:.1f}", colour, "middle"))
    return _svg(parts, f"{y_title} of {', '.join(values)}")


def _frame(x: Axis, y: Axis, x_title: str, y_title: str, names: Sequence[str] | None = None) -> str:
    """Grid lines, ticks and titles."""
    parts = []
    for tick in y.ticks():
        height = y.place(tick)
        parts.append(
            f'<line x1="{x.start}" x2="{x.end}" y1="{height:.1f}" y2="{height:.1f}" '
            'stroke="currentColor" stroke-opacity="0.15"/>'
        )
        parts.append(_text(x.start - 8, height + 4, f"{tick:g}", anchor="end"))
    marks = [(float(n), name) for n, name in enumerate(names)] if names else [
        (tick, f"{tick:g}") for tick in x.ticks()
    ]  # fmt: skip
    parts += [_text(x.place(at), y.start + 18, text, anchor="middle") for at, text in marks]
    parts.append(_text((x.start + x.end) / 2, HEIGHT - 6, x_title, anchor="middle"))
    middle = (y.start + y.end) / 2
    parts.append(
        f'<text x="14" y="{middle:.1f}" text-anchor="middle" fill="currentColor" '
        f'transform="rotate(-90 14 {middle:.1f})">{escape(y_title)}</text>'
    )
    return "".join(parts)


def _horizontal(low: float, high: float) -> Axis:
    return Axis(low, high if high > low else low + 1, LEFT, WIDTH - RIGHT)


def _vertical(low: float, high: float) -> Axis:
    return Axis(low, high, HEIGHT - BOTTOM, TOP)


def _roomy(low: float, high: float) -> tuple[float, float]:
    """The range with some room around it, so that no dot lies on the edge."""
    room = 0.12 * (high - low) or 1.0
    return low - room, high + room


def _apart(places: Sequence[float], least: float = 15.0) -> list[float]:
    """The places pushed downwards just so far that texts there do not overlap."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    moved = list(places)
    for above, below in itertools.pairwise(order):
        moved[below] = max(moved[below], moved[above] + least)
    return moved


def _text(
    x: float, y: float, text: str, colour: str = "currentColor", anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">'
        f"{escape(text)}</text>"
    )


def _svg(parts: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label, quote=True)}" '
        f'font-family="inherit" font-size="13">{"".join(parts)}</svg>'
    )


_COLUMNS = (
    ("accuracy %", "mean and standard deviation over stream orders"),
    ("gain in points", "over zero-shot, with its 95% interval"),
    ("ECE %", "expected calibration error: how far confidence is from accuracy"),
    ("cache purity %", "cached images that are filed under their own class, at the end"),
    ("ms per image", "cost of the method alone, without the encoder"),
)


def demonstration_page(shown: Demonstration) -> str:
    """The page of ``crg demo``."""
    [rows] = shown.summary["files"].values()
    accuracy = {
        label: [100 * value for value in row["accuracy"]["per_order"]]
        for label, row in rows.items()
    }
    colours = palette(rows)
    sections = [
        f"<p class='lead'>{escape(_lead(rows, shown.shown))}</p>",
        _table(rows),
        _figure(
            spread_chart(accuracy, "accuracy %", colours),
            "A dot per stream order, a bar at the mean.",
        ),
        "<h2>As the stream goes on</h2>",
        _figure(
            line_chart(shown.running, "images seen", "right so far, %", colours),
            "Share of right answers so far, mean over stream orders.",
        ),
        *_purity(shown.purity, colours),
        "<h2>Answers that adaptation changed</h2>",
        f"<p>In the first stream order {escape(shown.shown)} corrected "
        f"{shown.n_corrected} answers "
        f"of zero-shot and broke {shown.n_broken}. These are the first of each.</p>",
        _gallery("Corrected", shown.corrected),
        _gallery("Broken", shown.broken),
        "<h2>How this was made</h2>",
        _facts(shown.facts),
    ]
    return _page(shown.title, sections)


def _lead(rows: Mapping[str, Any], label: str) -> str:
    base = next(row for row in rows.values() if row["method"] == "zero_shot")
    sentence = f"Zero-shot is right on {100 * base['accuracy']['mean']:.1f}% of these images"
    if rows[label]["method"] == "zero_shot":
        return f"{sentence}."
    accuracy = rows[label]["accuracy"]
    spread = f" ± {100 * accuracy['std']:.1f}" if accuracy["std"] else ""
    return (
        f"{sentence}; {label}, adapting while it predicts and without any label, on "
        f"{100 * accuracy['mean']:.1f}{spread}%."
    )


def _table(rows: Mapping[str, Any]) -> str:
    head = "".join(f"<th title='{escape(tip, quote=True)}'>{name}</th>" for name, tip in _COLUMNS)
    body = "".join(
        f"<tr{' class=best' if row['best'] else ''}><th>{escape(label)}</th>"
        + "".join(f"<td>{cell}</td>" for cell in _cells(row))
        + "</tr>"
        for label, row in rows.items()
    )
    return (
        f"<div class='wide'><table><thead><tr><th>method</th>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _cells(row: Mapping[str, Any]) -> Iterable[str]:
    accuracy, gain = row["accuracy"], row["gain"]
    spread = "" if accuracy["std"] is None else f" ± {100 * accuracy['std']:.2f}"
    yield f"{100 * accuracy['mean']:.2f}{spread}"
    if row["method"] == "zero_shot" or gain is None:
        yield "-"
    else:
        low, high = 100 * gain["low"], 100 * gain["high"]
        yield f"{100 * gain['mean']:+.2f}<br><small>{low:+.2f} to {high:+.2f}</small>"
    yield f"{100 * row['ece']:.1f}"
    yield "-" if row["purity"] is None else f"{100 * row['purity']:.1f}"
    yield f"{row['ms_per_step']:.2f}"


def _purity(curves: Mapping[str, Any], colours: Mapping[str, str]) -> list[str]:
    if not curves:
        return []
    chart = line_chart(curves, "images seen", "cache purity, %", colours)
    return [_figure(chart, "Cached images that are filed under their own class.")]


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _gallery(title: str, examples: Sequence[Example]) -> str:
    if not examples:
        return f"<h3>{title}</h3><p>None.</p>"
    return f"<h3>{title}</h3><div class='gallery'>{''.join(map(_card, examples))}</div>"


def _card(example: Example) -> str:
    data = base64.b64encode(example.png).decode()
    return (
        f"<figure class='card'><img alt='{escape(example.truth, quote=True)}' "
        f"src='data:image/png;base64,{data}'>"
        f"<figcaption>zero-shot: {_judged(example.zero_shot, example.truth)}<br>"
        f"adapted: {_judged(example.adapted, example.truth)}</figcaption></figure>"
    )


def _judged(label: str, truth: str) -> str:
    kind, mark = ("right", "✓") if label == truth else ("wrong", "✗")
    return f"<span class='{kind}'>{escape(label)} {mark}</span>"


def _facts(facts: Mapping[str, Any]) -> str:
    rows = (
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items()
    )
    return f"<dl>{''.join(rows)}</dl>"


def _page(title: str, sections: Sequence[str]) -> str:
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"{GENERATOR}<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{''.join(sections)}</main></body></html>\n"
    )
