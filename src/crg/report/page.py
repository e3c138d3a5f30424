"""The report page: one file that needs nothing but itself, rendered from a template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from crg.atomic import replacing
from crg.extras import library
from crg.report import figures, layout
from crg.report.experiment import Experiment
from crg.results.schema import ENOUGH_IMAGES, ENOUGH_ORDERS

MARK = 'content="crg"'  # marks our pages
GENERATOR = f'<meta name="generator" {MARK}>'
TITLE = "Test-time adaptation: measured results"


def write(experiments: Sequence[Experiment], path: Path, title: str = TITLE) -> None:
    """Write the page of some experiments, replacing an older one."""
    text = render(experiments, title)
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def render(experiments: Sequence[Experiment], title: str = TITLE) -> str:
    """The whole page as HTML."""
    shown = distinct(experiments)
    names = {each.outline.name for each in shown}
    same = tuple(each.outline.title for each in experiments if each.outline.name not in names)
    package, jinja2 = resources.files("crg.report"), library("jinja2", "report")
    shared = resources.files("crg.predict") / "cards" / "page.css"
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: package.joinpath(name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text: str = environment.get_template("template.html.j2").render(
        generator=GENERATOR,
        style=shared.read_text("utf-8") + package.joinpath("style.css").read_text("utf-8"),
        title=title,
        story=_story(shown),
        facts=_facts(shown),
        main=layout.main_tables(shown),
        tally=layout.tally_table(shown) if sum(len(e.comparisons) for e in shown) > 1 else None,
        sections=[_section(each) for each in shown],
        same=same,
        flagged=any(source.text_flag for each in shown for source in each.outline.sources),
        versions=_versions(shown),
        enough_orders=ENOUGH_ORDERS,
        enough_images=ENOUGH_IMAGES,
        source_name=layout.source_name,
        row_name=layout.row_name,
    )
    return text.lstrip()


def _story(experiments: Sequence[Experiment]) -> dict[str, Any] | None:
    """The opening of a page about learning on one dataset; None for other pages."""
    found = [(e, c) for e in experiments for c in e.comparisons if e.outline.figure == "learning"]
    if len(found) != 1 or len(experiments) > 1:
        return None
    [(experiment, comparison)] = found
    drawn, pair = figures.drawings_of(experiment, inches=figures.WIDE), comparison.pair()
    if not drawn or pair is None:
        return None
    return {
        "pair": pair,
        "comparison": comparison,
        "images": [each for each in experiment.gallery.get(comparison.source.name, ())
                   if pair[1].row.label in each.answers],
        "wide": figures.to_svg(drawn[0][1], "running accuracy, wide"),
        "gains": _figure(experiment, "table"),
        "table": replace(layout.short_table(comparison), title=""),
    }  # fmt: skip


def _section(experiment: Experiment) -> dict[str, Any]:
    """One experiment as the template shows it."""
    kind = experiment.outline.figure
    return {
        "experiment": experiment,
        "figure": _figure(experiment, kind),
        "calibration": _figure(experiment, "reliability") if kind == "table" else None,
        "tables": layout.tables_of(experiment),
        "not_run": layout.not_run_line(experiment),
    }


def _figure(experiment: Experiment, kind: str) -> dict[str, Any] | None:
    """A caption, (title, SVG) per panel, and (label, style) per method of the legend."""
    drawn = figures.drawings_of(experiment, kind)
    if not drawn:
        return None
    name = f"{experiment.outline.name} {kind}"
    panels = [(title, figures.to_svg(each, f"{name}: {title}")) for title, each in drawn]
    legend = {}
    if kind in ("noise", "streams", "cold_start", "purity", "reliability"):  # else: on the axes
        styles = figures.styles_of(experiment.outline.rows)
        legend = {label: styles[label] for _, each in drawn for label in _labels(experiment, each)}
    caption = figures.CAPTIONS.get(kind, figures.CAPTIONS["table"])
    return {"caption": caption, "panels": panels, "legend": legend.items()}


def _labels(experiment: Experiment, figure: Any) -> list[str]:
    """The methods that a panel shows, in the order of the experiment."""
    gains = {each.row.label for c in experiment.comparisons for each in c.results if each.gain}
    drawn = figure.axes[0].get_legend_handles_labels()[1] or gains
    return [row.label for row in experiment.outline.rows if row.label in drawn]


def _facts(experiments: Sequence[Experiment]) -> dict[str, int]:
    """The numbers of methods, datasets, experiments, runs and stream orders."""
    comparisons = [each for experiment in experiments for each in experiment.comparisons]
    measured = [each for c in comparisons for each in c.results if each.accuracy is not None]
    facts = {
        "methods": len({each.row.method for each in measured}),
        "datasets": len({each.source.name for each in comparisons}),
        "experiments": len(experiments),
        "runs": len({(e.path, line) for e in experiments for c in e.comparisons
                     for each in c.results for line in each.lines}),
        "stream orders": max((len(e.outline.seeds) for e in experiments), default=0),
    }  # fmt: skip
    return {name if n != 1 else name.removesuffix("s"): n for name, n in facts.items()}


def _versions(experiments: Sequence[Experiment]) -> dict[str, str]:
    """Times, versions and machines of all runs, each value once."""
    found: dict[str, dict[str, None]] = {}
    for experiment in experiments:
        for name, values in experiment.machine.items():
            found.setdefault(name.replace("_", " "), {}).update(dict.fromkeys(values))
    times = sorted(found.pop("measured", ()))
    measured = {"measured": f"{times[0]} to {times[-1]}"} if times else {}
    return measured | {name: ", ".join(values) for name, values in found.items()}


def distinct(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Without comparisons of the same methods on the same images in an earlier experiment."""
    shown: dict[Any, str] = {}
    kept: list[Experiment] = []
    for experiment in experiments:
        own = []
        for each in experiment.comparisons:
            rows = [(row.method, sorted(map(str, row.options.items())))
                    for row in experiment.outline.rows]  # fmt: skip
            facts = (each.source.sha256 or each.source.name, str(each.setting.scenario), str(rows))
            if shown.setdefault(facts, experiment.outline.name) == experiment.outline.name:
                own.append(each)
        kept.append(replace(experiment, comparisons=tuple(own)))
    return [each for each in kept if each.comparisons or not any(e.comparisons for e in kept)]
