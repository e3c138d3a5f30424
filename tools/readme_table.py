"""Write the results table of README.md from what ``crg compare ... --json`` printed.

``python tools/readme_table.py`` fills the README; with ``--check`` it writes nothing and
exits with 1 if the README is not up to date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crg.report.tables import (
    METHOD,
    Column,
    Table,
    gain_of_summary,
    spread_of_summary,
    to_markdown,
)

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
SIMULATED_TEXT = ("dtd", "flowers102")  # marked by a star, which the README explains
BASELINE = "zero_shot"

Row = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the README, or compare it with what would be written."""
    parser = argparse.ArgumentParser(description="Write the results table of README.md.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if out of date")
    parser.add_argument("--results", type=Path, default=ROOT / "docs/results/features.json")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    chosen = parser.parse_args(arguments)
    try:
        old = chosen.readme.read_text(encoding="utf-8")
        new = filled(old, tables(json.loads(chosen.results.read_text(encoding="utf-8"))))
    except (OSError, ValueError) as error:
        print(f"The table cannot be made ({error}).", file=sys.stderr)
        return 2
    if old == new:
        return 0
    if chosen.check:
        print(f"{chosen.readme} is out of date: run python tools/readme_table.py.", file=sys.stderr)
        return 1
    chosen.readme.write_text(new, encoding="utf-8")
    return 0


def filled(readme: str, table: str) -> str:
    """The README with ``table`` between its markers."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise ValueError(f"the README needs {BEGIN} and {END} once each")
    before, rest = readme.split(BEGIN)
    if END not in rest:
        raise ValueError(f"{END} comes before {BEGIN}")
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def tables(summary: Mapping[str, Any]) -> str:
    """Accuracy, and the gain over zero-shot with its interval: a row per method each."""
    n_orders = len(summary["seeds"])
    orders = f"{n_orders} stream order{'s' if n_orders > 1 else ''}"
    return "\n".join(
        [
            f"Accuracy in %, mean ± standard deviation over {orders}:\n",
            _table(summary, "accuracy", spread_of_summary),
            "\nGain over zero-shot in percentage points, with its 95% interval:\n",
            _table(summary, "gain", gain_of_summary),
        ]
    )


def _table(summary: Mapping[str, Any], name: str, text: Callable[[Any], str]) -> str:
    files: Mapping[str, Mapping[str, Row]] = summary["files"]
    first = next(iter(files.values()))
    labels = [label for label, row in first.items() if name != "gain" or row["method"] != BASELINE]
    best = {
        (row, column)
        for row, label in enumerate(labels)
        for column, rows in enumerate(files.values(), start=1)
        if name != "gain" and rows[label]["best"]
    }
    columns = (METHOD, *(Column(each, text) for each in _headings(list(files))))
    cells = tuple((label, *(rows[label][name] for rows in files.values())) for label in labels)
    return to_markdown(Table(columns, cells, best=frozenset(best)))


def _headings(paths: Sequence[str]) -> list[str]:
    """File names without folder and suffix, unless two files would look the same."""
    stems = [Path(path).stem for path in paths]
    if len(set(stems)) < len(stems):
        return list(paths)
    return [f"{stem} \\*" if stem in SIMULATED_TEXT else stem for stem in stems]


if __name__ == "__main__":
    sys.exit(main())
