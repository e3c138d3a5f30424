"""``crg demo``: images that the package renders, shifted, through every method."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import click
from msgspec.structs import replace

from crg.atomic import check_ours, locked
from crg.bench.design import Design, completed, read_design
from crg.bench.plan import plan
from crg.bench.run import EngineOptions, append_new, galleries
from crg.bench.sources import find_sources
from crg.cli.bench import encoding_shown
from crg.cli.compare import (
    comparison_options,
    end_with,
    parse_methods,
    print_experiments,
    run_missing,
)
from crg.cli.progress import display
from crg.cli.shared import loaded_plugins, plugin_option, read_results
from crg.report import page
from crg.report.experiment import experiments_of
from crg.threads import processors

RESULTS = "demo.jsonl"


@click.command()
@click.option("--shift", default="night", show_default=True,
              help="sketch, night, fog, blur, noise, recoloured, or clean for none.")  # fmt: skip
@click.option("--severity", default=3, show_default=True, type=click.IntRange(1, 5),
              help="How strong the shift is.")  # fmt: skip
@click.option("--images", default=960, show_default=True, type=click.IntRange(min=2),
              help="How many images to render.")  # fmt: skip
@click.option("--views", default=8, show_default=True, type=click.IntRange(min=1),
              help="Views per image.")  # fmt: skip
@click.option("--methods", "texts", multiple=True, metavar="LIST",
              help="As in crg compare.  [default: zero_shot,tda,dpe,crg,anchored]")  # fmt: skip
@click.option("--report", default="report.html", show_default=True,
              type=click.Path(path_type=Path, dir_okay=False), help="Page to write.")  # fmt: skip
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="Keep the encoded images and the results in this folder.")  # fmt: skip
@comparison_options
@plugin_option
def demo(
    shift: str,
    severity: int,
    images: int,
    views: int,
    texts: tuple[str, ...],
    report: Path,
    keep: Path | None,
    orders: int,
    workers: int | None,
    as_json: bool,
) -> None:
    """Render shifted images, encode them with the bundled model, and compare the methods.

    Nothing is downloaded. Prints the table and writes a page with plots and examples.

    \b
    Example:
      crg demo
      crg demo --shift fog --severity 4 --report fog.html
      crg demo --keep shapes && crg compare shapes/night-3-960x8 --methods crg
    """
    check_ours(report, page.MARK.encode(), "--report")
    design = _design(shift, severity, images, views, texts, orders)
    with locked(report), _folder(keep) as folder:
        options = EngineOptions(workers=workers)
        sources, count = find_sources(design, (), folder), workers or processors()
        with display("datasets", 1) as shown:
            planned = plan(design, sources, folder, loaded_plugins(), count, encoding_shown(shown))
        known = read_results(folder / RESULTS)
        failed = run_missing(planned, known, options, is_kept=keep is not None)
        for line in galleries(planned.outline, known.refresh().runs):
            append_new(known, line)
        experiments = experiments_of(known.refresh(), design.name)
        page.write(experiments, report)
    print_experiments(experiments, as_json)
    click.echo(f"{report} shows it with plots and images.", err=True)
    end_with(failed)


def _design(
    shift: str, severity: int, images: int, views: int, texts: tuple[str, ...], orders: int
) -> Design:
    """The bundled design with what was asked for in its place."""
    with resources.as_file(resources.files("crg.bench") / "demo.toml") as file:
        design = read_design(file)
    [data] = design.data
    data = replace(data, shapes=(shift,), severity=severity, images=images, views=views)
    rows = tuple(parse_methods(texts)) if texts else design.rows
    return completed(replace(design, data=(data,), rows=rows, orders=orders))


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Where images and results go: kept, or gone with the command."""
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
