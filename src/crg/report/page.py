"""The report page: one file that needs nothing but itself, rendered from a template."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from crg.atomic import replacing
from crg.extras import library
from crg.report import figures, layout
from crg.report.experiment import Experiment
from crg.results import schema

MARK = 'content="crg"'  # marks our pages
TITLE = "Test-time adaptation: measured results"


def write(experiments: Sequence[Experiment], path: Path, title: str = TITLE) -> None:
    """Write the page of some experiments, replacing an older one."""
    text = render(experiments, title)
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def render(experiments: Sequence[Experiment], title: str = TITLE) -> str:
    """The whole page as HTML."""
    package, jinja2 = resources.files("crg.report"), library("jinja2", "report")
    shared = resources.files("crg.predict") / "cards" / "page.css"
    script = package.joinpath("download.js").read_text("utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: package.joinpath(name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode()
    text: str = environment.get_template("template.html.j2").render(
        mark=MARK,
        style=shared.read_text("utf-8") + package.joinpath("style.css").read_text("utf-8"),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=title,
        experiments=experiments,
        facts=_facts(experiments),
        versions=_versions(experiments),
        figures=figures,
        layout=layout,
        schema=schema,
    )
    return text.lstrip()


def _facts(experiments: Sequence[Experiment]) -> dict[str, int]:
    """The numbers of methods, datasets, experiments, runs and stream orders."""
    measured = [(e, c, each) for e in experiments for c in e.comparisons for each in c.results
                if each.accuracy is not None]  # fmt: skip
    facts = {
        "method": len({each.row.method for _, _, each in measured}),
        "dataset": len({c.source.name for _, c, _ in measured if not c.source.then}),
        "experiment": len(experiments),
        "run": len({(e.path, line) for e, _, each in measured for line in each.lines}),
        "stream order": max((len(e.outline.seeds) for e in experiments), default=0),
    }
    return {name if n == 1 else f"{name}s": n for name, n in facts.items()}


def _versions(experiments: Sequence[Experiment]) -> dict[str, str]:
    """Times, versions and machines of all runs, each value once."""
    found: dict[str, dict[str, None]] = {}
    for experiment in experiments:
        for name, values in experiment.machine.items():
            found.setdefault(name.replace("_", " "), {}).update(dict.fromkeys(values))
    times = sorted(found.pop("measured", ()))
    measured = {"measured": f"{times[0]} to {times[-1]}"} if times else {}
    return measured | {name: ", ".join(values) for name, values in found.items()}
