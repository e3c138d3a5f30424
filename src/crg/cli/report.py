"""``crg report``: from results files to a page, and to the same tables and figures for papers."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from crg.atomic import check_ours, locked, locked_folder, replacing
from crg.cli.shared import FILE, FOLDER, note
from crg.results.papers import with_papers
from crg.types import counted

PAGE = Path("report.html")
_MARKDOWN, _LATEX = "## {}\n\nLines are those of {}.", "% {}, lines of {}"
_MARKDOWN_MARK, _LATEX_MARK = "<!-- crg report -->", "% crg report"  # first lines


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=FILE, help="Page to write.  [default: report.html]")
@click.option("--methods", default="", metavar="LIST",
              help="Only these, by name or label, and zero-shot.")  # fmt: skip
@click.option("--markdown", type=FILE, help="Write the tables as Markdown as well.")
@click.option("--latex", type=FILE, help="Write the tables as LaTeX as well.")
@click.option("--figures", metavar="FOLDER", type=FOLDER,
              help="Write the figures as PDF as well.")  # fmt: skip
@click.option("--reported", type=FILE,
              help="TOML file with numbers from papers to show alongside.")  # fmt: skip
def report(
    results: tuple[Path, ...], out: Path | None, methods: str, markdown: Path | None,
    latex: Path | None, figures: Path | None, reported: Path | None,
) -> None:  # fmt: skip
    """Show the results of crg bench: RESULTS are its files, or folders of them.

    The page is one file that needs no network. With --markdown, --latex
    or --figures alone no page is written; add --out for both.

    \b
    Example:
      crg report results/ --out report.html
      crg report results/noise.jsonl --methods tda,crg --markdown noise.md
      crg report results/ --latex tables.tex --figures figures/
    """
    from crg.report import layout, page, tables
    from crg.report.experiment import read_experiments
    from crg.report.figures import save_pdf

    target = out or (None if markdown or latex or figures else PAGE)
    with contextlib.ExitStack() as held:
        for path, mark, option in (
            (target, page.MARK, "--out"),
            (markdown, _MARKDOWN_MARK, "--markdown"),
            (latex, _LATEX_MARK, "--latex"),
        ):
            if path is not None:
                check_ours(path, mark.encode(), option)
                held.enter_context(locked(path))
        if figures:
            held.enter_context(locked_folder(figures))
        chosen = [name.strip() for name in methods.split(",") if name.strip()]
        experiments = read_experiments(results, chosen, with_papers(reported), note)
        if markdown:
            text = layout.whole_text(experiments, tables.to_markdown, _MARKDOWN)
            _write(markdown, f"{_MARKDOWN_MARK}\n\n{text}")
        if latex:
            text = layout.whole_text(experiments, tables.to_latex, _LATEX)
            _write(latex, f"{_LATEX_MARK}\n\n{text}")
        if figures:
            count = counted(len(save_pdf(experiments, figures)), "figure")
            click.echo(f"{figures} holds {count}.", err=True)
        if target:
            page.write(experiments, target)
            count = counted(len(page.distinct(experiments)), "experiment")
            click.echo(f"{target} shows {count}.", err=True)


def _write(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
    click.echo(f"{path} holds the tables.", err=True)
