"""Archive finished experiments: the page, the tables and archived runs.

``python tools/keep_results.py results docs/results`` writes report.html, tables.md and, for each
results file, NAME.jsonl.gz with an archived run under the number of each line, which ``crg bench
--rerun`` repeats and checks.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath

import msgspec

import crg
from crg.atomic import replacing
from crg.bench.rerun import KEPT, digest_of, moved
from crg.report import page
from crg.report.experiment import read_experiments
from crg.report.layout import whole_text
from crg.report.tables import to_markdown
from crg.results.schema import Entry, LineError, Other, Result, decode, encode

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


def archived(entry: Entry) -> Entry:
    """The archived form of any line of a results file; paths become names."""
    if not isinstance(entry, Result):
        return Other(key=entry.key, kind="short")  # only keeps its place
    if entry.digest is not None:
        return entry
    return msgspec.structs.replace(
        moved(entry, lambda path: PurePath(path).name),
        metrics={name: entry.metrics[name] for name in KEPT if name in entry.metrics},
        zero_shot={},
        options={},
        n_samples=0,
        seconds=0.0,
        name="",
        digest=digest_of(entry),
    )


def archive_file(source: Path, target: Path) -> None:
    """A compressed file with an archived line for each line of ``source``, under its number."""
    lines = []
    for line in source.read_bytes().splitlines():
        try:
            lines.append(encode(archived(decode(line))))
        except LineError:
            lines.append(b"")  # truncated: the numbers of the others stay
    with replacing(target) as partial:
        # Without a time in it, equal results make equal files.
        partial.write_bytes(gzip.compress(b"\n".join([*lines, b""]), mtime=0))


def _place(file: Path) -> tuple[int, str]:
    name = file.name.partition(".")[0]
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


if __name__ == "__main__":
    raise SystemExit(main())
