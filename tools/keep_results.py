"""What is kept of finished experiments: the page, the tables and short lines.

``python tools/keep_results.py results docs/results`` writes report.html, tables.md and, for each
results file, NAME.jsonl.gz with a short line under each number of the file, which ``crg rerun``
repeats and checks to the last bit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import crg
from crg.bench.shortening import shorten_file
from crg.report.evidence import Study, read_studies
from crg.report.study_page import study_page
from crg.report.tables import markdown
from crg.report.writing import write_page

# As one reads: the tables of the paper first, then what goes beyond it.
ORDER = ("robustness", "cross_datasets", "ablation", "queue_size", "weights", "cache_error",
         "shots", "noise", "streams", "cold_start")  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Write everything."""
    parser = argparse.ArgumentParser(description="Keep what experiments have shown.")
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
    """The page, the tables and the short lines of all results files in a folder."""
    files = sorted(results.glob("*.jsonl"), key=_place)
    if not files:
        raise crg.InputError(f"{results} holds no results files: run crg bench first.")
    out.mkdir(parents=True, exist_ok=True)
    kept = {str(file): out / f"{file.name}.gz" for file in files}
    studies = [
        _kept_as(study, str(kept[study.path]))
        for study in read_studies(files, lambda what: print(what, file=sys.stderr))
    ]
    write_page(out / "report.html", study_page(studies))
    (out / "tables.md").write_text(markdown(studies), encoding="utf-8")
    for file in files:
        shorten_file(file, kept[str(file)])


def _kept_as(study: Study, name: str) -> Study:
    """The study with its lines where they are kept, so that the printed commands can be used."""
    tables = tuple(
        replace(table, lines=tuple(
            replace(line, traces=tuple(replace(trace, file=name) for trace in line.traces))
            for line in table.lines
        ))
        for table in study.tables
    )  # fmt: skip
    return replace(study, tables=tables, path=name)


def _place(file: Path) -> tuple[int, str]:
    name = file.name.partition(".")[0]
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


if __name__ == "__main__":
    raise SystemExit(main())
