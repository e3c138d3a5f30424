"""``crg report``: from results files to a page, or to the same tables as text."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from crg.cli.shared import note
from crg.report.evidence import read_studies
from crg.report.evidence.paper_files import with_papers
from crg.report.evidence.study import Study
from crg.report.study_page import study_page
from crg.report.tables import latex, markdown
from crg.report.writing import check_page, write_page

PAGE = Path("report.html")


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False),
              help="File to write; default: report.html, or the screen for text.")  # fmt: skip
@click.option("--format", "layout", default="html", show_default=True,
              type=click.Choice(["html", "markdown", "latex"]),
              help="A page with figures, or the tables alone.")  # fmt: skip
@click.option("--reported", type=click.Path(path_type=Path),
              help="TOML file with numbers of papers that are to stand beside.")  # fmt: skip
def report(results: tuple[Path, ...], out: Path | None, layout: str, reported: Path | None) -> None:
    """Draw what crg bench has measured: RESULTS are its files, or folders of them.

    The page needs nothing but itself and can be read without a network.

    \b
    Example:
      crg report results/ --out report.html
      crg report results/noise.jsonl --format markdown
    """
    if layout == "html":
        _write_page(results, out or PAGE, reported)
        return
    studies = _studies(results, reported)
    text = markdown(studies) if layout == "markdown" else latex(studies)
    if out is None:
        click.echo(text)
    else:
        write_page(out, text + "\n")
        click.echo(f"{out} holds the tables.", err=True)


def _studies(results: tuple[Path, ...], reported: Path | None) -> list[Study]:
    """What the files say; a terminal shows which table is being looked at."""
    papers = with_papers(reported)
    with Console(stderr=True).status("reading") as shown:  # silent in a pipe
        return read_studies(results, lambda what: shown.update(f"reading {what}"), papers, note)


def _write_page(results: tuple[Path, ...], out: Path, reported: Path | None) -> None:
    check_page(out, "--out")
    studies = _studies(results, reported)
    write_page(out, study_page(studies))
    click.echo(f"{out} shows {len(studies)} experiment{'s' if len(studies) > 1 else ''}.", err=True)
