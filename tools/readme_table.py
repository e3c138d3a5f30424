"""Write the results tables of README.md from docs/results/tables.md.

``python tools/readme_table.py`` fills the README; with ``--check`` it writes nothing and exits
with 1 if the README is not up to date. The figures are those of ``cross_datasets`` on feature
files, of all methods in their default options that adapt as images come and use no labels.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
SECTION = "Ten datasets of different kinds"  # the title of cross_datasets
SIMULATED = " (simulated text)"  # becomes a star, which the README explains
SHOWN = {
    "accuracy %": "Accuracy in %, mean ± standard deviation over stream orders:",
    "gain over zero-shot": "Gain over zero-shot in percentage points, with its 95% interval; "
    "▲ significantly better, ▼ significantly worse:",
    "ECE %": "Calibration error in % (15 bins):",
}

Figures = Mapping[str, Mapping[str, str]]  # by method, then by title of a column


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the README, or compare it with what would be written."""
    parser = argparse.ArgumentParser(description="Write the results tables of README.md.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if out of date")
    parser.add_argument("--tables", type=Path, default=ROOT / "docs/results/tables.md")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    chosen = parser.parse_args(arguments)
    try:
        old = chosen.readme.read_text(encoding="utf-8")
        new = filled(old, tables(chosen.tables.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        print(f"The tables cannot be made ({error}).", file=sys.stderr)
        return 2
    if old == new:
        return 0
    if chosen.check:
        print(f"{chosen.readme} is out of date: run python tools/readme_table.py.", file=sys.stderr)
        return 1
    chosen.readme.write_text(new, encoding="utf-8")
    return 0


def filled(readme: str, text: str) -> str:
    """The README with ``text`` between its markers."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise ValueError(f"the README needs {BEGIN} and {END} once each")
    before, rest = readme.split(BEGIN)
    if END not in rest:
        raise ValueError(f"{END} comes before {BEGIN}")
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def tables(stored: str) -> str:
    """Accuracy, gain and calibration error: a row per method, a column per feature file each."""
    files = dict(_files(stored))
    if not files:
        raise ValueError(f"there are no feature files under {SECTION!r}: run keep_results.py")
    methods = dict.fromkeys(method for figures in files.values() for method in figures)
    parts = []
    for column, heading in SHOWN.items():
        shown = [_column(column, list(methods), each) for each in files.values()]
        rows = [row for row in zip(methods, *shown, strict=True) if set(row[1:]) != {"-"}]
        lines = [["method", *files], ["---", *("---:" for _ in files)], *rows]
        parts.append("\n".join([heading, "", *(f"| {' | '.join(line)} |" for line in lines)]))
    return "\n\n".join(parts)


def _files(stored: str) -> Iterator[tuple[str, Figures]]:
    """The figures of each feature file, by its name."""
    section = stored.partition(f"\n## {SECTION}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^\*\*(.+): \d+ images scored\*\*\n\n((?:\|.*\n)+)", section, re.M)
    for title, table in blocks:
        if title.startswith("shapes"):
            continue
        columns, _, *rows = ([cell.strip() for cell in line.split(" | ")] for line in
                             (line.strip("| ") for line in table.splitlines()))  # fmt: skip
        yield (
            title.replace(SIMULATED, " \\*"),
            {row[0]: dict(zip(columns, row, strict=True)) for row in rows if _is_plain(row[0])},
        )


def _column(title: str, methods: Sequence[str], figures: Figures) -> list[str]:
    """One figure of all methods; the highest accuracy in bold."""
    cells = [figures.get(each, {}).get(title, "-").strip("*") for each in methods]
    if title != "accuracy %":
        return cells
    best = max((cell for cell in cells if cell != "-"), key=lambda cell: float(cell.split()[0]))
    return [f"**{cell}**" if cell.split()[0] == best.split()[0] else cell for cell in cells]


def _is_plain(name: str) -> bool:
    """Whether a row is a method as it is, rather than a variant or one that is marked."""
    return not re.search(r"[,(]", name)


if __name__ == "__main__":
    sys.exit(main())
