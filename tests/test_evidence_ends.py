"""Sentences that name the highest, the lowest and the soonest are true where rows tie, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crg.report.evidence import Study, caption, findings_on, sentences_of
from crg.report.evidence.study import Point
from crg.report.study_captions import heat_caption, learning_caption
from crg.results.outline import Row, Setting, Source
from crg.streams.scenario import Scenario
from made_results import PLAIN, Bits, Book, share

A, B = Row("a", "crg"), Row("b", "tda")
VALUES = [Row(f"M = {n}", "crg", {"m": n}) for n in (1, 2, 3)]


def late(base: Bits, first: int, seed: int) -> Bits:
    """Right wherever ``base`` is, and in everything that comes as the ``first`` or later."""
    order = np.random.default_rng(seed).permutation(len(base))  # that of made_results.measured
    right = base.copy()
    right[order[first:]] = True
    return right


@pytest.mark.parametrize("figure", ["cold_start", "learning"])
def test_a_late_lead_is_not_denied(tmp_path: Path, figure: str) -> None:
    """A row that is better over the whole stream only is said to be just that."""
    base = share(200, n=400)
    book = Book([A, B], figure, sources=(Source("toy", n_samples=400),))
    book.add("a", [late(base, 250, seed) for seed in range(5)], base=base)
    book.add("b", base, base=base)
    study = book.read(tmp_path)
    assert caption(study, "toy") == (
        "On toy, no row is judged better than zero-shot from the first 50, 100 or 200 images on"
        "; over the whole stream a is."
    )


def test_findings_on_a_start_name_the_whole_stream(tmp_path: Path) -> None:
    """Row by row: nothing can be told of the first images, and the whole is better."""
    base = share(200, n=400)
    book = Book([A], "cold_start")
    book.add("a", [late(base, 250, seed) for seed in range(5)], base=base)
    assert findings_on(book.read(tmp_path), "toy") == [
        "On toy, against zero-shot: a cannot be told from it over the first 50, 100 and 200 "
        "images and is better over the whole stream."
    ]


def test_better_from_a_number_on_includes_the_whole_stream(tmp_path: Path) -> None:
    """A lead over the first images that is lost later is no lead from there on."""
    base = share(200, n=400)
    rights = []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(400)
        right = base.copy()
        right[order[:200]], right[order[200:]] = True, False
        rights.append(right)
    book = Book([A], "cold_start")
    book.add("a", rights, base=base)
    study = book.read(tmp_path)
    assert caption(study, "toy").startswith("On toy, no row is judged better than zero-shot from")
    assert "a is better over the first 50, 100 and 200 images." in findings_on(study, "toy")[0]


def test_the_first_step_is_a_step(tmp_path: Path) -> None:
    """What the first row has over zero-shot may be the most that any row adds."""
    rows = [Row(label, "crg") for label in ("start", "+ some", "+ less")]
    book = Book(rows, "waterfall")
    for place, (row, n_right) in enumerate(zip(rows, (140, 150, 130), strict=True)):
        options = {"u": place > 0, "v": place > 1}
        book.add(row.label, share(n_right), share(100), options=options)
    said = caption(book.read(tmp_path), "toy")
    assert "highest and the lowest: start adds 20.00 points to zero_shot (" in said
    assert "; '+ less' takes 10.00 points from '+ some' (" in said


def test_rows_that_tie_do_not_share_a_spread(tmp_path: Path) -> None:
    """Equal means may have other deviations, so that none is named."""
    book = Book([A, B], orders=2)
    book.add("a", [share(100), share(150)], base=share(50))
    book.add("b", share(125), base=share(50))
    said = findings_on(book.read(tmp_path), "toy")[0]
    assert said == "On toy, a and b are highest with 62.50%."


def tied(folder: Path) -> Study:
    """Three values on two sources: two of them tie on the first, one is highest on the second."""
    book = Book(VALUES, "heat", sources=(PLAIN, Source("more", n_samples=200)))
    for source, rights in enumerate(((140, 140, 120), (110, 130, 130 - 30))):
        for row, n_right in zip(VALUES, rights, strict=True):
            book.add(row.label, share(n_right), base=share(90), source=source)
    return book.read(folder)


def test_a_tie_counts_for_all_that_tie(tmp_path: Path) -> None:
    """In the head of the section and in the caption of the source alike."""
    study = tied(tmp_path)
    assert "Highest (ties are counted for each): M = 2 on 2; 1 other on 1." in sentences_of(study)
    said = " ".join(findings_on(study, "toy"))
    assert "accuracy goes from 60.00% (M = 3) to 70.00% (M = 1 and M = 2), a range" in said
    assert "M = 1 against M = 3: 10.00 points (" in said


def test_without_ties_nothing_is_said_of_them(tmp_path: Path) -> None:
    """Values that are highest once are named where none is more often."""
    book = Book(VALUES, "sweep", sources=(PLAIN, Source("more", n_samples=200)))
    for source, rights in enumerate(((140, 130, 120), (110, 130, 100))):
        for row, n_right in zip(VALUES, rights, strict=True):
            book.add(row.label, share(n_right), base=share(90), source=source)
    assert "Highest: M = 1 on 1 and M = 2 on 1." in sentences_of(book.read(tmp_path))


def test_caches_that_are_equal_have_no_ends(tmp_path: Path) -> None:
    """Neither fewest nor most is said of one and the same share."""
    book = Book([A, B], "purity")
    for label in ("a", "b"):
        book.add(label, share(120), base=share(100), purity=1.0)
    assert caption(book.read(tmp_path), "toy") == (
        "On toy, cached under a wrong class at the end: 0.00% in every cache."
    )


def test_caches_that_share_an_end_are_named_together(tmp_path: Path) -> None:
    """None of two with the fewest wrong labels is named alone."""
    book = Book([A, B, Row("c", "dpe")], "purity")
    for label, purity in (("a", 0.9), ("b", 0.5), ("c", 0.9)):
        book.add(label, share(120), base=share(100), purity=purity)
    assert caption(book.read(tmp_path), "toy") == (
        "On toy, cached under a wrong class at the end: fewest a and c 10.00% and most b 50.00%."
    )


def test_a_heat_map_names_all_that_tie() -> None:
    """The caption under it agrees with what is counted over sources."""
    said = heat_caption({"x": 0.7, "y": 0.1 + 0.6, "z": 0.6, "w": 0.65})
    assert said.startswith("Highest at x and y with 70.00%, lowest at z with 60.00%: 10.00 points")


def test_a_level_curve_has_no_start() -> None:
    """A row that was run once is counted among those above, and never the soonest."""
    level = tuple(Point(x, 0.9, 0.9, 0.9) for x in (20, 40, 60))
    rising = tuple(Point(x, x / 100, 0, 1) for x in (20, 40, 60))
    base = tuple(Point(x, 0.3, 0.3, 0.3) for x in (20, 40, 60))
    said = learning_caption({"zero_shot": base, "once": level, "a": rising}, "zero_shot")
    assert "Of 2 means 2 end above zero_shot, a for good from image 40 on, the soonest." in said
    said = learning_caption({"zero_shot": base, "once": level}, "zero_shot")
    assert said.endswith("Of 1 means 1 end above zero_shot.")


def test_a_mean_over_sources_comes_with_its_ends(tmp_path: Path) -> None:
    """The difference of losses on the source with the lowest and on that with the highest."""
    settings = [Setting(f"q = {q}", Scenario(mislabelled=q)) for q in (0.0, 0.6)]
    rows = [Row("matching", "crg", {"g": 0}), Row("Gaussian", "crg", {"g": 1})]
    sources = [Source(name, n_samples=200) for name in ("one", "two", "three")]
    book = Book(rows, "noise", settings=settings, x_values=(0.0, 0.6), sources=sources)
    for source, end in enumerate((130, 150, 60)):
        for setting, n_right in enumerate((150, end)):
            book.add("matching", share(140 - 40 * setting), share(100), source=source,
                     setting=setting)  # fmt: skip
            book.add("Gaussian", share(n_right), share(100), source=source, setting=setting)
    said = sentences_of(book.read(tmp_path))[1]
    assert said.endswith("mean difference +1.67 points, from -25.00 on three to +20.00 on two.")
