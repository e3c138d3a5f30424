"""``crg encode``: images become features, kept in a store."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from crg.cli.shared import (
    INTERRUPTED,
    F,
    as_plain,
    note,
    print_json,
    print_skipped,
    progress,
    text_features_option,
)
from crg.datasets import SHAPES, load_dataset
from crg.datasets.catalog import SPLITS, TEST
from crg.encoding import EncodingProgress, EncodingSummary, Wording, summary_of
from crg.encoding import encode as run_encoding
from crg.features.class_features import load_with_classes
from crg.generation.variations import Variations
from crg.images.views import Recipe
from crg.types import InputError

_SECONDS_BETWEEN_LINES = 60.0  # where there is no terminal


def _image_options(command: F) -> F:
    for option in reversed((
        click.option("--root", type=click.Path(path_type=Path),
                     help="Folder that holds the datasets of the catalogue."),
        click.option("--split", default=TEST, show_default=True, type=click.Choice(SPLITS),
                     help="Which images of a dataset of the catalogue."),
        click.option("--limit", type=click.IntRange(min=1),
                     help="Encode that many images only, drawn at random."),
        click.option("--shots", type=click.IntRange(min=1),
                     help="Encode at most that many images of each class, drawn at random."),
        click.option("--draw-seed", default=0, show_default=True, type=click.IntRange(min=0),
                     help="Seed of what is drawn at random, and of shapes that are rendered."),
        click.option("--skip-unreadable", is_flag=True,
                     help="Leave out images that cannot be read, and list them."),
        click.option("--views", default=64, show_default=True, type=click.IntRange(min=1),
                     help="Views of each image, the original included."),
        click.option("--augment", default="crops", show_default=True,
                     type=click.Choice(["crops", "augmix"]), help="How views are made."),
        click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0),
                     help="Seed of the views."),
        click.option("--smallest-crop", default=Recipe.smallest, show_default=True, type=float,
                     metavar="FRACTION",
                     help="Smallest part of the image that a view may show, by area."),
        click.option("--variations", type=click.Path(path_type=Path),
                     help="Folder of generated variations, which are added as the last views; "
                          "crg generate makes one."),
        click.option("--generated", type=click.IntRange(min=1), metavar="G",
                     help="How many variations of each image are added."),
    )):  # fmt: skip
        command = option(command)
    return command


def _model_options(command: F) -> F:
    for option in reversed((
        click.option("--model", default="mini", show_default=True,
                     help="Encoder; crg encoders lists them."),
        text_features_option,
        click.option("--device", help="Where the model runs.  [default: the fastest there is]"),
        click.option("--precision", help="fp32, fp16 or bf16.  [default: as suits the device]"),
        click.option("--template", "templates", multiple=True, metavar="TEXT",
                     help="Prompt with {} for the class; may be repeated.  "
                          "[default: the dataset's own]"),
        click.option("--prompts", "mode", default="template", show_default=True,
                     type=click.Choice(["template", "descriptions", "both"]),
                     help="What describes a class."),
        click.option("--descriptions", type=click.Path(path_type=Path),
                     help="JSON file with sentences for each class."),
    )):  # fmt: skip
        command = option(command)
    return command


def _engine_options(command: F) -> F:
    for option in reversed((
        click.option("--batch", default=256, show_default=True, type=click.IntRange(min=1),
                     help="Views that the model is given at once."),
        click.option("--workers", type=click.IntRange(min=1),
                     help="Threads that make views, or Ray actors.  [default: one per processor]"),
        click.option("--engine", default="local", show_default=True,
                     type=click.Choice(["local", "ray"]), help="Who does the work."),
        click.option("--address", help="Ray cluster to use.  [default: one on this machine]"),
    )):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("dataset", required=False)
@click.option("--out", required=True, type=click.Path(path_type=Path),
              help="Folder of the store; may be new, or one to continue with.")  # fmt: skip
@click.option("--check", is_flag=True, help="Encode nothing; check a finished store instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_image_options
@_model_options
@_engine_options
def encode(dataset: str | None, out: Path, check: bool, as_json: bool, **given: Any) -> None:
    """Encode the images of a dataset once, for every run to read.

    DATASET is a name that crg datasets lists, shapes, shapes:SHIFT:SEVERITY, a folder with one
    folder per class, or a CSV file with a path and a label per line. The job can be stopped and
    even killed: the same command continues where it stopped.

    \b
    Example:
      crg encode shapes:night:3 --model mini --views 16 --limit 500 --out night
      crg encode dtd --root ~/data --model ViT-B-16 --views 64 --out dtd-store
      crg encode dtd --root ~/data --split train --shots 16 --views 1 --out dtd-labelled
      crg compare night --methods crg
      crg encode dtd --root ~/data --variations dtd-made --generated 8 --out dtd-generated
      crg encode --out night --check
    """
    if check:
        summary = summary_of(out)
    elif dataset is None:
        raise InputError("There is no dataset: name one, or use --check to check a store.")
    else:
        if dataset == SHAPES and Path(dataset).is_dir():
            note(f"{dataset} is a dataset of this name; for the folder write ./{dataset}.")
        summary = _encoded(dataset, out, given)
    if as_json:
        print_json(as_plain(summary))
    else:
        _print(summary, "is sound" if check else "is finished")


def _encoded(name: str, out: Path, given: dict[str, Any]) -> EncodingSummary:
    which = {key: given[key] for key in ("root", "split", "limit", "shots")}
    images = load_dataset(name, **which, seed=given["draw_seed"])
    options = {key: given[key] for key in ("text_features", "device", "precision")}
    load = functools.partial(load_with_classes, given["model"], **options)
    try:
        with _telling() as tell:
            return run_encoding(
                images,
                load(),
                Recipe(given["views"], given["augment"], given["seed"], given["smallest_crop"]),
                out,
                wording=Wording(given["templates"] or None, given["descriptions"], given["mode"]),
                variations=_variations(given["variations"], given["generated"]),
                batch=given["batch"],
                workers=given["workers"],
                engine=given["engine"],
                address=given["address"],
                load=load,
                skip_unreadable=given["skip_unreadable"],
                on_progress=tell,
                on_note=note,
            )
    except KeyboardInterrupt:
        click.echo(
            f"Stopped: what was encoded is kept in {out}, "
            "and the same command continues from there.",
            err=True,
        )
        click.get_current_context().exit(INTERRUPTED)


def _variations(folder: Path | None, count: int | None) -> Variations | None:
    if (folder is None) != (count is None):
        raise InputError("--variations and --generated belong together: give both or neither.")
    return None if folder is None or count is None else Variations(folder, count)


@contextlib.contextmanager
def _telling() -> Iterator[Callable[[EncodingProgress], None]]:
    """A bar with the time left on a terminal; elsewhere a line now and then."""
    with contextlib.ExitStack() as stack:
        if Console(stderr=True).is_terminal:
            yield _Bar(stack)
        else:
            yield _Lines()


class _Bar:
    """The bar counts what this call does, so that the estimate knows its speed."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack, self._shown = stack, 0
        self._advance: Callable[[], None] | None = None

    def __call__(self, at: EncodingProgress) -> None:
        if self._advance is None:
            total = at.total - at.reused
            self._advance = self._stack.enter_context(progress("images", total))
        while self._shown < at.done - at.reused:
            self._advance()
            self._shown += 1


class _Lines:
    def __init__(self) -> None:
        self._start = self._last = time.monotonic()

    def __call__(self, at: EncodingProgress) -> None:
        now = time.monotonic()
        soon = now - self._last < _SECONDS_BETWEEN_LINES
        if soon or at.done in (at.reused, at.total):
            return
        self._last = now
        seconds = (now - self._start) / (at.done - at.reused) * (at.total - at.done)
        click.echo(
            f"{at.done} of {at.total} images, about {seconds / 60:.0f} minutes left", err=True
        )


def _print(summary: EncodingSummary, state: str) -> None:
    click.echo(
        f"{summary.folder} {state}: {summary.n_images} images, {summary.n_views} views each, "
        f"{summary.width} wide."
    )
    print_skipped(summary.skipped, "all listed in skipped.json")
