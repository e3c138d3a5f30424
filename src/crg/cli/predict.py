"""``crg predict``: from images to predictions."""

from __future__ import annotations

import contextlib
import csv
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from crg import state_file
from crg.atomic import check_place, locked
from crg.classifier import Classifier
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
from crg.images.reading import IMAGE_SUFFIXES
from crg.images.views import Recipe
from crg.methods.registry import DEFAULT
from crg.predict.answers import AnswerFile, layout_of, resume_folder
from crg.predict.files import STANDARD_INPUT, iter_arrivals, iter_lines, list_images
from crg.predict.journal import Journal
from crg.predict.run import Counts, ImageStream
from crg.prompts import PHOTO
from crg.threads import processors
from crg.types import InputError


def class_names(text: str | None, file: Path | None) -> tuple[str, ...] | None:
    """The names of ``--classes`` or ``--classes-file``; None if neither is given."""
    if text is not None and file is not None:
        raise InputError("The classes are given twice: use --classes or --classes-file.")
    if text is not None:
        try:  # a name may hold a comma in quotes
            [names] = csv.reader([text], skipinitialspace=True, strict=True)
        except (csv.Error, ValueError):
            raise InputError(
                "The list of --classes has a line break or an open quote: separate names by "
                "commas, or write one per line into a file for --classes-file."
            ) from None
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
TERMINATED = 143  # what shells report for a program that SIGTERM ended
_FILE = click.Path(path_type=Path, dir_okay=False)


def model_options(command: F) -> F:
    """Everything that decides how images and class names become features."""
    for option in (
        click.option("--precision", help="fp32, fp16 or bf16.  [default: what suits the device]"),
        click.option("--device", help="cpu, cuda, mps.  [default: the fastest there is]"),
        click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0),
                     help="Seed of the random views."),
        click.option("--smallest-crop", default=Recipe.smallest, show_default=True, type=float,
                     metavar="AREA", help="Fraction of the image that a random view shows at "
                                          "least."),
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
@click.option("--overwrite", is_flag=True, help="Replace --out and --save-state if they exist.")
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
    overwrite: bool,
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
    _check_outputs(images, out, save_state, load_state, resume, overwrite)
    names = class_names(text, classes_file)
    if names is None and load_state is None and not resume and not model["text_features"]:
        raise InputError("There are no class names: give them by --classes or --classes-file.")
    live = watch or STANDARD_INPUT in images
    listed = None if live else _some(list_images(images))
    with contextlib.ExitStack() as held:
        for output in filter(None, (out, save_state)):
            held.enter_context(locked(output))
        kept = None if out is None else resume_folder(out)
        if out is not None and overwrite:
            _clear(out)
        checkpoint = save_state or (kept and kept / "state")
        state = checkpoint if resume and checkpoint and checkpoint.exists() else load_state
        classifier = _classifier(names, method, parse_options(pairs), state, model)
        written, settings = layout_of(out, layout), classifier.settings
        answers = held.enter_context(AnswerFile(out or sys.stdout, written, resume, settings))
        stream = ImageStream(classifier, answers, checkpoint,
                             None if kept is None else Journal(kept / "journal"),
                             skip_unreadable=skip_unreadable, workers=workers)  # fmt: skip
        paths = listed if listed is not None else _live_paths(images, watch, idle)
        _run(stream, paths, live, None if listed is None or out is None else len(listed))


def _clear(out: Path) -> None:
    """Remove the answers of an earlier call, with what was kept to continue with them."""
    out.unlink(missing_ok=True)
    shutil.rmtree(resume_folder(out), ignore_errors=True)


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


def _run(stream: ImageStream, paths: Iterable[Path | None], live: bool, total: int | None) -> None:
    counts, before = Counts(), signal.signal(signal.SIGTERM, _terminated)
    try:
        with progress("images", total, shown=total is not None) as advance:
            for counts in stream.run(paths, live):  # noqa: B007 - the last one is reported below
                advance()
    except KeyboardInterrupt as stop:
        click.echo(f"Stopped. {_told(counts)}{_how_to_continue(stream)}", err=True)
        click.get_current_context().exit(TERMINATED if stop.args else INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)
    click.echo(_told(counts), err=True)


def _terminated(number: int, frame: Any) -> None:
    """SIGTERM stops as Ctrl-C does: what was learnt is saved."""
    raise KeyboardInterrupt("terminated")


def _how_to_continue(stream: ImageStream) -> str:
    return " The same command with --resume continues." if stream.journal is not None else ""


def _told(counts: Counts) -> str:
    broken = f", {counts.unreadable} unreadable" if counts.unreadable else ""
    images = "1 image" if counts.answered == 1 else f"{counts.answered} images"
    return f"{images} answered, {counts.changed} of them changed by adaptation{broken}."


def _live_paths(
    arguments: tuple[str, ...], watch: bool, idle: float | None
) -> Iterator[Path | None]:
    if not watch:
        yield from iter_lines(sys.stdin)
        return
    list_images(arguments)  # what is not there at the start is refused
    given = 0
    for path in iter_arrivals(lambda: list_images(arguments), idle=idle):
        if path is None:
            note(f"watching {', '.join(arguments)}, {given} images so far.")
        given += path is not None
        yield path


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


def _check_outputs(
    images: tuple[str, ...],
    out: Path | None,
    save_state: Path | None,
    load_state: Path | None,
    resume: bool,
    overwrite: bool,
) -> None:
    """What is not ours is not overwritten."""
    if resume and overwrite:
        raise InputError("--resume keeps what --overwrite replaces: use one of them.")
    inputs = {Path(each).resolve() for each in images}
    for option, output in (("--out", out), ("--save-state", save_state)):
        if output is not None and output.resolve() in inputs:
            raise InputError(f"{option} {output} is among the images: choose another name.")
    if save_state is None:
        return
    if out is not None and out.resolve() == save_state.resolve():
        raise InputError("--out and --save-state are the same file: choose two names.")
    if save_state.suffix.lower() in IMAGE_SUFFIXES:
        raise InputError(f"--save-state {save_state} is named like an image: choose another name.")
    if not save_state.exists():
        return
    if not state_file.is_state(save_state):
        raise InputError(f"{save_state} exists and is not a saved state: choose another name.")
    same = load_state is not None and load_state.resolve() == save_state.resolve()
    if not (same or resume or overwrite):
        raise InputError(
            f"{save_state} exists already: continue with it by --load-state or --resume, or "
            "replace it by --overwrite."
        )
