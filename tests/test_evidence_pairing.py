"""Rows against each other: the same image in the same order, and verdicts that are earned."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest

from crg.results.outline import LABELLED_IMAGES, Row, Setting
from crg.streams.scenario import Scenario
from made_results import Book, share

A, B = Row("a", "crg", {"x": 1}), Row("b", "tda")
FEW = Row("few", "gda", needs=(LABELLED_IMAGES,))
TUNED = Row("own settings", "tda", {"x": 2}, tuned=True)


def test_rows_are_paired_by_order_and_image(tmp_path: Path) -> None:
    """A case by hand: four images, two orders; who is right where is all that counts."""
    book = Book([A, B], orders=2)
    book.add("a", [np.array([1, 1, 0, 1], bool), np.array([1, 0, 0, 0], bool)])
    book.add("b", [np.array([0, 1, 0, 0], bool), np.array([1, 1, 0, 0], bool)])
    found = book.read(tmp_path).tables[0].line("a").to_best_rival
    assert found is not None
    assert found.against == "b"
    assert found.interval.mean == pytest.approx(((1 + 0 + 0 + 1) + (0 - 1 + 0 + 0)) / 8)


def test_a_row_that_forgets_is_paired_with_every_order(tmp_path: Path) -> None:
    """Its one run stands against all runs of another, has no spread, and can be judged."""
    book = Book([A, B])
    book.add("a", [share(150)], base=share(100))
    book.add("b", [share(90 + seed) for seed in range(5)], base=share(100))
    table = book.read(tmp_path).tables[0]
    one, other = table.line("a"), table.line("b")
    assert one.accuracy is not None and one.accuracy.std is None
    assert one.status == "measured" and len(one.traces) == 1
    assert one.to_best_rival is not None and other.to_best_rival is not None
    gain = 0.75 - statistics.fmean((90 + seed) / 200 for seed in range(5))
    assert one.to_best_rival.interval.mean == pytest.approx(gain)
    assert other.to_best_rival.interval.mean == pytest.approx(-gain)
    assert (one.to_best_rival.verdict, other.to_best_rival.verdict) == ("better", "worse")
    assert one.to_zero_shot is not None and one.to_zero_shot.verdict == "better"


@pytest.mark.parametrize(("orders", "verdict"), [(4, ""), (5, "better")])
def test_a_verdict_takes_five_orders(tmp_path: Path, orders: int, verdict: str) -> None:
    """With four of them the same difference is shown, not judged, and the study says so."""
    book = Book([A, B], orders=orders)
    book.add("a", share(180), base=share(100))
    book.add("b", [share(60)], base=share(100))
    study = book.read(tmp_path)
    line = study.tables[0].line("a")
    assert line.to_zero_shot is not None and line.to_best_rival is not None
    assert line.to_zero_shot.excludes_zero
    assert (line.to_zero_shot.verdict, line.to_best_rival.verdict) == (verdict, verdict)
    assert any("4 stream orders" in note for note in study.notes) == (orders == 4)


@pytest.mark.parametrize(("n", "verdict", "lacks"), [(29, "", "images"), (30, "better", "")])
def test_a_verdict_takes_thirty_images(tmp_path: Path, n: int, verdict: str, lacks: str) -> None:
    """With one image less in each order nothing is judged, and the study says where."""
    book = Book([A])
    book.add("a", share(200), base=share(0), scored=np.arange(200) < n)
    study = book.read(tmp_path)
    found = study.tables[0].line("a").to_zero_shot
    assert found is not None and found.excludes_zero
    assert (found.verdict, found.lacks) == (verdict, lacks)
    assert study.tables[0].has_enough_images == (n == 30)
    notes = [note for note in study.notes if "toy (shuffled)" in note]
    assert len(notes) == (n == 29) and all("Fewer than 30 images" in note for note in notes)


def test_no_verdict_where_zero_is_in_the_interval(tmp_path: Path) -> None:
    """As many images corrected as broken is no difference, however many orders there are."""
    book = Book([A], orders=6)
    book.add("a", share(100, first=50), base=share(100))
    found = book.read(tmp_path).tables[0].line("a").to_zero_shot
    assert found is not None
    assert found.interval.low < 0 < found.interval.high and found.verdict == ""


def test_rows_with_labels_are_no_rivals_of_rows_without(tmp_path: Path) -> None:
    """They are of each other, they are never the best, and zero-shot is nobody's rival."""
    book = Book([A, B, FEW, TUNED])
    for label, n_right in (("zero_shot", 190), ("a", 120), ("b", 110), ("few", 180),
                           ("own settings", 170)):  # fmt: skip
        book.add(label, share(n_right), base=share(190))
    table = book.read(tmp_path).tables[0]
    rivals = {line.row.label: line.to_best_rival and line.to_best_rival.against
              for line in table.lines}  # fmt: skip
    assert rivals == {
        "zero_shot": None, "a": "b", "b": "a", "few": "own settings", "own settings": "few",
    }  # fmt: skip
    assert [line.row.label for line in table.lines if line.best] == ["zero_shot"]
    free = table.line("few").to_label_free
    assert free is not None and free.against == "a"
    assert table.line("a").to_label_free is None


