"""The report of experiments as a page: everything is reported, nothing is called what it is not."""

from __future__ import annotations

import csv
import importlib
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

import made_studies
from crg.cli import main
from crg.report.evidence.sentences import TUNED
from crg.report.evidence.study import Line, Study
from crg.report.markup import Figure, data_link
from crg.report.study_across import overview_table
from crg.report.study_page import study_page
from crg.report.study_section import FIGURES, figures_of
from made_studies import SHAPES, TEXTURES, all_studies, table_study
from test_report import SVG, Balanced

MAKERS = [
    made_studies.table_study, made_studies.cold_start_study, made_studies.purity_study,
    made_studies.waterfall_study, made_studies.sweep_study, made_studies.noise_study,
    made_studies.streams_study, made_studies.shots_study,
]  # fmt: skip


@pytest.fixture(scope="module")
def page() -> str:
    """The page of one study of each kind."""
    return study_page(all_studies())


def test_the_page_needs_nothing_but_itself(page: str) -> None:
    """The page is well formed, leads nowhere else, and is ours to replace."""
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert all(a.startswith(("data:", "#")) for a in parser.addresses)
    assert "http" not in page.replace(SVG, "") and "name='generator' content='crg'" in page


def test_every_kind_of_figure_is_known() -> None:
    """The made studies cover all kinds that an experiment can ask for."""
    kinds = {study.outline.figure for study in all_studies()}
    assert kinds | {"learning"} == set(FIGURES)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_figures_have_images_captions_and_data(make: Callable[[], Study]) -> None:
    """Each figure of each source has a sentence with a number in it, and its data."""
    study = make()
    for source in (SHAPES.name, TEXTURES.name):
        figures = figures_of(study, source)
        assert figures
        for each in figures:
            assert each.images and re.search(r"\d", each.caption), each.name
            assert all(len(row) == len(each.header) for row in each.data)


def test_nothing_measured_makes_no_figure() -> None:
    """Where all rows failed there is a page with the reasons and without empty charts."""
    study = table_study()
    failed = [
        replace(table, lines=tuple(
            Line(line.row, "failed", "no memory") for line in table.lines))
        for table in study.tables
    ]  # fmt: skip
    broken = replace(study, tables=tuple(failed), gallery={})
    assert figures_of(broken, SHAPES.name) == []
    assert study_page([broken]).count("failed: no memory") == 20


def test_figures_follow_the_numbers() -> None:
    """A caption changes with the data that it speaks of."""
    study = table_study()
    before = [each.caption for each in figures_of(study, SHAPES.name)]
    lines = tuple(
        replace(line, learning=made_studies.curve(0.31), reliability=made_studies.bins(0.3))
        for line in study.tables[0].lines
        if line.accuracy is not None
    )
    other = replace(study, tables=(replace(study.tables[0], lines=lines),))
    after = [each.caption for each in figures_of(other, SHAPES.name)]
    assert "31.1%" in after[1] and after[2] != before[2]


def test_failures_and_gaps_are_rows(page: str) -> None:
    """Failed, not run and missing are reported with their reasons, escaped."""
    assert re.search(r"<tr class='failed'>.*?failed: out of memory &lt;in&gt; a worker", page)
    assert re.search(r"<tr class='absent'>.*?not run: there are no labelled images", page)
    assert "<summary>missing</summary>no store in data/imagenet-a: run crg encode." in page
    assert "how &lt;b&gt;it&lt;/b&gt; is read" in page


def test_tuned_rows_are_marked_wherever_they_stand(page: str) -> None:
    """The watermark is on the row in each table of it, and a remark stands above."""
    assert page.count("crg, tuned</span> <span class='flag'>tuned on labels</span>") == 2
    assert "Rows marked “tuned on labels”" in page


def test_simulated_text_is_told_at_every_name(page: str) -> None:
    """The name of the source never stands without the flag in a table or a heading."""
    plain = re.findall(rf"<(?:h3|th)[^>]*>{TEXTURES.name}(?! <span class='flag'>simulated)", page)
    assert not plain and f"{TEXTURES.name} <span class='flag'>simulated text</span>" in page


def test_verdicts_come_from_intervals_only() -> None:
    """A difference without a verdict is shown as a number alone."""
    study = table_study()
    lines = tuple(
        replace(line, to_zero_shot=made_studies.contrast(0.005), to_best_rival=None)
        for line in study.tables[0].lines
    )
    plain = study_page([replace(study, tables=(replace(study.tables[0], lines=lines),))])
    assert "class='better'" not in plain and "class='worse'" not in plain
    assert "class='better'" in study_page([study]) and "class='worse'" in study_page([study])


