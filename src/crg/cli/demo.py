"""``crg demo``: images that the package renders, shifted, through several methods."""

from __future__ import annotations

import dataclasses
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from crg.atomic import check_ours, locked, replacing
from crg.bench.design import completed, parse_methods, read_design
from crg.bench.plan import plan
from crg.bench.run import EngineOptions, add_galleries
from crg.bench.sources import find_sources
from crg.cli.compare import end_with, orders_option, print_experiments, run_missing
from crg.cli.progress import Display
from crg.cli.shared import FILE, POSITIVE, loaded_plugins
from crg.report import figures, page
from crg.report.experiment import experiments_of
from crg.results import ledger
from crg.threads import processors


@click.command()
@click.option("--shift", default="fog", show_default=True,
              help="sketch, night, fog, blur, noise, recoloured, or clean for none.")  # fmt: skip
@click.option("--severity", default=3, show_default=True, type=click.IntRange(1, 5),
              help="How strong the shift is.")  # fmt: skip
@click.option("--images", default=960, show_default=True, type=click.IntRange(min=2),
              help="How many images to render.")  # fmt: skip
@click.option("--views", default=1, show_default=True, type=POSITIVE,
              help="Views per image.")  # fmt: skip
@click.option("--methods", "texts", multiple=True, metavar="LIST",
              help="As in crg compare.  [default: anchored,tda,dpe,crg]")  # fmt: skip
@click.option("--report", default="report.html", show_default=True,
              type=FILE, help="Page to write.")  # fmt: skip
@click.option("--picture", type=FILE, metavar="FILE",
              help="Also draw corrected images and running accuracy into this SVG.")  # fmt: skip
@orders_option
def demo(
    texts: tuple[str, ...], report: Path, picture: Path | None, orders: int, shift: str, **data: Any
) -> None:
    """Render shifted images, encode them with the bundled model, and compare the methods.

    Nothing is downloaded. Prints the table and writes a page that shows the first method's
    running accuracy beside zero-shot's, answers that it changed, and all methods.

    \b
    Example:
      crg demo
      crg demo --shift night --severity 5 --report night.html
      crg --plugin my_method.py demo --methods my_method,anchored
    """
    check_ours(report, page.MARK.encode(), "--report")
    if picture is not None:
        check_ours(picture, figures.PICTURE.encode(), "--picture")
    with resources.as_file(resources.files("crg.bench") / "demo.toml") as file:
        design = read_design(file)
    [shapes] = [replace(each, shapes=(shift,), **data) for each in design.data]
    rows = tuple(parse_methods(texts)) if texts else design.rows
    design = completed(replace(design, data=(shapes,), rows=rows, orders=orders))
    with locked(report), tempfile.TemporaryDirectory() as temporary:
        folder, own = Path(temporary), loaded_plugins()
        sources = find_sources(design, (), folder)
        with Display("datasets", 1) as shown:
            planned = plan(design, sources, folder, own, processors(), shown.encoding)
        known = ledger.read(folder / "demo.jsonl")
        failed = run_missing(planned, known, EngineOptions(), is_kept=False)
        add_galleries(planned.outline, known)
        [experiment] = experiments_of(known.refresh(), design.name)
        experiment = dataclasses.replace(experiment, path="")  # the file is about to go
        page.write([experiment], report, design.title)
    if picture is not None:
        with replacing(picture) as partial:
            partial.write_text(figures.picture(experiment), encoding="utf-8")
    print_experiments([experiment])
    click.echo(f"{report} shows it with plots and images.", err=True)
    end_with(failed)
