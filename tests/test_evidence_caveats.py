"""What is said of the intervals: rows that were run once, labelled images, many comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest

from crg.report.evidence import Study
from crg.report.evidence.sentences import findings_on, once_note, verdicts_note
from crg.results.outline import LABELLED_IMAGES, Row, Setting
from crg.streams.scenario import Scenario
from made_results import Book, share

A, B = Row("a", "crg"), Row("b", "tda")
TPT = Row("t", "tpt")
FEW = Row("few", "gda", needs=(LABELLED_IMAGES,))
IMBALANCED = Setting("imbalanced", Scenario("imbalanced"))


def once(folder: Path, *settings: Setting, figure: str = "cold_start") -> Study:
    """One row in five orders, and one that was run once in the first setting."""
    book = Book([A, TPT], figure, settings=settings or (Setting("shuffled"),))
    for setting in range(len(book.settings)):
        book.add("zero_shot", share(100), base=share(100), setting=setting)
        book.add("a", share(150), base=share(100), setting=setting)
        rights = share(130) if setting else [share(130)]
        book.add("t", rights, base=share(100), setting=setting)
    return book.read(folder)


def test_a_row_that_was_run_once_has_no_start(tmp_path: Path) -> None:
    """Its curve is level at its accuracy, at the places of others, and no first images count."""
    study = once(tmp_path)
    line, other = study.tables[0].line("t"), study.tables[0].line("a")
    assert line.run_once and not other.run_once
    assert [point.x for point in line.learning] == [point.x for point in other.learning]
    assert {(point.low, point.mean, point.high) for point in line.learning} == {(0.65, 0.65, 0.65)}
    assert not line.first and not line.first_gain and other.first and other.first_gain
    assert "; t " not in " ".join(findings_on(study, "toy"))


def test_in_domains_one_order_makes_no_level(tmp_path: Path) -> None:
    """Files come in an order that is not up to chance, so that no part stands for the whole."""
    study = once(tmp_path, Setting("domains", Scenario("domains")))
    assert study.tables[0].line("t").run_once and study.tables[0].line("t").learning == ()


def test_rows_without_any_start_are_not_called_short(tmp_path: Path) -> None:
    """Where nothing depends on the order, that is the reason, and not the stream."""
    book = Book([TPT], "cold_start")
    book.add("t", [share(130)], base=share(100))
    [said] = findings_on(book.read(tmp_path), "toy")
    assert said == "On toy no row has a start: the order changes none of their answers."


def test_a_note_names_the_rows_that_were_run_once(tmp_path: Path) -> None:
    """With the reason, and over what their interval is."""
    assert once_note(once(tmp_path)) == (
        "t was run once, because the order changes none of its answers: no spread over orders is "
        "shown, and the interval against zero-shot is over images only."
    )


def test_the_note_says_where_they_were_not_run_once(tmp_path: Path) -> None:
    """A stream that chooses images by its seed is run in every order all the same."""
    said = once_note(once(tmp_path, Setting("shuffled"), IMBALANCED))
    assert said.startswith("t was run once wherever all orders have the same images, because")


@pytest.mark.parametrize(("rows", "who"), [((FEW,), "It learns"), ((TPT, FEW), "few learns")])
def test_labelled_images_are_one_draw(tmp_path: Path, rows: tuple[Row, ...], who: str) -> None:
    """Their luck is in no interval, and rows are not named twice."""
    book = Book(rows)
    for row in rows:
        book.add(row.label, [share(130)], base=share(100))
    said = once_note(book.read(tmp_path))
    assert said.endswith(
        f" {who} from labelled images, the same ones in every run: the luck of that one draw is "
        "in no interval."
    )


def test_rows_of_every_order_without_labels_need_no_note(tmp_path: Path) -> None:
    """Then everything is in the intervals."""
    book = Book([A])
    book.add("a", share(150), base=share(100))
    assert once_note(book.read(tmp_path)) == ""


def test_an_interval_of_a_row_run_once_is_over_images_only(tmp_path: Path) -> None:
    """It is the same as that of five orders in which nothing changes."""
    book = Book([A, TPT])
    book.add("a", share(130), base=share(100))
    book.add("t", [share(130)], base=share(100))
    table = book.read(tmp_path).tables[0]
    assert table.line("t").to_zero_shot == table.line("a").to_zero_shot


def test_comparisons_are_counted(tmp_path: Path) -> None:
    """Two against zero-shot and the one between them, which both rows show, are three."""
    book = Book([A, B])
    book.add("a", share(150), base=share(100))
    book.add("b", share(100, first=2), base=share(100))
    study = book.read(tmp_path)
    assert verdicts_note([study]).startswith(
        "There are 3 intervals against zero-shot and best rivals here, and 2 of them carry a "
        "verdict, better or worse. "
    )
    assert "about one in twenty would exclude zero by chance" in verdicts_note([study])
    assert verdicts_note([study, study]).startswith("There are 6 intervals")
    assert verdicts_note([]) == ""