@pytest.mark.parametrize("alone", [FEW, TUNED], ids=lambda row: row.label)
def test_a_row_with_labels_that_has_no_equal_has_no_rival(tmp_path: Path, alone: Row) -> None:
    """A row without labels is no rival of it, and the other way round."""
    book = Book([A, alone])
    book.add("a", share(120), base=share(100))
    book.add(alone.label, share(150), base=share(100))
    table = book.read(tmp_path).tables[0]
    assert table.line(alone.label).to_best_rival is None
    assert table.line("a").to_best_rival is None


def test_streams_of_other_images_count_what_came(tmp_path: Path) -> None:
    """Where an order leaves images out, only those that came are compared."""
    book = Book([A], orders=2)
    came = share(100)
    book.add("a", share(60), base=share(20), scored=came)
    line = book.read(tmp_path).tables[0].line("a")
    assert line.to_zero_shot is not None and line.accuracy is not None
    assert line.accuracy.mean == pytest.approx(0.6)
    assert line.to_zero_shot.interval.mean == pytest.approx(0.4)


def test_changes_over_settings_are_compared(tmp_path: Path) -> None:
    """Each row against itself in the first setting, and the changes against each other."""
    settings = [Setting(f"q = {q}", Scenario(mislabelled=q)) for q in (0.0, 0.5)]
    book = Book([A, B], "noise", settings=settings, x_values=(0.0, 0.5))
    for place, (first, second) in enumerate(((150, 140), (60, 130))):
        book.add("a", share(first), base=share(100), setting=place)
        book.add("b", share(second), base=share(100), setting=place)
    early, late = book.read(tmp_path).tables
    moved = late.line("a").to_first_setting
    assert moved is not None
    assert (moved.against, moved.verdict) == ("q = 0.0", "worse")
    assert moved.interval.mean == pytest.approx(-0.45)
    assert late.line("a").change_to["b"].interval.mean == pytest.approx(-0.45 + 0.05)
    assert late.line("b").change_to["a"].verdict == "better"
    assert early.line("a").to_first_setting is None and not early.line("a").change_to


def test_a_step_is_measured_from_the_row_most_like_it(tmp_path: Path) -> None:
    """Of the rows above with the same method, the one with the fewest other options."""
    rows = [Row("start", "crg"), Row("+ more", "crg"), Row("apart", "crg"), B]
    book = Book(rows, "waterfall")
    options = ({"p": 0, "q": 0, "r": 0}, {"p": 1, "q": 0, "r": 0}, {"p": 0, "q": 0, "r": 9})
    for row, given in zip(rows, options, strict=False):
        book.add(row.label, share(100), options=given)
    book.add("b", share(100))
    table = book.read(tmp_path).tables[0]
    found = {line.row.label: line.to_like and line.to_like.against for line in table.lines}
    assert found == {
        "zero_shot": None,
        "start": None,
        "+ more": "start",
        "apart": "start",
        "b": None,
    }
    assert table.line("+ more").unlike == ("p",)
