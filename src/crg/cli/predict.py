"""``crg predict``: from images to predictions."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from crg.atomic import check_place
from crg.classifier import Classifier
from crg.cli.shared import (
    INTERRUPTED,
    F,
    few_option,
    note,
    parse_options,
    plugin_option,
    progress,
)
from crg.methods.registry import DEFAULT
from crg.predict.answers import AnswerFile, layout_of
from crg.predict.files import STANDARD_INPUT, iter_arrivals, iter_lines, list_images
from crg.predict.run import Counts, ImageStream
from crg.prompts import PHOTO
from crg.threads import processors
from crg.types import InputError


def class_names(text: str | None, file: Path | None) -> tuple[str, ...] | None:
    """The names of ``--classes`` or ``--classes-file``; None if neither is given."""
    if text is not None and file is not None:
        raise InputError("The classes are given twice: use --classes or --classes-file.")
    if text is not None:
        [names] = csv.reader([text], skipinitialspace=True)  # a name may hold a comma in quotes
        return tuple(name.strip() for name in names)
    return None if file is None else _read(file)


def _read(file: Path) -> tuple[str, ...]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file} cannot be read ({error}): give a text file in UTF-8 with one class per line."
        ) from None
    names = tuple(line.strip() for line in lines if line.strip())
    if not names:
        raise InputError(f"{file} names no class: write one per line.")
    return names


DEFAULT_MODEL = "mini"
_FILE = click.Path(path_type=Path, dir_okay=False)


def model_options(command: F) -> F:
    """Everything that decides how images and class names become features."""
    for option in (
        click.option("--precision", help="fp32, fp16 or bf16.  [default: what suits the device]"),
        click.option("--device", help="cpu, cuda, mps.  [default: the fastest there is]"),
        click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0),
                     help="Seed of the random views."),
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
        click.option("--model", default=None, metavar="NAME",
                     help="As `crg encoders` lists them.  [default: mini]"),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("images", nargs=-1, required=True, metavar="IMAGES...")
@click.option("--classes", "text", metavar="LIST", help="Class names, separated by commas.")
@click.option("--classes-file", type=_FILE, help="File with one class name per line.")
@click.option("--method", default=None, help=f"Name of the method.  [default: {DEFAULT}]")
@click.option("-o", "pairs", multiple=True, metavar="KEY=VALUE", help="Set a method's option.")
@model_options
@few_option
@click.option("--out", type=_FILE, help="Write to this file.  [default: standard output]")
@click.option("--format", "layout", type=click.Choice(["jsonl", "csv"]), default=None,
              help="Form of the lines.  [default: by the suffix of --out, else jsonl]")  # fmt: skip
@click.option("--save-state", type=_FILE, help="Keep what is learnt in this file.")
@click.option("--load-state", type=_FILE, help="Continue with what an earlier stream learnt.")
@click.option("--resume", is_flag=True, help="Continue with --out where an earlier call stopped.")
@click.option("--skip-unreadable", is_flag=True,
              help="Give a broken image a line with its error, and go on.")  # fmt: skip
@click.option("--watch", is_flag=True, help="Go on as files arrive, until Ctrl-C.")
@click.option("--idle", type=click.FloatRange(min=0), metavar="SECONDS",
              help="End --watch when nothing has arrived for so long.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1), default=processors,
              help="Threads that read images.  [default: one per processor]")  # fmt: skip
@plugin_option
def predict(
    images: tuple[str, ...],
    text: str | None,
    classes_file: Path | None,
    method: str | None,
    pairs: tuple[str, ...],
    out: Path | None,
    layout: Any,
    save_state: Path | None,
    load_state: Path | None,
    resume: bool,
    skip_unreadable: bool,
    watch: bool,
    idle: float | None,
    workers: int,
    **model: Any,
) -> None:
    """Say what images show, adapting as it goes; one line per image.

    IMAGES are folders, globs in quotes, image files, a CSV file with a column "path", or -
    for a list on standard input. No labels are needed and none are used.

    \b
    Example:
      crg predict photos/ --classes "cat,dog,fox" --model ViT-B-16 --out answers.jsonl
      find . -name '*.jpg' | crg predict - --classes-file names.txt --format csv
      crg predict inbox/ --classes "cat,dog" --watch --save-state cats.crg
    """
    _check_together(images, out, resume, watch, idle, save_state)
    names = class_names(text, classes_file)
    state = save_state if resume and save_state is not None and save_state.exists() else load_state
    live = watch or STANDARD_INPUT in images
    listed = None if live else _some(list_images(images))
    classifier = _classifier(names, method, parse_options(pairs), state, model)
    paths = listed if listed is not None else _live_paths(images, watch, idle)
    written = layout_of(out, layout)
    with AnswerFile(out or sys.stdout, written, resume, classifier.settings) as answers:
        stream = ImageStream(classifier, answers, save_state,
                               skip_unreadable=skip_unreadable, workers=workers)  # fmt: skip
        _run(stream, paths, live, None if listed is None or out is None else len(listed))


def _classifier(
    names: tuple[str, ...] | None,
    method: str | None,
    options: dict[str, str],
    state: Path | None,
    model: dict[str, Any],
) -> Classifier:
    if model["model"] is None:
        note("the bundled model mini knows rendered shapes only; for photographs name another "
             "with --model.")  # fmt: skip
    settings = {**model, "model": model["model"] or DEFAULT_MODEL}
    settings["templates"] = settings["templates"] or (PHOTO,)
    return Classifier(
        classes=names, method=method, options=options, state=state, on_note=note, **settings
    )


def _run(stream: ImageStream, paths: Iterable[Path], live: bool, total: int | None) -> None:
    counts = Counts()
    try:
        with progress("images", total, shown=total is not None) as advance:
            for counts in stream.run(paths, live):  # noqa: B007 - the last one is reported below
                advance()
    except KeyboardInterrupt:
        click.echo(f"Stopped. {_told(counts)}", err=True)
        click.get_current_context().exit(INTERRUPTED)
    click.echo(_told(counts), err=True)


def _told(counts: Counts) -> str:
    broken = f", {counts.unreadable} unreadable" if counts.unreadable else ""
    images = "1 image" if counts.answered == 1 else f"{counts.answered} images"
    return f"{images} answered, {counts.changed} of them changed by adaptation{broken}."


def _live_paths(arguments: tuple[str, ...], watch: bool, idle: float | None) -> Iterator[Path]:
    if watch:
        return iter_arrivals(lambda: list_images(arguments), idle=idle)
    return iter_lines(sys.stdin)


def _some(paths: list[Path]) -> list[Path]:
    if not paths:
        raise InputError("No images were found: give a folder, a glob or files that hold some.")
    return paths


def _check_together(
    images: tuple[str, ...],
    out: Path | None,
    resume: bool,
    watch: bool,
    idle: float | None,
    save_state: Path | None,
) -> None:
    if STANDARD_INPUT in images and (len(images) > 1 or watch):
        raise InputError("A list on standard input stands alone: leave out the rest and --watch.")
    if resume and out is None:
        raise InputError("--resume needs the file that the earlier call wrote: name it with --out.")
    if idle is not None and not watch:
        raise InputError("--idle ends a watch: add --watch or leave it out.")
    if save_state is not None:
        check_place(save_state)
