"""Means over sources: what they are of, what they are not given for, and where they stand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import made_studies
from crg.report.evidence.averages import (
    Average,
    average_note,
    groups_of,
    means_caption,
    settings_groups,
)
from crg.report.evidence.study import Study
from crg.report.study_across import means_table, overview_table
from crg.report.study_page import study_page
from crg.report.tables import latex, markdown
from made_studies import SHAPES, TEXTURES, noise_study, spread, streams_study, table_study


def with_accuracy(
    study: Study, place: int, label: str, accuracy: float, status: str = "measured"
) -> Study:
    """The study with another accuracy of a row in one of its tables."""
    lines = tuple(
        replace(line, accuracy=spread(accuracy), status=status) if line.row.label == label else line
        for line in study.tables[place].lines
    )
    tables = list(study.tables)
    tables[place] = replace(tables[place], lines=lines)
    return replace(study, tables=tuple(tables))


def test_a_mean_counts_each_source_once() -> None:
    """Whatever the number of its images."""
    study = with_accuracy(table_study(), 1, "tda", 0.83)
    assert groups_of(study)[-1].average("tda").mean == pytest.approx((0.63 + 0.83) / 2)


def test_a_row_that_lacks_a_source_has_no_mean() -> None:
    """Not one that failed, and not one that lacks orders either: how many it has is reported."""
    study = with_accuracy(table_study(), 1, "tda", 0.83, status="incomplete")
    [group] = groups_of(study)
    assert group.average("tda") == Average(None, 1, 2)
    assert group.average("difftpt") == Average(None, 0, 2)
    assert "<small>on 1 of 2 sources</small>" in overview_table(study)
    last = markdown([study]).partition("| mean of sources |")[2].splitlines()[0]
    assert last.count("on 1 of 2 sources") == 1 and last.count("on 0 of 2 sources") == 2


def test_sequences_are_in_no_mean() -> None:
    """They repeat the images of other sources."""
    study = streams_study()
    sequence = replace(TEXTURES, name="both", then=("other.npz",))
    more = tuple(replace(table, source=sequence) for table in study.tables_of(TEXTURES.name))
    longer = replace(study, tables=study.tables + more)
    assert settings_groups(longer) == settings_groups(study)
    assert "left out" in average_note(longer, settings_groups(longer))
    assert "left out" not in average_note(study, settings_groups(study))


def test_sources_of_one_model_have_a_mean_too() -> None:
    """Where there are several models, as tables of the field are made."""
    study = table_study()
    third = replace(study.tables[0], source=replace(SHAPES, name="shapes:fog:3"))
    groups = groups_of(replace(study, tables=(*study.tables, third)))
    assert [group.title for group in groups] == ["mean of sources, mini", "mean of sources"]
    assert [len(group.tables) for group in groups] == [2, 3]


def test_one_source_has_no_mean() -> None:
    """Neither in the overview nor over settings."""
    for make in (table_study, noise_study):
        study = make()
        alone = replace(study, tables=study.tables_of(SHAPES.name))
        assert groups_of(alone) == [] and settings_groups(alone) == []
        assert "Means over sources" not in study_page([alone]) + markdown([alone])


def test_the_note_says_what_means_are_not() -> None:
    """No interval, no verdict, and simulated text is among them."""
    study = table_study()
    note = average_note(study, groups_of(study))
    assert "no interval and no verdict" in note and "no sample" in note
    assert "among them is 1 with simulated text features" in note
    assert note in overview_table(study) and note in markdown([study])


@pytest.mark.parametrize("make", [noise_study, streams_study])
def test_settings_have_means_before_the_sources(make: object) -> None:
    """Rows against settings, the same numbers on the page and in text."""
    assert callable(make)
    study: Study = make()
    page, text = study_page([study]), markdown([study])
    assert 0 < page.index("Mean of sources") < page.index("<details class='source'")
    assert text.index(": mean of sources") < text.index(f"### {SHAPES.name}")
    row = text.partition(": mean of sources")[2].partition("| crg |")[2].splitlines()[0]
    cells = means_table(study).partition("data-v='crg'")[2].partition("</tr>")[0]
    assert re.findall(r"[\d.]+", row) == re.findall(r">([\d.]+)</td>", cells)
    assert len(re.findall(r"[\d.]+", row)) == len(study.outline.settings)
    assert ": mean of sources" in latex([study])


def test_noise_has_a_chart_of_means() -> None:
    """With its data and a sentence that follows the numbers; streams have none."""
    study = noise_study()
    drawn = means_table(study)
    assert "<svg" in drawn and "download='noise-mean-noise.csv'" in drawn
    assert "share of cache insertions with a wrong label, %" in drawn
    words = means_caption(study, settings_groups(study))
    assert words in drawn and "Gaussian is highest with 59.00%" in words
    last = len(study.tables) - 1
    moved = with_accuracy(study, last, "crg", 0.99)
    assert "crg is highest with" in means_caption(moved, settings_groups(moved))
    assert means_caption(moved, settings_groups(moved)) != words
    assert "<svg" not in means_table(streams_study())


def test_the_overview_is_in_text_too() -> None:
    """The first table of an experiment with one setting, with marks on rows that use labels."""
    text = markdown([table_study()])
    first = text.index("### The experiment table: all sources")
    assert first < text.index(f"### {SHAPES.name}")
    head = text[first:].partition("| source |")[2].splitlines()[0]
    assert "coop (labels)" in head and "crg, tuned (tuned on labels)" in head
    row = text[first:].partition("| dtd, RN50 (simulated text features) |")[2].splitlines()[0]
    assert "**65.00 ± 0.60**; +5.00 better" in row and "failed" in row and "not run" in row


def test_rows_with_labels_are_marked_in_the_overview() -> None:
    """Not only those that were tuned."""
    heads = overview_table(table_study()).split("</thead>")[0]
    assert ">coop<br><small>labels</small></th>" in heads
    assert heads.count("<small>labels</small>") == 1


def test_made_studies_have_no_accidental_models() -> None:
    """Two sources of two models: no model has a mean of its own."""
    assert len(groups_of(made_studies.heat_study())) == 1
