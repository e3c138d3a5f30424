"""``crg predict``: from images to predictions."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
from collections.abc import Iterator
from typing import Any

import click

from crg.cli import shared
from crg.cli.progress import Display, shown_encoding
from crg.methods.options import parse_options
from crg.methods.registry import DEFAULT
from crg.parts.decisions import AUTO, fraction
from crg.predict.corrections import compared
from crg.predict.job import FIRST_PASS, PredictJob, opened
from crg.prompts import PHOTO

NOTHING_READ = 1  # exit code where no image could be read
TERMINATED = 143  # what shells report for a program that SIGTERM ended
_OPTIONS = shared.options(
    click.option("--classes", metavar="LIST|FILE",
                 help="Class names, separated by commas, or a file with one per line."),
    click.option("--method", help=f"Name of the method.  [default: {DEFAULT}]"),
    click.option("-o", "pairs", multiple=True, metavar="KEY=VALUE", help="Set a method's option."),
    click.option("--model", metavar="NAME",
                 help="As `crg encoders` lists them.  [default: mini]"),
    click.option("--template", "templates", multiple=True, metavar="TEXT",
                 help=f"Prompt with {{}} for the class; may be repeated.  [default: {PHOTO}]"),
    click.option("--descriptions", type=shared.FILE,
                 help="JSON file of sentences per class, in CuPL's form: prompts instead of the "
                      "default template, or beside each --template."),
    click.option("--views", default=1, show_default=True, type=shared.POSITIVE,
                 help="Views per image, the original included; the papers use 64."),
    shared.model_options,
    click.option("--features", type=shared.FOLDER, metavar="DIR",
                 help="Keep the features of the images in this folder, a store of crg encode, so "
                      "that another method, list of classes or threshold need not encode them."),
    click.option("--out", type=shared.FILE,
                 help="Write to this file: .jsonl as images are answered, .csv or .parquet at the "
                      "end.  [default: a table on a terminal, JSON Lines in a pipe]"),
    click.option("--top", type=shared.POSITIVE, metavar="N",
                 help="Write the N most probable classes, too."),
    click.option("--unsure-below", type=click.FloatRange(0, 1), default=0.0, metavar="P",
                 help="Leave the label empty where its probability is below P."),
    click.option("--none-of-these", is_flag=False, flag_value=AUTO, metavar="[auto|NUMBER]",
                 callback=lambda _, option, value: fraction(value, option.opts[0], AUTO),
                 help="Images of no class get no label and are not learnt: those whose `outside` "
                      "is above a threshold that the stream gives (auto), or above NUMBER."),
    click.option("--sets", type=click.FloatRange(0, 1, True, True), metavar="LEVEL",
                 help="Add a set of classes that holds the true one this often, such as 0.9; "
                      "needs 20 --corrections."),
    click.option("--sort-into", type=shared.FOLDER, metavar="DIR",
                 help="Sort images into a folder per class below this one."),
    click.option("--by", type=click.Choice(["copy", "link", "move"]), default="copy",
                 show_default=True, help="How images get into the folders of --sort-into."),
    click.option("--passes", type=click.IntRange(1, 2),
                 help="2: learn from all images first, then answer all of them.  [default: "
                      "2 where the method gains by it, as anchored does; 1 for other methods, "
                      "a list on standard input, --watch and --load-state]"),
    click.option("--save-state", type=shared.FILE, help="Keep what is learnt in this file."),
    click.option("--load-state", type=shared.FILE,
                 help="Continue with what an earlier stream learnt."),
    click.option("--resume", is_flag=True,
                 help="Continue --out where an earlier run stopped."),
    click.option("--overwrite", is_flag=True, help="Replace --out and --save-state if they exist."),
    click.option("--corrections", type=shared.FILE,
                 help="Learn first what a person says some images show: CSV or JSON lines with "
                      "path and label, as the page of crg review writes them."),
    click.option("--truth", metavar="FILE|folders",
                 help="Compare with known labels, which are not learnt: a file with path and "
                      "label, or the names of the folders that images are in."),
    click.option("--export", type=click.Choice(["label-studio"]),
                 help="Write the answers as tasks of Label Studio, too, beside --out."),
    click.option("--probabilities", type=shared.FILE, metavar="FILE.npy",
                 help="Write the probabilities of all classes, too, a row per answer."),
    click.option("--watch", is_flag=False, flag_value=math.inf, type=click.FloatRange(min=0),
                 metavar="[SECONDS]",
                 help="Continue as files arrive, until Ctrl-C or for SECONDS without a file."),
    shared.plugin_option,
)  # fmt: skip


@click.command()
@click.argument("images", nargs=-1, required=True, metavar="IMAGES...")
@_OPTIONS
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
