"""``crg report``: from results files to a page, and to the same tables and figures for papers."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from crg.atomic import check_ours, locked, locked_folder, replacing
from crg.cli.shared import note
from crg.types import InputError, counted

PAGE = Path("report.html")
_HEADINGS = {".md": "## {}\n\nLines are those of {}.", ".tex": "% {}, lines of {}"}
_MARKS = {".md": "<!-- crg report -->", ".tex": "% crg report"}  # first lines


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", "outs", multiple=True, default=[PAGE], type=click.Path(path_type=Path),
              metavar="PATH", help="Page (.html), tables (.md, .tex) or folder for figures as PDF; "
              "may be repeated.  [default: report.html]")  # fmt: skip
@click.option("--methods", default="", metavar="LIST",
              help="Only these, by name or label, and zero-shot.")  # fmt: skip
def report(results: tuple[Path, ...], outs: tuple[Path, ...], methods: str) -> None:
    """Show the results of crg bench: RESULTS are its files, or folders of them.

    The page is one file that needs no network.

    \b
    Example:
      crg report results/ --out report.html
      crg report results/noise.jsonl --methods tda,crg --out noise.md
      crg report results/ --out tables.tex --out figures/
    """
    from crg.report import layout, page, tables
    from crg.report.experiment import read_experiments
    from crg.report.figures import save_pdf

    marks = {".html": page.MARK, **_MARKS}
    with contextlib.ExitStack() as held:
        for path in outs:
            if path.suffix in marks:
                check_ours(path, marks[path.suffix].encode(), "--out")
                held.enter_context(locked(path))
            elif path.suffix:
                raise InputError(f"{path} ends in {path.suffix}: choose .html, .md or .tex.")
            else:
                held.enter_context(locked_folder(path))
        chosen = [name.strip() for name in methods.split(",") if name.strip()]
        experiments = read_experiments(results, chosen, note)
        for path in outs:
            if path.suffix in _MARKS:
                layouts = {".md": tables.to_markdown, ".tex": tables.to_latex}
                text = layout.whole_text(experiments, layouts[path.suffix], _HEADINGS[path.suffix])
                with replacing(path) as partial:
                    partial.write_text(f"{_MARKS[path.suffix]}\n\n{text}", encoding="utf-8")
                said = "holds the tables"
            elif path.suffix:
                page.write(experiments, path)
                said = f"shows {counted(len(experiments), 'experiment')}"
            else:
                said = f"holds {counted(len(save_pdf(experiments, path)), 'figure')}"
            click.echo(f"{path} {said}.", err=True)
