"""Archive finished experiments: the page, the tables and archived runs.

``python tools/keep_results.py results docs/results`` writes report.html, tables.md and, for each
results file, NAME.jsonl.gz with an archived run under the number of each line, which ``crg bench
--rerun`` repeats and checks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import crg
from crg.bench.rerun import archive_file
from crg.report import page
from crg.report.experiment import read_experiments
from crg.report.layout import whole_text
from crg.report.tables import to_markdown

# As one reads: the tables of the paper first, then what goes beyond it.
ORDER = ("robustness", "cross_datasets", "ablation", "queue_size", "weights", "cache_error",
         "shots", "noise", "streams", "many_names", "cold_start")  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Archive the experiments of a folder; 2 if there are none."""
    parser = argparse.ArgumentParser(description="Archive finished experiments.")
    parser.add_argument("results", type=Path, help="folder of results files")
    parser.add_argument("out", type=Path, help="folder to write")
    chosen = parser.parse_args(arguments)
    try:
        keep(chosen.results, chosen.out)
    except crg.InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def keep(results: Path, out: Path) -> None:
    """The page, the tables and the archived runs of all results files in a folder."""
    files = sorted(results.glob("*.jsonl"), key=_place)
    if not files:
        raise crg.InputError(f"{results} holds no results files: run crg bench first.")
    out.mkdir(parents=True, exist_ok=True)
    kept = {str(file): out / f"{file.name}.gz" for file in files}
    experiments = [
        replace(each, path=str(kept[each.path])) for each in read_experiments(files)
    ]  # the printed commands name the archive
    page.write(experiments, out / "report.html")
    text = whole_text(experiments, to_markdown, "## {}\n\nLines are those of {}.")
    (out / "tables.md").write_text(text, encoding="utf-8")
    for file in files:
        archive_file(file, kept[str(file)])


def _place(file: Path) -> tuple[int, str]:
    name = file.name.partition(".")[0]
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


if __name__ == "__main__":
    raise SystemExit(main())