def test_only_the_best_name_and_accuracy_are_bold() -> None:
    """Neither what else was measured of the best row nor any verdict is."""
    shown = study_page([table_study()])
    row, *others = re.findall(r"<tr><th scope='row' class='best'.*?</tr>", shown)
    assert len(others) == 1  # the table of the other source
    bold = re.findall(r"<(t[hd])[^>]* class='best'[^>]*>(?:<span>)?([\w.]+)", row)
    assert bold == [("th", "crg"), ("td", "65.00")]
    assert "<b " not in shown and "tr class='best'" not in shown
    assert "span class='better' title='better'>▲ better</span>" in row


def test_the_highest_over_the_first_images_is_bold() -> None:
    """One per column, whoever is highest in the end."""
    study = made_studies.cold_start_study()
    lines = list(study.tables[0].lines)
    lines[1] = replace(lines[1], first={**lines[1].first, 50: made_studies.spread(0.9)})
    changed = replace(study, tables=(replace(study.tables[0], lines=tuple(lines)),))
    bold = re.findall(r"<span class='best'>([\d.]+)", study_page([changed]))
    assert bold == ["90.00", "62.00", "63.00", "63.60"]


def test_settings_say_how_many_images_they_have() -> None:
    """Below each setting, and above the table that has all its columns."""
    study = made_studies.streams_study()
    counts = (96.0, 42.0, 20.5)
    tables = [
        replace(table, scored=made_studies.spread(count, None))
        for table, count in zip(study.tables, counts, strict=False)
    ]
    shown = study_page([replace(study, tables=tuple(tables))])
    for table, count in zip(tables, ("96", "42", "20.5"), strict=True):
        label = table.setting.label
        assert f">{label}<br><small>{count} images</small></th>" in shown
        assert f"<h4>{label}: {count} scored images per order</h4>" in shown
    drawn = figures_of(replace(study, tables=tuple(tables)), SHAPES.name)[0]
    assert {row[-1] for row in drawn.data} <= {table.setting.label for table in tables[:2]}


def test_verdicts_over_settings_are_marked_and_not_bold() -> None:
    """Up and down are reported by a mark that the caption explains."""
    shown = study_page([made_studies.streams_study()])
    assert "<span class='worse' title='worse'>▼</span>" in shown
    assert " better (▲) and " in shown and "<b title" not in shown


def test_rows_that_were_not_run_say_why_in_short() -> None:
    """In the title of the cell, and in a line below the table that can be seen."""
    study = made_studies.streams_study()
    why = "Method 'tpt' needs a text encoder: give a store."
    tables = [
        replace(table, lines=tuple(
            Line(line.row, "not run", why) if line.row.label == "tpt" else line
            for line in table.lines))
        for table in study.tables
    ]  # fmt: skip
    shown = study_page([replace(study, tables=tuple(tables))]).partition("<figcaption>")[0]
    assert "needs a text encoder: give a store.'>not run</span>" in shown
    assert "<p class='facts'>Not run: tpt (needs a text encoder).</p>" in shown


def test_the_head_explains_bold_once(page: str) -> None:
    """And each section with rows that use labels says that these are never bold."""
    assert page.count("bold is the highest accuracy") == 1
    assert page.count("Only rows that use no labels can be bold") == 2
    assert "at least 30 scored images" in page


def test_an_incomplete_row_is_marked_wherever_its_numbers_stand() -> None:
    """In the overview too, where it may be highest and yet is not bold."""
    study = table_study()
    lines = tuple(
        replace(line, status="incomplete", reason="1 of 5 stream orders is missing.")
        if line.row.label == "tda" else line
        for line in study.tables[0].lines
    )  # fmt: skip
    tables = tuple(replace(table, lines=lines) for table in study.tables)
    overview = study_page([replace(study, tables=tables)]).partition("<details class='source'")[0]
    assert overview.count("<small title='1 of 5 stream orders is missing.'>incomplete</small>") == 2


def test_papers_numbers_have_their_notes(page: str) -> None:
    """What papers report stands in a column, with what speaks against comparing it below."""
    assert "21.83<sup>1, 2</sup>" in page
    assert "<li>It is on 2,000 random images.</li>" in page


