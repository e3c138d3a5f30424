"""``crg review``: a page to look at predictions and to correct them."""

from __future__ import annotations

from pathlib import Path

import click

from crg.atomic import check_ours, locked
from crg.cli.progress import Display
from crg.cli.shared import FILE, POSITIVE, note
from crg.predict.files import read_names
from crg.predict.review import MARK, MOST, known_classes, read_lines, write
from crg.threads import processors


@click.command()
@click.argument("answers", type=FILE)
@click.option("--out", type=FILE, default=Path("review.html"), show_default=True,
              help="Page to write.")  # fmt: skip
@click.option("--before", type=FILE, metavar="FILE",
              help="Earlier answers: mark the images whose label has changed since.")  # fmt: skip
@click.option("--classes", "text", metavar="LIST|FILE",
              help="Classes to choose from, or a file with one per line.  "
                   "[default: those of crg predict]")  # fmt: skip
@click.option("--most", type=POSITIVE, default=MOST, show_default=True,
              help="Images on the page; if there are more, the least certain ones.")  # fmt: skip
def review(answers: Path, out: Path, before: Path | None, text: str | None, most: int) -> None:
    """Show what crg predict has answered on a page where labels can be corrected.

    The page needs nothing but itself. It exports corrections as a file, from which crg predict
    --corrections learns. Run it in the folder where crg predict ran, so that images are found.

    \b
    Example:
      crg review answers.jsonl --out review.html
      crg predict photos/ --classes "cat,dog" --corrections corrections.jsonl --out new.jsonl
      crg review new.jsonl --before answers.jsonl
    """
    check_ours(out, MARK.encode(), "--out")
    lines, earlier = read_lines(answers), None if before is None else read_lines(before)
    names = read_names(text) or known_classes(answers, lines)
    if len(lines) > most:
        note(f"the page shows the {most} least certain of {len(lines)} images; --most shows more.")
    with locked(out), Display("thumbnails", min(most, len(lines))) as bar:
        missing = write(out, lines, names, f"Review of {answers.name}", before=earlier, most=most,
                        workers=processors(), advance=bar.advance)  # fmt: skip
    if missing:
        note(f"no thumbnail for {missing} of {min(most, len(lines))} images; run crg review where "
             "crg predict ran, so that they are found.")  # fmt: skip
    click.echo(f"{out} shows {min(most, len(lines))} images.", err=True)
