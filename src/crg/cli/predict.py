"""``crg predict``: from images to predictions."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from crg.classifier import Classifier
from crg.cli.predict_output import FILE, Outputs, output_options
from crg.cli.shared import (
    INTERRUPTED,
    SECONDS_BETWEEN_LINES,
    F,
    few_option,
    note,
    parse_options,
    plugin_option,
    progress,
    text_features_option,
)
from crg.images.views import Recipe
from crg.methods.registry import DEFAULT
from crg.predict.answers import AnswerFile, read_answers
from crg.predict.corrections import check as check_corrections
from crg.predict.corrections import digest_of, read_corrections
from crg.predict.files import STANDARD_INPUT, iter_arrivals, iter_lines, list_images, read_lines
from crg.predict.journal import Journal
from crg.predict.second_pass import second_pass
from crg.predict.stream import Counts, ImageStream, Output
from crg.prompts import PHOTO
from crg.threads import processors
from crg.types import InputError, printable

TERMINATED = 143  # what shells report for a program that SIGTERM ended
_CLASSES_SHOWN = 20  # in the summary


def class_names(text: str | None) -> tuple[str, ...] | None:
    """The names of ``--classes``, a list or a file with one per line; None if it is not given."""
    if text is None:
        return None
    if "," not in text and _is_file_name(text):
        return tuple(read_lines(Path(text), "class"))
    try:  # a name may hold a comma in quotes
        [names] = csv.reader([text], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError):
        raise InputError(
            "The list of --classes has a line break or an open quote: separate names by "
            "commas, or write one per line into a file and name that."
        ) from None
    if len(names) == 1 and os.path.isdir(text):
        raise InputError(f"{text} is a folder, and no list of classes: separate names by commas.")
    if len(names) == 1:
        raise InputError(
            f"The list of --classes has one name, {text!r}: give at least two, separated by "
            "commas, or a file with one per line."
        )
    return tuple(name.strip() for name in names)


def _is_file_name(text: str) -> bool:
    """Whether a text without a comma means a file: one class alone is none."""
    return text.endswith(".txt") or os.path.isfile(text)


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
        click.option("--descriptions", type=FILE,
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
@click.option("--classes", "text", metavar="LIST|FILE",
              help="Class names, separated by commas, or a file with one per line.")  # fmt: skip
@click.option("--method", default=None, help=f"Name of the method.  [default: {DEFAULT}]")
@click.option("-o", "pairs", multiple=True, metavar="KEY=VALUE", help="Set a method's option.")
@model_options
@few_option
@output_options
@click.option("--corrections", "corrected", type=FILE, metavar="FILE",
              help="Learn first what a person says some images show: CSV or JSON lines with path "
                   "and label, as the page of crg review writes them.")  # fmt: skip
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
    method: str | None,
    pairs: tuple[str, ...],
    corrected: Path | None,
    skip_unreadable: bool,
    watch: bool,
    idle: float | None,
    workers: int,
    **given: Any,
) -> None:
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
    live = watch or STANDARD_INPUT in images
    outputs = Outputs.taken_from(given).with_passes(method or DEFAULT, live)
    _check_stream(images, watch, idle, outputs)
    outputs.check(images)
    names = class_names(text)
    has_names = names or outputs.load_state or outputs.resume or given["text_features"]
    if not has_names:
        raise InputError("There are no class names: give them by --classes.")
    corrections = {} if corrected is None else read_corrections(corrected)
    listed = None if live else _some(list_images(images, outputs.answered()), outputs.resume)
    with contextlib.ExitStack() as held:
        kept = outputs.hold(held)
        checkpoint = kept and kept / "state"
        if outputs.save_state is not None and not (outputs.two_passes and outputs.out):
            checkpoint = outputs.save_state
        continued = outputs.resume and checkpoint is not None and checkpoint.exists()
        state = checkpoint if continued else outputs.load_state
        classifier = _classifier(names, method, parse_options(pairs), state, given)
        if not outputs.resume:
            check_corrections(corrections, classifier.task.class_names)
        started_at = outputs.started_at(classifier.adapter.n_steps, bool(continued))
        settings = {**classifier.settings, "corrections": digest_of(corrections),
                    "started_at": started_at}  # fmt: skip
        form = replace(outputs.form, corrected=bool(corrections))
        answers = held.enter_context(outputs.open(settings, form.columns))
        output = Output(answers, form, outputs.sorter(classifier.task.class_names))
        knows = continued and (checkpoint != outputs.save_state or bool(output.final))
        stream = ImageStream(classifier, output, checkpoint,
                             None if kept is None else Journal(kept / "journal"),
                             skip_unreadable=skip_unreadable, remedy=_remedy(outputs),
                             workers=workers,
                             corrections=corrections, knows_corrections=knows,
                             started_at=started_at)  # fmt: skip
        paths = listed if listed is not None else _live_paths(images, watch, idle, output.counts)
        lines_are_seen = outputs.out is None and sys.stdout.isatty()
        if kept is not None and outputs.two_passes:
            work = _two_passes(stream, outputs, kept, paths, live, held)
        else:
            work = [("images", stream.run(paths, live), len(listed or ()))]
        _run(work, output, outputs, lines_are_seen)


def _two_passes(
    stream: ImageStream,
    outputs: Outputs,
    kept: Path,
    paths: Iterable[Path | None],
    live: bool,
    held: contextlib.ExitStack,
) -> list[tuple[str, Iterator[Counts], int]]:
    """The first pass, then the second one, which is closed to new images once it has begun."""
    output, classifier = stream.output, stream.classifier
    first = outputs.first_pass(kept)
    learnt = Output(held.enter_context(AnswerFile(first, "jsonl", first.exists())))
    features = Journal(kept / "features", keep_all=True)
    stream.output, stream.journal = learnt, features
    begun = bool(output.answers.before)
    left = [] if begun else paths
    if begun and any(path is not None and learnt.is_new(path) for path in paths):
        note("images that came after the first pass are left out: --overwrite starts over.")

    def second() -> Iterator[Counts]:
        lines = read_answers(first, "jsonl")
        yield from second_pass(classifier, lines, features, output, stream.workers)
        if outputs.save_state is not None:
            classifier.save(outputs.save_state)
        features.clear()

    total = len(left) if isinstance(left, Sequence) else 0
    return [("first pass", stream.run(left, live), total), ("second pass", second(), total)]


def _classifier(
    names: tuple[str, ...] | None,
    method: str | None,
    options: dict[str, str],
    state: Path | None,
    model: dict[str, Any],
) -> Classifier:
    if model["text_features"] and (model["templates"] or model["descriptions"]):
        raise InputError("--text-features stands in for prompts: leave it out, or --template and "
                         "--descriptions.")  # fmt: skip
    if model["model"] is None and state is None:
        note("the bundled model mini knows rendered shapes only; for photographs name another "
             "with --model.")  # fmt: skip
    settings = {**model, "templates": model["templates"] or (PHOTO,)}
    return Classifier(
        classes=names, method=method, options=options, state=state, on_note=note, **settings
    )


def _run(
    work: Iterable[tuple[str, Iterator[Counts], int]],
    output: Output,
    outputs: Outputs,
    lines_are_seen: bool,
) -> None:
    """Do the work with a bar for each part, except where its lines go to the terminal."""
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        for what, tallies, total in work:
            is_quiet = lines_are_seen and what != "first pass"
            bar = progress(what, total, shown=total > 0 and not is_quiet)
            with bar as advance, contextlib.closing(tallies):  # type: ignore[type-var]
                for _ in tallies:
                    advance()
    except KeyboardInterrupt as stop:
        said = f"Stopped. {_told(output.counts)}{_how_to_continue(outputs)}"
        click.echo(said, err=True)
        click.get_current_context().exit(TERMINATED if stop.args else INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)
    click.echo(_told(output.counts), err=True)
    for line in _per_class(output.per_class):
        click.echo(line, err=True)


def _terminated(number: int, frame: Any) -> None:
    """SIGTERM stops as Ctrl-C does: what was learnt is saved."""
    raise KeyboardInterrupt("terminated")


def _remedy(outputs: Outputs) -> str:
    """What to do about an image that cannot be read, beside mending it."""
    return f"add --skip-unreadable{'; --resume continues' if outputs.out else ''}"


def _how_to_continue(outputs: Outputs) -> str:
    saved = [f"the answers are in {outputs.out}"] if outputs.out else []
    if outputs.save_state is not None and not (outputs.two_passes and outputs.out):
        saved.append(f"what was learnt is in {outputs.save_state}")
    said = ", and ".join(saved)
    said = f" {said[0].upper()}{said[1:]}." if said else ""
    return f"{said} The same command with --resume continues." if outputs.out else said


def _told(counts: Counts) -> str:
    unsure = f", {counts.unsure} unsure" if counts.unsure else ""
    unsure += f", {counts.corrected} corrected" if counts.corrected else ""
    broken = f", {counts.unreadable} unreadable" if counts.unreadable else ""
    images = "1 image" if counts.answered == 1 else f"{counts.answered} images"
    return f"{images} answered, {counts.changed} of them changed by adaptation{unsure}{broken}."


def _per_class(counts: Counter[str]) -> Iterator[str]:
    """How many images each class has, the most frequent first; a long list is cut."""
    named = sorted(((n, name) for name, n in counts.items() if name), key=lambda x: (-x[0], x[1]))
    rows = [(printable(name), n) for n, name in named[:_CLASSES_SHOWN]]
    rest = named[_CLASSES_SHOWN:]
    if rest:
        rows.append((f"{len(rest)} more classes", sum(n for n, _ in rest)))
    if counts[""]:
        rows.append(("(unsure)", counts[""]))
    width = max((len(name) for name, _ in rows), default=0)
    for name, n in rows:
        yield f"  {name:{width}} {n:7}"


def _live_paths(
    arguments: tuple[str, ...], watch: bool, idle: float | None, counts: Counts
) -> Iterator[Path | None]:
    if not watch:
        yield from iter_lines(sys.stdin)
        return
    list_images(arguments)  # what is not there at the start is refused
    noted = time.monotonic()
    for path in iter_arrivals(lambda: list_images(arguments), idle=idle):
        if path is None or time.monotonic() - noted >= SECONDS_BETWEEN_LINES:
            note(f"watching {', '.join(arguments)}, {counts.answered} answered.")
            noted = time.monotonic()
        yield path


def _some(paths: list[Path], resume: bool) -> list[Path]:
    if not (paths or resume):
        raise InputError("No images were found: give a folder, a glob or files that hold some.")
    return paths


def _check_stream(
    images: tuple[str, ...], watch: bool, idle: float | None, outputs: Outputs
) -> None:
    if STANDARD_INPUT in images and (len(images) > 1 or watch):
        raise InputError("A list on standard input stands alone: leave out the rest and --watch.")
    if idle is not None and not watch:
        raise InputError("--idle ends a watch: add --watch or leave it out.")
    if watch and outputs.two_passes:
        raise InputError("A watch has no end, after which a second pass could begin: leave out "
                         "--watch or --passes 2.")  # fmt: skip
