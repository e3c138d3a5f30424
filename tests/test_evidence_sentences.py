"""Sentences about experiments follow from the figures, whichever way these turn out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crg.report.evidence import Study, caption, findings_on, sentences_of, watermark
from crg.report.evidence.study import Line
from crg.results.outline import LABELLED_IMAGES, Row, Setting, Source
from crg.streams.scenario import Scenario
from made_results import PLAIN, Bits, Book, share

A, B = Row("a", "crg", {"x": 1}), Row("b", "tda")
OTHER = Source("other", n_samples=200, text_kind="simulated")


def findings(study: Study, source: str) -> str:
    """All that is said of one source."""
    return " ".join(findings_on(study, source))


def compared(folder: Path, n_right: int, orders: int = 5, first: int = 0) -> str:
    """What is said where one row meets zero-shot, which has 100 of 200 right."""
    book = Book([A], orders=orders)
    book.add("zero_shot", share(100), base=share(100))
    book.add("a", share(n_right, first=first), base=share(100))
    return findings(book.read(folder), "toy")


def test_a_better_row_is_called_so_with_its_interval(tmp_path: Path) -> None:
    """The highest row, by how many points, and no reservation."""
    said = compared(tmp_path, 140)
    assert said.startswith("On toy, a is highest with 70.00 ± 0.00%: 20.00 points above zero_shot")
    assert "told" not in said and "Worse" not in said


def test_a_worse_row_is_called_so(tmp_path: Path) -> None:
    """Zero-shot is highest then, and what is lost is a positive number in its interval."""
    said = compared(tmp_path, 60)
    assert "On toy, zero_shot is highest with 50.00" in said
    assert "Worse than zero-shot: a by 20.00 points (95% interval 1" in said


def test_what_cannot_be_told_is_not_told(tmp_path: Path) -> None:
    """Zero in the interval, or too few orders: the sentence says which."""
    assert "no difference can be told" in compared(tmp_path, 102, first=20)
    (tmp_path / "few").mkdir()
    assert "too few orders to judge" in compared(tmp_path / "few", 140, orders=4)


def test_several_sources_are_counted(tmp_path: Path) -> None:
    """The head says how often a row was better, worse or neither."""
    book = Book([A], sources=(PLAIN, OTHER, Source("third", n_samples=200)))
    for source, right in enumerate((share(140), share(60), share(100, first=9))):
        book.add("a", right, base=share(100), source=source)
    assert sentences_of(book.read(tmp_path))[0] == (
        "Against zero-shot: a is better on 1 and worse on 1 of 3 sources, "
        "on 1 no difference can be told."
    )


def test_simulated_text_is_never_left_unsaid(tmp_path: Path) -> None:
    """The name of the source carries it into every sentence."""
    book = Book([A], sources=(OTHER,))
    book.add("a", share(140), base=share(100))
    assert "On other (simulated text features), " in findings(book.read(tmp_path), "other")


def noise(folder: Path, a: tuple[int, int], b: tuple[int, int], n_sources: int = 1) -> Study:
    """Two ways to read one cache, with so many right answers without noise and with it."""
    settings = [Setting(f"q = {q}", Scenario(mislabelled=q)) for q in (0.0, 0.6)]
    rows = [Row("matching", "crg", {"g": 0}), Row("Gaussian", "crg", {"g": 1})]
    sources = [Source(f"toy{n}", n_samples=200) for n in range(n_sources)]
    book = Book(rows, "noise", settings=settings, x_values=(0.0, 0.6), sources=sources)
    for source in range(n_sources):
        for setting in (0, 1):
            book.add("matching", share(a[setting]), share(100), source=source, setting=setting)
            book.add("Gaussian", share(b[setting]), share(100), source=source, setting=setting)
    return book.read(folder)


def test_noise_names_who_loses_less(tmp_path: Path) -> None:
    """The losses of both, the difference between them, and who ends below zero-shot."""
    said = findings(noise(tmp_path, (150, 60), (150, 140)), "toy0")
    assert "from q = 0.0 to q = 0.6, matching loses 45.00 points (95% interval" in said
    assert "Gaussian loses 5.00 points" in said
    assert "Gaussian loses 40.00 points less than matching (95% interval" in said
    assert "At q = 0.6, below zero-shot: matching by 20.00 points" in said


def test_noise_may_turn_out_the_other_way(tmp_path: Path) -> None:
    """The same sentence the other way round, once and not twice."""
    said = findings(noise(tmp_path, (150, 140), (150, 60)), "toy0")
    assert "matching loses 40.00 points less than Gaussian" in said
    assert "more than" not in said


def test_noise_that_changes_nothing(tmp_path: Path) -> None:
    """Equal changes are no difference."""
    said = findings(noise(tmp_path, (150, 150), (140, 140)), "toy0")
    assert "matching gains 0.00 points" in said
    assert "loses 0.00 points less than" in said and "no difference can be told" in said


def test_noise_over_sources(tmp_path: Path) -> None:
    """Mean changes, and how often one way of reading lost less."""
    first, second, *_ = sentences_of(noise(tmp_path, (150, 60), (150, 140), n_sources=2))
    assert first == (
        "From q = 0.0 to q = 0.6, mean change in points over 2 sources: "
        "matching -45.00 and Gaussian -5.00."
    )
    assert second.startswith("In what is lost, Gaussian against matching is better on 2 and worse")
    assert second.endswith("mean difference +40.00 points, from +40.00 on toy0 to +40.00 on toy1.")


def test_steps_add_take_or_do_nothing(tmp_path: Path) -> None:
    """Each step of an ablation with its interval, from the row that it was added to."""
    rows = [Row(label, "crg") for label in ("start", "+ up", "+ down", "+ none")]
    book = Book(rows, "waterfall")
    rights = (share(100), share(140), share(80), share(80, first=9))
    for place, (row, right) in enumerate(zip(rows, rights, strict=True)):
        book.add(row.label, right, share(100), options={"u": place > 0, "v": place > 1,
                                                        "w": place > 2})  # fmt: skip
    study = book.read(tmp_path)
    said = findings(study, "toy")
    told = caption(study, "toy")
    assert "'+ up' adds 20.00 points" in told and "'+ down' takes 30.00 points" in told
    assert "+ none" not in told and "Of 4 steps, the highest" in told
    assert "'+ up' adds 20.00 points to start (95% interval" in said
    assert "'+ down' takes 30.00 points from '+ up' (95% interval" in said
    assert "'+ none' adds 0.00 points to '+ down' (95% interval" in said
    assert said.count("no difference can be told") == 2  # the start against zero-shot, and none


def test_streams_tell_the_worst(tmp_path: Path) -> None:
    """In how many streams a row falls below zero-shot, and where it falls deepest."""
    settings = [Setting("shuffled"), Setting("class by class", Scenario("by_class"))]
    book = Book([A, B], "streams", settings=settings)
    for setting, n_right in enumerate((120, 60)):
        book.add("a", share(n_right), base=share(100), setting=setting)
        book.add("b", share(130), base=share(100), setting=setting)
    said = findings(book.read(tmp_path), "toy")
    assert said.startswith("On toy: a falls below zero-shot in 1 of 2 streams (judged worse in 1)")
    assert "at worst by 20.00 points (95% interval" in said and "): class by class." in said
    assert "b falls below zero-shot in none of 2 streams." in said


def test_a_handful_of_images_is_no_worst_case(tmp_path: Path) -> None:
    """A stream with fewer than thirty scored images is left out, and that is said."""
    settings = [Setting("shuffled"), Setting("few present", Scenario("few_present"))]
    book = Book([A], "streams", settings=settings)
    book.add("a", share(120), base=share(100))
    book.add("a", share(0), base=share(21), setting=1, scored=np.arange(200) < 21)
    study = book.read(tmp_path)
    for said in (findings(study, "toy"), caption(study, "toy")):
        assert "100.00" not in said
        assert "fewer than 30 images were scored in an order: few present." in said
    assert "a falls below zero-shot in none of 1 stream." in findings(study, "toy")


def test_a_cold_start_is_dated(tmp_path: Path) -> None:
    """From which number of images on a row is better, and that another never is."""
    book = Book([A, B], "cold_start")
    book.add("a", share(180), base=share(60))
    book.add("b", share(60), base=share(60))
    said = findings(book.read(tmp_path), "toy")
    assert "a is better from the first 50 images on, there by " in said
    assert "b cannot be told from it over the first 50, 100 and 200 images" in said


def test_a_cold_start_that_harms_is_told_plainly(tmp_path: Path) -> None:
    """Where it is worse and where nothing can be told are said apart, and neither twice."""
    book = Book([A], "cold_start")
    book.add("a", share(60), base=share(90))
    said = findings(book.read(tmp_path), "toy")
    assert said.startswith("On toy, against zero-shot: a is worse over the first ")
    assert "not better" not in said and said.endswith("images.")


def test_cold_starts_are_counted_over_sources(tmp_path: Path) -> None:
    """Only what was judged is counted, and a row that never was is named too."""
    book = Book([A, B], "cold_start", sources=(PLAIN, Source("more", n_samples=200)))
    for source in (0, 1):
        book.add("a", share(180), base=share(60), source=source)
        book.add("b", share(60), base=share(60), source=source)
    assert sentences_of(book.read(tmp_path))[0] == (
        "Against zero-shot over the first images: a is better over the first 50 on 2 of 2, 100 "
        "on 2 of 2 and 200 on 2 of 2 sources; b is neither better nor worse on any source."
    )


def test_a_cold_start_in_few_orders_is_not_judged(tmp_path: Path) -> None:
    """Neither better nor "not better" is said where the orders do not allow a verdict."""
    book = Book([A], "cold_start", orders=2)
    book.add("a", share(180), base=share(60))
    said = findings(book.read(tmp_path), "toy")
    assert "for a there are too few orders to judge" in said


def test_values_that_change_nothing(tmp_path: Path) -> None:
    """Equal accuracies are one figure and no range."""
    book = Book([Row("M = 8", "crg"), Row("M = 10", "crg")], "sweep")
    for label in ("M = 8", "M = 10"):
        book.add(label, share(100), base=share(50))
    assert findings(book.read(tmp_path), "toy") == "On toy, accuracy is 50.00% for every value."


@pytest.mark.parametrize(("n_right", "words"), [(140, "more"), (101, "no more")])
def test_a_range_is_held_against_the_spread(tmp_path: Path, n_right: int, words: str) -> None:
    """Values that move accuracy less than the order does are said to."""
    rows = [Row("M = 8", "crg"), Row("M = 10", "crg")]
    book = Book(rows, "sweep")
    book.add("M = 8", [share(n) for n in (98, 99, 100, 101, 102)], base=share(50))
    book.add("M = 10", share(n_right), base=share(50))
    said = findings(book.read(tmp_path), "toy")
    assert f"which is {words} than the spread over orders" in said
    assert "M = 10 against M = 8: " in said


def test_the_error_of_a_cache_has_a_peak(tmp_path: Path) -> None:
    """How much is wrong at the end, and where it was most."""
    book = Book([A, B], "purity")
    track = [[50, 0.9], [100, 0.6], [200, 0.8]]
    book.add("a", share(9), purity=0.8, purity_over_time=track)
    book.add("b", share(9), purity=0.5, purity_over_time=[[50, 0.9], [200, 0.5]])
    said = findings(book.read(tmp_path), "toy")
    assert "a 20.00 ± 0.00%, at its highest 40.00% after 100 images" in said
    assert "b 50.00 ± 0.00%, its highest" in said


def test_labelled_images_meet_the_row_of_the_same_size(tmp_path: Path) -> None:
    """A few-shot cache is held against the zero-shot cache with as many places."""
    few = [Row(f"few {x}", "tip_adapter", {"x": x}, needs=(LABELLED_IMAGES,), x=x) for x in (1, 2)]
    own = [Row(f"own {x}", "tda", {"x": x}, x=x) for x in (1, 2)]
    book = Book([*few, *own], "shots")
    rights: dict[str, Bits] = {"few 1": share(140), "few 2": share(100, first=9),
                               "own 1": share(100), "own 2": share(101)}  # fmt: skip
    for label, right in rights.items():
        book.add(label, right, base=share(90))
    said = findings(book.read(tmp_path), "toy")
    assert "few 1 is 20.00 points above own 1 (95% interval" in said
    assert "few 2 is 0.50 points below own 2 (95% interval" in said
    assert said.count("no difference can be told") == 1


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """Rows that were not run and sources that were not there are counted in the head."""
    book = Book([A, B], sources=(PLAIN, Source("gone", missing="Not here: fetch it.")))
    book.add("zero_shot", share(90))
    book.add("a", share(100), base=share(90))
    book.refuse("b", "It needs more.")
    *_, rows, sources = sentences_of(book.read(tmp_path))
    assert rows == "Of 3 rows in all tables: 1 not run; the tables say why."
    assert sources == "Of 2 sources 1 was not there to be measured."


@pytest.mark.parametrize(
    "figure",
    ["table", "learning", "purity", "waterfall", "sweep", "heat", "noise", "streams",
     "cold_start", "shots"],
)  # fmt: skip
@pytest.mark.parametrize("n_sources", [1, 2])
def test_nothing_measured_is_no_disaster(tmp_path: Path, figure: str, n_sources: int) -> None:
    """Every kind of experiment has sentences even if nothing or one row was run."""
    sources = [Source(f"toy{n}", n_samples=200) for n in range(n_sources)]
    book = Book([A], figure, sources=sources)
    for source in range(n_sources):
        book.expect("a", 0, source)
    study = book.read(tmp_path)
    assert caption(study, "toy0") == "On toy0 no accuracy was measured."
    assert sentences_of(study)
    book.add("a", share(30), base=share(20))
    (tmp_path / "one").mkdir()
    study = book.read(tmp_path / "one")
    assert caption(study, "toy0").startswith("On toy0")


def test_only_tuned_rows_are_watermarked() -> None:
    """Labelled images are no tuning; chosen options are."""
    assert watermark(Line(Row("t", "tda", tuned=True), "measured")) == "tuned on labels"
    assert watermark(Line(Row("f", "gda", needs=(LABELLED_IMAGES,)), "measured")) == ""
