"""``crg demo``: the methods on a stream that the package makes itself."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from crg.cli.compare import (
    DEFAULT_METHODS,
    comparison_options,
    print_summary,
    run_with_progress,
)
from crg.cli.shared import loaded_plugins, plugin_option
from crg.cli.variants import parse_variants
from crg.comparison import summarise, with_baseline
from crg.features import write_features
from crg.grid import plan_grid
from crg.synthetic import gaussian_stream

TITLE = "made Gaussian stream"


@click.command()
@click.option("--methods", "texts", multiple=True, default=[DEFAULT_METHODS], show_default=True,
              metavar="LIST", help="As in crg compare.")  # fmt: skip
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the stream in this file.")
@comparison_options
@plugin_option
def demo(
    texts: tuple[str, ...],
    keep: Path | None,
    orders: int,
    seed: int,
    workers: int,
    as_json: bool,
    layout: str,
) -> None:
    """Compare the methods on a small made stream; no data is needed.

    \b
    Example:
      crg demo
      crg demo --keep stream.npz && crg run stream.npz --method crg
    """
    variants = with_baseline(parse_variants(texts))
    with tempfile.TemporaryDirectory() as folder:
        path = keep or Path(folder, "demo.npz")
        write_features(path, gaussian_stream())
        grid = plan_grid([str(path)], variants, range(seed, seed + orders), loaded_plugins())
        finished = run_with_progress(grid, None, resume=False, workers=workers)
    summary = summarise(grid, finished)
    print_summary(summary if keep else _retitled(summary), as_json, layout)


def _retitled(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The same under a name instead of the path of a file that is gone by now."""
    [rows], [facts] = summary["files"].values(), summary["data"].values()
    named = {"files": {TITLE: rows}, "data": {TITLE: {**facts, "path": TITLE}}}
    return {**summary, **named}
