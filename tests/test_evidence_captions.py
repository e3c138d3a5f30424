"""Captions: a few facts of the figure, chosen by the numbers, and never the whole list."""

from __future__ import annotations

from pathlib import Path

from crg.report.evidence import Study, caption, findings_on
from crg.report.evidence.captions import loss_caption
from crg.results.outline import LABELLED_IMAGES, Row, Setting
from crg.streams.scenario import Scenario
from made_results import Book, share

A, B, C = Row("a", "crg"), Row("b", "tda"), Row("c", "dpe")


def told(folder: Path, figure: str) -> str:
    """The caption where three rows have 150, 60 and 120 of 200 right, and zero-shot 100."""
    book = Book([A, B, C], figure)
    book.add("zero_shot", share(100), base=share(100))
    for label, n_right in (("a", 150), ("b", 60), ("c", 120)):
        purity = {"a": 0.9, "b": 0.5, "c": 0.7}[label]
        book.add(label, share(n_right), base=share(100), purity=purity)
    return caption(book.read(folder), "toy")


def two_by_two(folder: Path, named: bool) -> Study:
    """Two readings of a cache, each with the cache and with the text deciding."""
    settings = [Setting(f"q = {q}", Scenario(mislabelled=q)) for q in (0.0, 0.6)]
    rows = [
        Row("matching", "crg", {"g": 0, "w": 1}),
        Row("Gaussian", "crg", {"g": 1, "w": 1}),
        Row("matching, cache decides", "crg", {"g": 0, "w": 2}, against="Gaussian" * named),
        Row("Gaussian, text decides", "crg", {"g": 1, "w": 0}, against="matching" * named),
    ]
    book = Book(rows, "noise", settings=settings, x_values=(0.0, 0.6))
    for row, rights in zip(rows, ((150, 140), (150, 90), (150, 80), (150, 130)), strict=True):
        for setting, n_right in enumerate(rights):
            book.add(row.label, share(n_right), share(100), setting=setting)
    return book.read(folder)


def test_a_row_may_name_the_row_that_its_loss_is_held_against(tmp_path: Path) -> None:
    """It takes the place of the row most like it; labels with commas are in quotes."""
    study = two_by_two(tmp_path, named=True)
    said = " ".join(findings_on(study, "toy"))
    assert "Gaussian loses 25.00 points more than matching (" in said
    assert "'matching, cache decides' loses 5.00 points more than Gaussian (" in said
    assert "'Gaussian, text decides' loses 5.00 points more than matching (" in said
    assert "'Gaussian, text decides' loses 20.00 points less than Gaussian" not in said
    told = loss_caption(study, "toy")
    assert "'matching, cache decides' loses 5.00 points more than Gaussian (" in told
    (tmp_path / "other").mkdir()
    said = " ".join(findings_on(two_by_two(tmp_path / "other", named=False), "toy"))
    assert "'Gaussian, text decides' loses 20.00 points less than Gaussian (" in said


def test_captions_tell_the_ends_and_not_the_list(tmp_path: Path) -> None:
    """Of four rows the one that falls most and the one that falls least, and one contrast."""
    study = two_by_two(tmp_path, named=True)
    level, loss = caption(study, "toy"), loss_caption(study, "toy")
    assert level == (
        "On toy, at q = 0.6, matching is highest with 70.00% and 'matching, cache decides' lowest "
        "with 40.00%; 2 of 4 rows are worse than zero-shot there."
    )
    assert loss.startswith("At q = 0.6, 'matching, cache decides' loses 35.00 points (95%")
    assert "the most; matching loses 5.00 points (95%" in loss and "the least." in loss
    assert len(loss) < len(" ".join(findings_on(study, "toy"))) / 2


def test_gains_name_the_highest_and_count_the_worse(tmp_path: Path) -> None:
    """The best row with its lead, and how many are worse than zero-shot with the lowest."""
    said = told(tmp_path, "table")
    assert said.startswith("On toy, a is highest with 75.00 ± 0.00%: 25.00 points above zero_shot")
    assert "1 row is worse than zero-shot, b by 20.00 points (95%" in said
    assert "c by" not in said


def test_caches_are_told_by_their_ends(tmp_path: Path) -> None:
    """The cache with the fewest wrong labels and the one with the most."""
    assert told(tmp_path, "purity") == (
        "On toy, cached under a wrong class at the end: fewest a 10.00% and most b 50.00%."
    )


def test_a_start_is_told_by_the_soonest(tmp_path: Path) -> None:
    """Who is better from the earliest on, and who is worse there."""
    said = told(tmp_path, "cold_start")
    assert said.startswith("On toy, a and c are better than zero-shot soonest: from the first 50")
    assert said.endswith("Worse over the first 50: b.")


def test_streams_are_told_by_the_deepest_fall(tmp_path: Path) -> None:
    """Who falls deepest and who least, each with its stream, and how many never do."""
    settings = [Setting("shuffled"), Setting("in bursts, two", Scenario("by_class"))]
    book = Book([A, B], "streams", settings=settings)
    for setting, n_right in enumerate((120, 60)):
        book.add("a", share(n_right), base=share(100), setting=setting)
        book.add("b", share(130), base=share(100), setting=setting)
    said = caption(book.read(tmp_path), "toy")
    assert "a is 20.00 points below zero_shot (95% interval" in said
    assert ") in the stream 'in bursts, two' and b is 15.00 points above zero_shot (" in said
    assert "; 1 of 2 rows never falls below zero-shot. Against their gain over " in said
    assert (
        "in shuffled, 1 of 2 rows is worse in some stream: a by 30.00 points (95% interval" in said
    )
    assert said.endswith(") in the stream 'in bursts, two'.")


def test_labels_are_told_by_most_and_least(tmp_path: Path) -> None:
    """Of three rows with labels the one that leads most and the one that leads least."""
    few = [Row(f"few {x}", "gda", {"x": x}, needs=(LABELLED_IMAGES,)) for x in (1, 2, 3)]
    book = Book([A, *few], "shots")
    for label, n_right in (("a", 110), ("few 1", 120), ("few 2", 150), ("few 3", 130)):
        book.add(label, share(n_right), base=share(100))
    said = caption(book.read(tmp_path), "toy")
    assert "few 2 is 20.00 points above a (" in said and "few 1 is 5.00 points above a (" in said
    assert "few 3" not in said
