"""``crg demo``: images that the package renders, shifted, through every method."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from crg.atomic import replacing
from crg.bench.demo import Scenery, demonstrate, encode_scenery, titled
from crg.bench.grid import plan_grid, summarise, with_baseline
from crg.cli.compare import (
    DEFAULT_METHODS,
    comparison_options,
    parse_variants,
    print_summary,
    run_with_progress,
)
from crg.cli.shared import loaded_plugins, plugin_option, progress
from crg.encoding.job import EncodingProgress
from crg.report.html import demonstration_page
from crg.report.page import check as check_page

_DEFAULT = Scenery()


@click.command()
@click.option("--shift", default=_DEFAULT.shift, show_default=True,
              help="sketch, night, fog, blur, noise, recoloured, or clean for none.")  # fmt: skip
@click.option("--severity", default=_DEFAULT.severity, show_default=True,
              type=click.IntRange(1, 5), help="How strong the shift is.")  # fmt: skip
@click.option("--images", default=_DEFAULT.images, show_default=True,
              type=click.IntRange(min=2), help="How many images to render.")  # fmt: skip
@click.option("--views", default=_DEFAULT.views, show_default=True,
              type=click.IntRange(min=1), help="Views per image.")  # fmt: skip
@click.option("--methods", "texts", multiple=True, default=[DEFAULT_METHODS], show_default=True,
              metavar="LIST", help="As in crg compare.")  # fmt: skip
@click.option("--report", default="report.html", show_default=True,
              type=click.Path(path_type=Path, dir_okay=False), help="Page to write.")  # fmt: skip
@click.option("--keep", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Keep the encoded images in this store.")  # fmt: skip
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
    seed: int,
    workers: int,
    as_json: bool,
    layout: str,
) -> None:
    """Render shifted images, encode them with the bundled model, and compare the methods.

    Nothing is downloaded. Prints the table and writes a page with plots and examples.

    \b
    Example:
      crg demo
      crg demo --shift fog --severity 4 --report fog.html
      crg demo --keep night-store && crg run night-store --method crg
    """
    variants = with_baseline(parse_variants(texts))
    scenery = Scenery(shift, severity, images, views, seed)
    check_page(report, "--report")
    with _store(keep) as store:
        with _bar(images) as tell:
            dataset = encode_scenery(scenery, store, workers, tell)
        grid = plan_grid([str(store)], variants, range(seed, seed + orders), loaded_plugins())
        finished = run_with_progress(grid, None, resume=False, workers=workers)
        summary = titled(summarise(grid, finished), scenery.title if keep is None else str(keep))
        shown = demonstrate(scenery, dataset, store, grid, finished, summary)
    with replacing(report) as partial:
        partial.write_text(demonstration_page(shown), encoding="utf-8")
    print_summary(summary, as_json, layout)
    click.echo(f"{report} shows it with plots and images.", err=True)


@contextmanager
def _store(keep: Path | None) -> Iterator[Path]:
    """Where the encoded images go: kept, or gone with the command."""
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder, "store")


@contextmanager
def _bar(images: int) -> Iterator[Callable[[EncodingProgress], None]]:
    with progress("rendering and encoding", images) as advance:
        done = 0

        def tell(now: EncodingProgress) -> None:
            nonlocal done
            for _ in range(now.done - done):
                advance()
            done = max(done, now.done)

        yield tell
