"""The page and the text tables are the same tables: what one of them tells, the other does."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from crg.report.evidence.cells import TIMES, once_mark, realised_text
from crg.report.evidence.sentences import once_note, verdicts_note
from crg.report.evidence.study import Study
from crg.report.study_page import study_page
from crg.report.tables import latex, markdown
from made_studies import SHAPES, TEXTURES, noise_study, streams_study, table_study


def changed(study: Study, label: str, **more: object) -> Study:
    """The study with other facts of one of its rows, wherever it stands."""
    tables = (
        replace(table, lines=tuple(
            replace(line, **more) if line.row.label == label else line  # type: ignore[arg-type]
            for line in table.lines))
        for table in study.tables
    )  # fmt: skip
    return replace(study, tables=tuple(tables))


def test_memory_has_one_unit() -> None:
    """Megabytes of a million bytes, on the page and in text."""
    page, text = study_page([table_study()]), markdown([table_study()])
    assert ">peak MB</th>" in page and ">183.5</td>" in page and "MB</td>" not in page
    assert "| peak MB |" in text and "| 183.5 |" in text


@pytest.mark.parametrize("make", [noise_study, streams_study])
def test_every_setting_has_all_columns_in_text_too(make: object) -> None:
    """One table per setting after the wide one, and as many as the page has."""
    assert callable(make)
    study: Study = make()
    text = markdown([study])
    for source in (SHAPES, TEXTURES):
        titles = [f"### {source.name}\n"]
        titles += [f"### {source.name}, {each.label}\n" for each in study.outline.settings]
        places = [text.index(title) for title in titles]
        assert places == sorted(places)
        part = text[places[-1] :]
        for column in ("ECE %", "NLL", "worst class %", "purity %", "ms"):
            assert column in part.partition("| row |")[2].splitlines()[0]
    assert study_page([study]).count("<h4>") == 2 * len(study.outline.settings)
    assert latex([study]).count("\\begin{tabular}") == text.count("\n| --- |")


def test_streams_are_held_against_the_first() -> None:
    """A column is called after it, and says that gains are compared."""
    page, text = study_page([streams_study()]), markdown([streams_study()])
    assert "gain over zero-shot less what it has there, in points'>against shuffled</th>" in page
    assert page.count(">against shuffled</th>") == text.count("| against shuffled |") == 12
    assert "The column 'against shuffled': the row's gain over zero-shot less" in text
    assert "the row's accuracy less what it has there" in markdown([noise_study()])


def test_all_prompts_are_named_in_text() -> None:
    """None is hidden behind "more"."""
    for text in (markdown([table_study()]), latex([table_study()])):
        assert " more." not in text and text.count("my ") == 1
    assert all(f'"{prompt}"' in markdown([table_study()]) for prompt in SHAPES.prompts)


def test_the_share_of_wrong_labels_is_shown_where_it_is_another() -> None:
    """More than a point from the one that was asked for, and not else."""
    study = noise_study()
    assert "% mislabelled" not in study_page([study]) + markdown([study])
    other = changed(study, "tda", mislabelled=0.205)
    page, text = study_page([other]), markdown([other])
    assert page.count("<small>20.5% mislabelled</small>") == 2 * 6
    assert text.count("; 20.5% mislabelled") == 2 * 6  # at 0.2 it is within rounding
    assert realised_text(other.tables[2].line("tda"), other.tables[2].setting) == ""


def test_rows_that_were_run_once_say_so() -> None:
    """In the head of the row, and in a note above."""
    study = table_study()
    page, text = study_page([study]), markdown([study])
    assert page.count("<small title='No answer depends on the order.'>run once</small>") == 2
    assert text.count("| gda (run once) |") == 2
    assert once_note(study) in page and once_note(study) in text


def test_run_once_in_some_settings_is_reported() -> None:
    """A row whose images differ between orders in some of the settings is not called more."""
    study = changed(streams_study(), "gda", run_once=True)
    assert "gda (run once)" in markdown([study])
    lines = [table.line("gda") for table in study.tables[:2]]
    mixed = [lines[0], replace(lines[1], run_once=False)]
    assert once_mark(lines) == "run once" and once_mark(mixed) == "run once in some settings"
    assert once_mark([replace(line, run_once=False) for line in lines]) == ""


def test_caveats_stand_at_the_top() -> None:
    """How many verdicts there are, and what times are worth."""
    studies = [table_study(), noise_study()]
    note = verdicts_note(studies)
    page = study_page(studies)
    assert note in page.partition("<section")[0] and TIMES in page.partition("<section")[0]
    assert markdown(studies).startswith(note) and TIMES in markdown(studies)
    assert note in latex(studies)
    tips = re.findall(r"title='([^']*)'[^>]*>ms per image", page)
    assert tips and all(TIMES in tip for tip in tips)
