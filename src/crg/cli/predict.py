"""``crg predict``: from images to predictions."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import Any

import click

from crg.cli import shared
from crg.cli.progress import Display, shown_encoding
from crg.methods.options import parse_options
from crg.predict.corrections import compared
from crg.predict.job import FIRST_PASS, PredictJob, opened

NOTHING_READ = 1  # exit code where no image could be read
TERMINATED = 143  # what shells report for a program that SIGTERM ended


@click.command()
@click.argument("images", nargs=-1, required=True, metavar="IMAGES...")
@shared.options_of(PredictJob)
@click.option("-o", "pairs", multiple=True, metavar="KEY=VALUE", help="Set a method's option.")
@shared.model_options
@shared.plugin_option
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
    with (
        contextlib.ExitStack() as stack,
        _sigterm_as_ctrl_c(),
        opened(job, shared.note, shown_encoding(stack)) as (answers, parts),
    ):
        try:
            for what, total, steps in parts:
                is_shown = total > 0 and (what == FIRST_PASS or not lines_are_seen)
                bar = Display(what, total, shown=is_shown)
                with bar as shown, contextlib.closing(steps):  # type: ignore[type-var]
                    for _ in steps:
                        shown.advance()
        except KeyboardInterrupt as stop:
            click.echo(f"Stopped. {answers.summary()}{job.how_to_continue()}", err=True)
            click.get_current_context().exit(TERMINATED if stop.args else shared.INTERRUPTED)
    click.echo(answers.summary(), err=True)
    classes, lines = answers.settings["classes"], answers.lines or ()
    truth = () if job.truth is None else compared(lines, job.truth, classes)
    for line in (*answers.class_summary(), *truth):
        click.echo(line, err=True)
    if answers.counts["unreadable"] and not answers.counts["answered"]:
        click.get_current_context().exit(NOTHING_READ)


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
