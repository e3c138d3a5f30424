"""The page of ``crg demo`` from its own summary, until the demo is an experiment like others."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from crg.bench.demo import Demonstration, Example
from crg.report import figures, page
from crg.report.tables import summary_table
from crg.results.schema import ShownImage


def demonstration_page(shown: Demonstration) -> str:
    """The page of ``crg demo``."""
    [rows] = shown.summary["files"].values()
    panels = [("running accuracy, %", shown.running), ("cache purity, %", shown.purity)]
    drawn = tuple(
        page.Panel(title, figures.to_svg(figures.line_figure(lines, "images seen", title), title))
        for title, lines in panels
        if lines
    )
    return page.render_demo(
        title=shown.title,
        table=summary_table(rows, ""),
        figure=page.Figure("Mean over stream orders.", drawn),
        gallery={
            f"corrected: {shown.n_corrected}": _images(shown.corrected, shown.shown),
            f"broken: {shown.n_broken}": _images(shown.broken, shown.shown),
        },
        facts=shown.facts,
    )


def _images(examples: Sequence[Example], label: str) -> list[ShownImage]:
    return [
        ShownImage("", base64.b64encode(each.png).decode(), each.truth,
                   {"zero_shot": each.zero_shot, label: each.adapted})
        for each in examples
    ]  # fmt: skip
