"""``crg predict``: from images to predictions."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from crg.cli.shared import (
    INTERRUPTED,
    F,
    few_option,
    note,
    parse_options,
    plugin_option,
    progress,
    text_features_option,
)
from crg.methods.registry import DEFAULT
from crg.predict.job import FIRST_PASS, PredictJob, opened
from crg.prompts import PHOTO

TERMINATED = 143  # what shells report for a program that SIGTERM ended
_FILE = click.Path(path_type=Path, dir_okay=False)


def model_options(command: F) -> F:
    """Everything that decides how images and class names become features."""
    for option in (
        click.option("--device", help="cpu, cuda, mps.  [default: the fastest there is]"),
        click.option("--augment", type=click.Choice(["crops", "augmix"]), default="crops",
                     show_default=True, help="How random views are made."),
        click.option("--views", default=1, show_default=True, type=click.IntRange(min=1),
                     help="Views per image, the original included; the papers use 64."),
        click.option("--prompts", type=click.Choice(["template", "descriptions", "both"]),
                     default="template", show_default=True, help="What the classes are read from."),
        click.option("--descriptions", type=_FILE,
                     help="JSON file of sentences per class, in CuPL's form."),
        click.option("--template", "templates", multiple=True, metavar="TEXT",
                     help="Prompt with {} for the class; may be repeated.  "
                          f"[default: {PHOTO}]"),
        text_features_option,
        click.option("--model", default=None, metavar="NAME",
                     help="As `crg encoders` lists them.  [default: mini]"),
    ):  # fmt: skip
        command = option(command)
    return command


def output_options(command: F) -> F:
    """Everything that decides what is written, and where."""
    for option in (
        click.option("--overwrite", is_flag=True,
                     help="Replace --out and --save-state if they exist."),
        click.option("--resume", is_flag=True,
                     help="Continue with --out where an earlier call stopped."),
        click.option("--load-state", type=_FILE,
                     help="Continue with what an earlier stream learnt."),
        click.option("--save-state", type=_FILE, help="Keep what is learnt in this file."),
        click.option("--passes", type=click.IntRange(1, 2), default=None,
                     help="2: learn from all images first, then answer all of them.  [default: "
                          "2 where the method gains by it, as anchored does; 1 for other methods, "
                          "a list on standard input, --watch and --load-state]"),
        click.option("--by", type=click.Choice(["copy", "link", "move"]), default=None,
                     help="How images get into the folders of --sort-into.  [default: copy]"),
        click.option("--sort-into", type=click.Path(path_type=Path, file_okay=False),
                     metavar="DIR", help="Put images into a folder per class below this one."),
        click.option("--unsure-below", type=click.FloatRange(0, 1), default=0.0, metavar="P",
                     help="Leave the label empty where its probability is below P."),
        click.option("--top", type=click.IntRange(min=1), metavar="N",
                     help="Write the N most probable classes, too."),
        click.option("--format", "layout", type=click.Choice(["jsonl", "csv", "parquet"]),
                     help="Form of the lines.  [default: by the suffix of --out, else jsonl]"),
        click.option("--out", type=_FILE, help="Write to this file.  [default: standard output]"),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("images", nargs=-1, required=True, metavar="IMAGES...")
@click.option("--classes", metavar="LIST|FILE",
              help="Class names, separated by commas, or a file with one per line.")  # fmt: skip
@click.option("--method", default=None, help=f"Name of the method.  [default: {DEFAULT}]")
@click.option("-o", "pairs", multiple=True, metavar="KEY=VALUE", help="Set a method's option.")
@model_options
@few_option
@output_options
@click.option("--corrections", type=_FILE, metavar="FILE",
              help="Learn first what a person says some images show: CSV or JSON lines with path "
                   "and label, as the page of crg review writes them.")  # fmt: skip
@click.option("--skip-unreadable", is_flag=True,
              help="Give a broken image a line with its error, and continue.")  # fmt: skip
@click.option("--watch", is_flag=True, help="Continue as files arrive, until Ctrl-C.")
@click.option("--idle", type=click.FloatRange(min=0), metavar="SECONDS",
              help="End --watch when nothing has arrived for so long.")  # fmt: skip
@plugin_option
def predict(pairs: tuple[str, ...], **given: Any) -> None:
    """Say what images show, adapting as it goes; one line per image.

    IMAGES are folders, globs in quotes, image files, a CSV file with a column "path", a .txt
    file with a path per line, or - for a list on standard input. No labels are needed and none
    are used.

    \b
    Example:
      crg predict photos/ --classes "cat,dog,fox" --model ViT-B-16 --out answers.jsonl
      crg predict photos/ --classes names.txt --out answers.csv --sort-into sorted
      crg predict inbox/ --classes "cat,dog" --watch --save-state cats.crg
    """
    job = PredictJob(options=parse_options(pairs), **given)
    lines_are_seen = job.out is None and sys.stdout.isatty()  # a bar would tear them apart
    with opened(job, note) as (output, parts), _sigterm_as_ctrl_c():
        try:
            for what, total, steps in parts:
                is_shown = total > 0 and (what == FIRST_PASS or not lines_are_seen)
                bar = progress(what, total, shown=is_shown)
                with bar as advance, contextlib.closing(steps):  # type: ignore[type-var]
                    for _ in steps:
                        advance()
        except KeyboardInterrupt as stop:
            click.echo(f"Stopped. {output.summary()}{job.how_to_continue()}", err=True)
            click.get_current_context().exit(TERMINATED if stop.args else INTERRUPTED)
    click.echo(output.summary(), err=True)
    for line in output.class_summary():
        click.echo(line, err=True)


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """SIGTERM stops as Ctrl-C does, so that what was learnt is saved."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt("terminated")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