def test_prompts_models_and_traces_are_named(page: str) -> None:
    """Each source tells its model and prompts, and each number where it came from."""
    assert "model mini; 5 prompts." in page
    folded = page.partition("<details class='facts prompts'>")[2].partition("</details>")[0]
    assert "<summary>Prompts: “an image of a {}.”" in folded and "and 2 more</summary>" in folded
    assert all(f"<li>{prompt}</li>" in folded for prompt in SHAPES.prompts)
    assert "prompts not told by the file" in page
    assert "crg rerun results/made.jsonl:7" in page and "results/made.jsonl:7,8,9" in page


def test_data_behind_a_link_can_be_read_back() -> None:
    """The link holds a CSV file with the very numbers, also where names have commas."""
    data = (('a, "b" & c', 1.25), ("d", 3.0))
    link = data_link(Figure("Figure 1", (), "", ("row", "x"), data))
    found = re.search(r"href='data:text/csv;charset=utf-8,([^']*)'", link)
    assert found and "download='figure-1.csv'" in link
    rows = list(csv.reader(io.StringIO(unquote(found.group(1)))))
    assert rows == [["row", "x"], ['a, "b" & c', "1.25"], ["d", "3"]]


def test_the_head_counts(page: str) -> None:
    """Runs, failures and gaps are counted, and versions named."""
    assert "3 runs of 9 experiments, 2 rows failed, 2 rows not run, 1 source missing" in page
    assert "<dt>crg</dt><dd>0.6.0</dd>" in page
    assert page.count("<dd>2026-01-01 10:00 UTC to 2026-01-02 11:00 UTC</dd>") == 1


@pytest.mark.parametrize("layout", ["html", "markdown", "latex"])
def test_what_is_no_results_file_is_refused(tmp_path: Path, layout: str) -> None:
    """One sentence, exit code 2, and nothing is written."""
    file = tmp_path / "notes.jsonl"
    file.write_text("hello\n")
    out = tmp_path / "report.html"
    words = ["report", str(file), "--out", str(out), "--format", layout]
    outcome = CliRunner().invoke(main, words)
    assert outcome.exit_code == 2 and "notes.jsonl" in outcome.stderr
    assert outcome.stderr.count("\n") == 1 and not out.exists()


def test_somebody_elses_page_is_left_alone(tmp_path: Path) -> None:
    """A file at --out that is no page of ours is refused and keeps its content."""
    out = tmp_path / "index.html"
    out.write_text("mine")
    outcome = CliRunner().invoke(main, ["report", str(tmp_path), "--out", str(out)])
    assert outcome.exit_code == 2 and "--out" in outcome.stderr and out.read_text() == "mine"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty working directory in which every results file holds the made studies."""
    monkeypatch.chdir(tmp_path)
    command = importlib.import_module("crg.cli.report")
    monkeypatch.setattr(command, "read_studies", lambda *_: all_studies())
    return tmp_path


def test_the_command_writes_a_page(known: Path) -> None:
    """Without --out the page is report.html; it may be written again."""
    for _ in range(2):
        outcome = CliRunner().invoke(main, ["report", "results"])
        assert outcome.exit_code == 0 and "9 experiments" in outcome.stderr
    assert (known / "report.html").read_text(encoding="utf-8") == study_page(all_studies())
    assert [path.name for path in known.iterdir()] == ["report.html"]


@pytest.mark.parametrize(("layout", "mark"), [("markdown", "| ---"), ("latex", "\\begin{tab")])
def test_the_command_prints_tables(known: Path, layout: str, mark: str) -> None:
    """As text the tables go to the screen, or to a file that is named."""
    printed = CliRunner().invoke(main, ["report", "results", "--format", layout])
    assert printed.exit_code == 0 and mark in printed.stdout and not list(known.iterdir())
    saved = CliRunner().invoke(main, ["report", "results", "--format", layout, "--out", "tables"])
    assert saved.exit_code == 0 and saved.stdout == ""
    assert (known / "tables").read_text(encoding="utf-8").strip() == printed.stdout.strip()


def test_tuned_rows_are_marked_in_the_overview_too() -> None:
    """A column of the overview that shows a tuned row says so in its head."""
    found = [each for each in all_studies() if any(row.tuned for row in each.outline.rows)]
    assert found
    for study in found:
        heads = overview_table(study).split("</thead>")[0]
        assert heads.count(TUNED) == sum(row.tuned for row in study.outline.rows)


def test_steps_say_what_their_whiskers_are() -> None:
    """The bar is a step, the whisker at its end the interval against zero-shot."""
    shown = study_page([made_studies.waterfall_study()])
    assert "Whiskers are 95% intervals against zero-shot." in shown
