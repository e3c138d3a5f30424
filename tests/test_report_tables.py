"""The tables of experiments as Markdown and LaTeX: whole, well formed, and nothing unsaid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crg.report.evidence import Study
from crg.report.tables import escape_latex, latex, markdown
from crg.results import ledger
from crg.results.outline import LABELLED_IMAGES, Row, Setting, Source
from crg.streams.scenario import Scenario
from made_results import Book, share

NASTY = "50% | a_b & {c} $d #1 ~^ \\x <y> *z*"
SOURCE = Source("dtd, RN50", dataset="dtd", n_samples=200, n_classes=4, n_views=8, model="RN50",
                prompts=("a photo of a {}.", "{} texture."), text_kind="simulated")  # fmt: skip
ROWS = (
    Row("crg", "crg"),
    Row(NASTY, "dpe"),
    Row("tda, published", "tda", {"preset": "published"}, tuned=True),
    Row("gda", "gda", needs=(LABELLED_IMAGES,)),
    Row("[broken]", "tda", {"y": 1}),
    Row("refused", "tpt"),
)


def book_of_all(**more: Any) -> Book:
    """A study with every kind of row."""
    missing = Source("sun397, RN50", missing="No store | was found: run crg encode_it.")
    book = Book(ROWS, sources=(SOURCE, missing), reported="cross_datasets", **more)
    for label, n_right in (("zero_shot", 100), ("crg", 150), (NASTY, 60),
                           ("tda, published", 160), ("gda", 170)):  # fmt: skip
        book.add(label, share(n_right), base=share(100), peak_bytes=2_000_000, purity=0.5)
    failed = book.expect("[broken]")
    book.records.append(ledger.make_failure(str(failed.key), "It broke_down & cost 5%."))
    book.refuse("refused", "It needs a text encoder.")
    return book


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """What that says."""
    return book_of_all().read(tmp_path)


def wide(folder: Path) -> Study:
    """A study with several settings and rows that are tuned or incomplete in some."""
    settings = [Setting("shuffled"), Setting("class | by class", Scenario("by_class"))]
    book = Book([ROWS[0], ROWS[2], ROWS[5]], "streams", settings=settings)
    for setting in (0, 1):
        book.add("crg", share(150 - 90 * setting), base=share(100), setting=setting)
        book.add("tda, published", share(120), base=share(100), setting=setting)
    book.expect("refused", 0, setting=0)
    return book.read(folder)


def pipes(line: str) -> int:
    """How many cells end in a line of a Markdown table."""
    return len(re.findall(r"(?<!\\)\|", line))


@pytest.mark.parametrize("kind", ["full", "wide", "start"])
def test_markdown_tables_are_well_formed(tmp_path: Path, kind: str) -> None:
    """Every table has a ruler, and all its lines have as many cells."""
    made = wide(tmp_path) if kind == "wide" else book_of_all(
        figure="cold_start" if kind == "start" else "table").read(tmp_path)  # fmt: skip
    blocks = re.findall(r"(?:^\|.*\n?)+", markdown([made]), flags=re.MULTILINE)
    assert blocks
    for block in blocks:
        lines = block.strip().splitlines()
        assert re.fullmatch(r"\|( ---:? \|)+", lines[1])
        assert len({pipes(line) for line in lines}) == 1
        assert len(lines) > 2


def test_markdown_says_everything(study: Study) -> None:
    """Accuracy, verdicts, reasons, watermark, prompts, text kind, papers, missing data, traces."""
    text = markdown([study])
    for words in (
        "## Toys", "Made up.", "75.00 ± 0.00", "better", "worse", "tuned on labels",
        "uses labelled images", "failed: It broke_down &amp; cost 5%.",
        "not run: It needs a text encoder.", '"a photo of a {}.", "{} texture."',
        "simulated text features", "Model: RN50", "200 images, 4 classes, 8 views",
        "sun397, RN50", "papers print %", "43.74", "peak MB", "purity %", "worst class %",
        "toys.jsonl:LINE repeats a run", "5 stream orders", "crg is highest",
    ):  # fmt: skip
        assert words in text, words


def test_the_watermark_is_in_every_table_and_format(tmp_path: Path, study: Study) -> None:
    """One setting or several, Markdown or LaTeX: the row itself carries it."""
    for each in (study, wide(tmp_path)):
        for text in (markdown([each]), latex([each])):
            rows = re.findall(r"^(?:\| )?tda, published.*$", text, flags=re.MULTILINE)
            assert rows and all("tuned on labels" in row for row in rows)


def test_the_best_is_bold_and_uses_no_labels(study: Study) -> None:
    """Rows with labels are more accurate here and yet not bold."""
    assert "| **crg** | **75.00 ± 0.00** |" in markdown([study])
    assert "\\textbf{crg} & \\textbf{75.00 $\\pm$ 0.00} &" in latex([study])
    assert "**gda" not in markdown([study])
    bold = re.findall(r"\*\*(.+?)\*\*", markdown([study]))
    assert bold == ["crg", "75.00 ± 0.00"]  # and nothing else: neither NLL nor a reason
    assert "\\emph{failed: It broke" in latex([study])


def test_what_bold_means_is_said(study: Study, tmp_path: Path) -> None:
    """Once per study, and where rows use labels that these are left out of it."""
    for text in (markdown([study]), latex([study])):
        assert text.count("bold is the highest accuracy") == 1
        assert text.count("Only rows that use no labels can be bold") == 1
        assert "at least 30 scored images" in text
    plain = Book(ROWS[:1])
    plain.add("crg", share(150), base=share(100))
    (tmp_path / "plain").mkdir()
    assert "Only rows that use no labels" not in markdown([plain.read(tmp_path / "plain")])


def test_several_settings_share_one_table(tmp_path: Path) -> None:
    """Accuracy and difference per setting, and where it is lowest."""
    text = markdown([wide(tmp_path)])
    assert "| row | shuffled | class \\| by class | lowest to zero-shot | lines |" in text
    row = next(line for line in text.splitlines() if line.startswith("| crg |"))
    assert "**30.00 ± 0.00**; -20.00" in row and row.count("worse") == 2
    assert "not run: It was not reached yet" in text
    assert "Not run: refused (It was not reached yet)." in text


def test_the_scored_images_of_each_setting_are_reported(tmp_path: Path) -> None:
    """Where settings leave images out, a line of the table has the number of each."""
    settings = [Setting("shuffled"), Setting("few", Scenario("few_present"))]
    book = Book(ROWS[:1], "streams", settings=settings)
    book.add("crg", share(150), base=share(100))
    book.add("crg", share(0), base=share(21), setting=1, scored=np.arange(200) < 21)
    made = book.read(tmp_path)
    assert "| scored images | 200 | 21 | - | - |" in markdown([made])
    assert "scored images & 200 & 21 & - & - \\\\" in latex([made])
    row = next(line for line in markdown([made]).splitlines() if line.startswith("| crg |"))
    assert row.count("+25.00") == 2 and "few." in markdown([made])  # the lowest of those that count


def test_the_highest_of_each_column_is_bold_at_the_start(tmp_path: Path) -> None:
    """Not the row that is highest in the end, and one cell in each column."""
    book = Book([Row("late", "crg"), Row("early", "tda")], "cold_start")
    orders = [np.random.default_rng(seed).permutation(200) for seed in range(5)]
    for label, (first, last) in {"late": (50, 200), "early": (0, 90)}.items():
        rights = [np.isin(np.arange(200), order[first:last]) for order in orders]
        book.add(label, rights, base=share(20))
    text = markdown([book.read(tmp_path)]).partition("the first images")[2]
    rows = [re.findall(r"\*\*(.+?)\*\*", line) for line in text.splitlines() if "| " in line]
    assert rows[2:4] == [["75.00 ± 0.00"], ["100.00 ± 0.00", "90.00 ± 0.00"]]


def test_latex_is_escaped_and_balanced(study: Study, tmp_path: Path) -> None:
    """Environments close, braces match, rows have as many cells, and no character is loose."""
    text = latex([study, wide(tmp_path)])
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    opened = re.findall(r"\\begin\{(\w+)\}", body)
    assert opened and sorted(opened) == sorted(re.findall(r"\\end\{(\w+)\}", body))
    bare = body.replace("\\\\", "").replace("\\{", "").replace("\\}", "")
    assert bare.count("{") == bare.count("}")
    assert not re.search(r"(?<!\\)[#_^~<>|\"]", bare)
    assert bare.replace("\\$", "").count("$") % 2 == 0
    assert "-{}-" not in "crg" and all(ord(each) < 128 for each in body)


def test_latex_rows_fill_their_table(study: Study, tmp_path: Path) -> None:
    """Cells, and those that a reason spans, are as many as the table has columns."""
    text = latex([study, wide(tmp_path)])
    for kinds, body in re.findall(
        r"\\begin\{tabular\}\{(.*?)\}\n\\toprule\n(.*?)\\bottomrule", text, flags=re.DOTALL
    ):
        width = 2 if kinds.startswith("lp") else len(kinds)
        rows = [line for line in body.splitlines() if line.endswith(" \\\\")]
        assert len(rows) > 1
        for row in rows:
            spans = [int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", row)]
            assert len(re.findall(r"(?<!\\)&", row)) + 1 + sum(spans) == width, row
            assert not row.startswith(("[", "*"))


def test_characters_stand_for_themselves_in_latex() -> None:
    """What has a meaning in LaTeX is written so that it has none."""
    assert escape_latex("a--b") == "a-{}-b"
    assert escape_latex("[-1.5, +2]") == "[$-$1.5, +2]"
    assert escape_latex("3-5") == "3-5"
    assert escape_latex("\\{}") == "\\textbackslash{}\\{\\}"
    assert escape_latex("two\nlines") == "two lines"
