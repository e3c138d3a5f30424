"""The numbers in README and docs are those of the archived results."""

from __future__ import annotations

import csv
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from crg.results.papers import bundled_papers

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "choosing.md", RESULTS / "README.md")
MARK = re.compile(r"<!-- (?P<experiments>[\w ]+): (?P<columns>[\w ]+) -->\n")
NUMBER = re.compile(r"(?<![\w.,:/=-])[+-]?\d+\.\d+(?![\w.]|,\d)")
CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|https?://\S+|--sets \S+", re.DOTALL)
ABOUT = ("experiment", "dataset", "setting", "method")
OUR_FILES = {"oxfordpets": "pets_b16", "caltech101": "caltech_b16", "eurosat": "eurosat_b16"}
OUR_NAMES = {"zero_shot_one_prompt": "zero_shot", "freetta": "freetta, simple form"}
FIGURE = re.compile(r"-?[\d.]+(e-\d+)?")  # a number in a CSV file
UNMEASURED = {"3.11", "2.0", "0.9"}  # Python, a licence, and the level of sets

Row = dict[str, str]


def _rows() -> list[Row]:
    """Every line of the CSV files beside the archived runs, and the numbers of papers."""
    texts = [file.read_text("utf-8") for file in RESULTS.glob("*.csv")]
    rows = [row for text in texts for row in csv.DictReader(text.splitlines())]
    for table in bundled_papers().table:
        for method, values in table.rows.items():
            for dataset, value in zip(table.columns, values, strict=True):
                if table.backbone == "ViT-B-16" and dataset in OUR_FILES:
                    named = (OUR_FILES[dataset], table.source, OUR_NAMES.get(method, method))
                    about = zip(ABOUT, ("papers", *named), strict=True)
                    rows.append(dict(about, accuracy=str(value / 100)))
    return rows + list(_means(rows))


def _means(rows: list[Row]) -> Iterator[Row]:
    """A line for the mean over the ten feature files of each experiment, setting and method."""
    groups = defaultdict(list)
    for row in rows:
        if not row["dataset"].startswith("shapes"):
            groups[row["experiment"], "mean of files", row["setting"], row["method"]].append(row)
    for about, group in groups.items():
        if len(group) == 10:
            texts = {name: [row[name] for row in group] for name in group[0] if name not in ABOUT}
            means = {name: str(statistics.fmean(map(float, some))) for name, some in texts.items()
                     if all(FIGURE.fullmatch(text or "") for text in some)}  # fmt: skip
            yield dict(zip(ABOUT, about, strict=True), **means)


ROWS = _rows()
DATASETS, METHODS = ({row[name] for row in ROWS} for name in ("dataset", "method"))


def _is_stored(number: str, rows: list[Row], columns: list[str]) -> bool:
    """Whether a figure of these lines, as it is or in %, rounds to the number."""
    wanted, tolerance = abs(float(number)), 0.5001 * 10 ** -len(number.partition(".")[2])
    texts = [
        row[name] or "" for row in rows for name in columns or {*row} - {*ABOUT} if name in row
    ]
    values = [abs(float(text)) for text in texts if FIGURE.fullmatch(text)]
    return any(min(abs(v - wanted), abs(100 * v - wanted)) <= tolerance for v in values)


def _named(text: str, names: set[str]) -> set[str]:
    """The names that a text mentions, the longest first: "crg, second pass" is not "crg"."""
    plain = " ".join(text.replace("`", "").split())
    plain = re.sub(r"zero-shot(?! cache)", "zero_shot", plain)
    plain = re.sub(r"\b(CRG|DPE|TDA|DOTA|OnZeta|CoOp|PACS)\b", lambda name: name[0].lower(), plain)
    for alias, name in (("Oxford Pets", "pets_b16"), ("Caltech101", "caltech_b16")):
        plain = plain.replace(alias, name)
    found = set()
    for name in sorted(names, key=len, reverse=True):
        pattern = rf"(?<![\w:]){re.escape(name)}(?![\w:])"
        if re.search(pattern, plain):
            found.add(name)
            plain = re.sub(pattern, " ", plain)
    return found


def _about(text: str, rows: list[Row]) -> list[Row]:
    """The lines about the datasets and methods that a text names; about all if it names none."""
    datasets, methods = _named(text, DATASETS) or DATASETS, _named(text, METHODS) or METHODS
    return [row for row in rows if row["method"] in methods
            and row["dataset"].partition(", names of")[0] in datasets]  # fmt: skip


def _marks(section: str) -> list[tuple[list[Row], list[str], list[list[str]]]]:
    """For each mark of a section: lines of its experiments, columns, cells of the table below."""
    found = []
    for mark in MARK.finditer(section):
        rows = [row for row in ROWS if row["experiment"] in mark["experiments"].split()]
        below = section[mark.end() :].partition("\n\n")[0].splitlines()
        table = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in below if below[0]
        ]
        found.append((rows, mark["columns"].split(), table[:1] + table[2:]))
    return found


def wrong_numbers(text: str) -> list[str]:
    """The numbers that no figure which the marks of their section name rounds to."""
    wrong = []
    for section in re.split(r"\n(?=## )", text):
        marks = _marks(section)
        for rows, columns, table in marks:
            for line in table[1:]:
                for title, cell in zip(table[0][1:], line[1:], strict=True):
                    about = _about(f"{table[0][0]} | {line[0]} | {title}", rows)
                    numbers = [n for n in NUMBER.findall(cell) if not _is_stored(n, about, columns)]
                    wrong += [f"{line[0]}, {title}: {number}" for number in numbers]
        prose = re.sub(rf"{MARK.pattern}(\|.*?\n(?=\n|$))?", "", section, flags=re.DOTALL)
        for part in re.split(r"\n\n|\n(?=\d\. |- |\|)", prose):
            for number in set(NUMBER.findall(CODE.sub(" ", part))) - UNMEASURED:
                if not any(_is_stored(number, _about(part, rows), each) for rows, each, _ in marks):
                    wrong.append(f"{part[:60]!r}: {number}")
    return wrong


def one_more(number: re.Match[str]) -> str:
    """Another number with as many digits."""
    return f"{float(number[0]) + 1.37:.{len(number[0].partition('.')[2])}f}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_numbers_are_those_of_the_archived_results(document: Path) -> None:
    """Tables agree cell by cell, sentences with what they name; other numbers would be found."""
    text = document.read_text(encoding="utf-8")
    assert wrong_numbers(text) == []
    assert len(wrong_numbers(NUMBER.sub(one_more, text))) > 0.8 * len(NUMBER.findall(text))


def test_counts_of_streams_are_those_of_the_archived_results() -> None:
    """The table of significantly better and worse streams is recounted."""
    streams = [row for row in ROWS if row["experiment"] == "streams"]
    verdicts = Counter((row["method"], row.get("verdict")) for row in streams)
    [table] = re.findall(r"\n\| streams .*?\n\n", DOCUMENTS[-1].read_text("utf-8"), re.DOTALL)
    heading, _, *lines = ([cell.strip() for cell in line.strip("| ").split("|")]
                          for line in table.splitlines() if line)  # fmt: skip
    for verdict, *counts in lines:
        found = [verdicts[method, verdict] for method in heading[1:]]
        assert [int(count.strip("*")) for count in counts] == found, verdict
