"""One self-contained page: style, plots and images are all in the file."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from crg.bench.demo import Demonstration, Example
from crg.report.plots import line_chart, palette, spread_chart
from crg.report.style import STYLE
from crg.report.writing import GENERATOR

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
