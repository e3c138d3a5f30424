"""``crg generate``: variations of images by a diffusion model, made once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from crg.cli.shared import INTERRUPTED, as_plain, print_json, print_skipped, progress
from crg.datasets import load_dataset
from crg.generation.diffusion import DiffusersGenerator
from crg.generation.variations import GenerationProgress, GenerationSummary
from crg.generation.variations import generate as make_variations


@click.command()
@click.argument("images")
@click.option("--weights", required=True, type=click.Path(path_type=Path),
              help="Folder of a StableDiffusionImageVariationPipeline of diffusers.")  # fmt: skip
@click.option("--count", required=True, type=click.IntRange(min=1), metavar="G",
              help="Variations of each image.")  # fmt: skip
@click.option("--out", required=True, type=click.Path(path_type=Path),
              help="Folder of the variations; may be new, or one to continue with.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0),
              help="Seed of the variations.")  # fmt: skip
@click.option("--steps", default=50, show_default=True, type=click.IntRange(min=1),
              help="Steps from noise to image.")  # fmt: skip
@click.option("--guidance", default=3.0, show_default=True, type=click.FloatRange(min=0),
              help="How closely a variation follows its image.")  # fmt: skip
@click.option("--device", help="Where the model runs.  [default: the fastest there is]")
@click.option("--root", type=click.Path(path_type=Path),
              help="Folder that holds the datasets of the catalogue.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1),
              help="Take that many images only, the same that crg encode takes.")  # fmt: skip
@click.option("--draw-seed", default=0, show_default=True, type=click.IntRange(min=0),
              help="Seed of what is drawn at random, as in crg encode.")  # fmt: skip
@click.option("--skip-unreadable", is_flag=True,
              help="Leave out images that cannot be read, and list them.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def generate(images: str, out: Path, as_json: bool, **given: Any) -> None:
    """Make variations of images with a diffusion model, once, for crg encode to add as views.

    IMAGES is a dataset as crg encode takes it. Each variation is a file,
    OUT/ID-OF-THE-IMAGE/0000.png and so on. The job can be stopped and even killed: the same
    command continues where it stopped.

    \b
    Example:
      crg generate dtd --root ~/data --weights sd-image-variations --count 8 --out dtd-made
      crg encode dtd --root ~/data --variations dtd-made --generated 8 --out dtd-generated
      crg compare dtd-generated --methods difftpt
    """
    summary = _generated(images, out, given)
    if as_json:
        print_json(as_plain(summary))
    else:
        _print(summary)


def _generated(name: str, out: Path, given: dict[str, Any]) -> GenerationSummary:
    images = load_dataset(name, root=given["root"], limit=given["limit"], seed=given["draw_seed"])
    generator = DiffusersGenerator(
        given["weights"], given["steps"], given["guidance"], given["device"]
    )
    try:
        with _telling() as tell:
            return make_variations(
                images,
                generator,
                given["count"],
                out,
                seed=given["seed"],
                skip_unreadable=given["skip_unreadable"],
                on_progress=tell,
            )
    except KeyboardInterrupt:
        click.echo(
            f"Stopped: what was made is kept in {out}, and the same command continues from there.",
            err=True,
        )
        click.get_current_context().exit(INTERRUPTED)


@contextlib.contextmanager
def _telling() -> Iterator[Callable[[GenerationProgress], None]]:
    """A bar that counts what this call does, so that the estimate knows its speed."""
    with contextlib.ExitStack() as stack:
        advance: list[Callable[[], None]] = []

        def tell(at: GenerationProgress) -> None:
            if not advance:
                bar = progress("variations", at.total - at.reused)
                advance.append(stack.enter_context(bar))
            if at.done > at.reused:
                advance[0]()

        yield tell


def _print(summary: GenerationSummary) -> None:
    click.echo(
        f"{summary.folder} is finished: {summary.n_images} images, {summary.n_made} "
        f"variations made, {summary.n_reused} were there."
    )
    print_skipped(summary.skipped)
