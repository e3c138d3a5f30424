"""Archive finished experiments: the page, the tables, the figures and archived runs.

``python tools/keep_results.py results.jsonl docs/results`` writes report.html, tables.md,
figures.csv, and results.jsonl.gz with an archived run under the number of each line, which ``crg
bench --rerun`` repeats and checks.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import msgspec

import crg
from crg.atomic import replacing
from crg.bench.rerun import KEPT, digest_of, moved
from crg.report import page
from crg.report.contrasts import AVERAGED, FIRST
from crg.report.experiment import Experiment, MethodResult, read_experiments
from crg.report.layout import whole_text
from crg.report.tables import to_markdown
from crg.results.schema import Entry, LineError, Other, Result, decode, encode

# As one reads: the main comparison first, then what goes beyond it.
ORDER = ("cross_datasets", "robustness", "streams", "many_names", "noise", "cold_start", "ablation",
         "queue_size", "cache_error", "shots")  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Archive the experiments of a results file; 2 if there are none."""
    parser = argparse.ArgumentParser(description="Archive finished experiments.")
    parser.add_argument("results", type=Path, help="results file")
    parser.add_argument("out", type=Path, help="folder to write")
    chosen = parser.parse_args(arguments)
    try:
        keep(chosen.results, chosen.out)
    except crg.InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def keep(results: Path, out: Path) -> None:
    """The page, the tables, the figures and the archived runs of a results file."""
    archive = out / "results.jsonl.gz"
    found = sorted(read_experiments([results]), key=_place)
    experiments = [replace(each, path=str(archive)) for each in found]  # which commands name
    out.mkdir(parents=True, exist_ok=True)
    page.write(experiments, out / "report.html")
    text = whole_text(experiments, to_markdown, "## {}\n\nLines are those of {}.")
    (out / "tables.md").write_text(text, encoding="utf-8")
    (out / "figures.csv").write_text(figures(experiments), encoding="utf-8")
    archive_file(results, archive)


def figures(experiments: Iterable[Experiment]) -> str:
    """A line per experiment, dataset, setting and method; numbers are fractions."""
    file = io.StringIO()
    lines: csv.DictWriter[str] | None = None
    for experiment in experiments:
        for comparison in experiment.comparisons:
            for result in comparison.results:
                line = {
                    "experiment": experiment.outline.name,
                    "dataset": comparison.source.name,
                    "setting": comparison.setting.label,
                    "method": result.row.label,
                    "n_images": comparison.n_scored,
                    **_figures(result),
                }
                if lines is None:
                    lines = csv.DictWriter(file, line, lineterminator="\n")
                    lines.writeheader()
                if result.accuracy is not None:
                    lines.writerow(line)
    return file.getvalue()


def _figures(result: MethodResult) -> dict[str, Any]:
    """Means over orders, the gain over zero-shot, and the gain on the first images."""
    interval = result.gain and result.gain.interval
    means = {name: getattr(result, name) for name in AVERAGED}
    line = {
        **{name: spread and spread.mean for name, spread in means.items()},
        "accuracy_std": result.accuracy and result.accuracy.std,
        "gain": interval and interval.mean,
        "gain_low": interval and interval.low,
        "gain_high": interval and interval.high,
        "verdict": result.gain and result.gain.verdict,
        "ms_per_step": result.ms_per_step,
    }
    for n in FIRST:
        start = result.first_gain.get(n)
        line |= {f"first_{n}": start and start.interval.mean, f"first_{n}_verdict":
                 start and start.verdict}  # fmt: skip
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in line.items()}


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


def _place(experiment: Experiment) -> tuple[int, str]:
    name = experiment.outline.name
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


if __name__ == "__main__":
    raise SystemExit(main())
