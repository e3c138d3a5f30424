"""Kinds of stream: each row against itself in the first setting, by what it has over zero-shot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crg.report.evidence import Study, caption, findings_on, sentences_of
from crg.results.outline import Row, Setting, Source
from crg.streams.scenario import Scenario
from made_results import PLAIN, Bits, Book, share

A, B, C = Row("a", "crg"), Row("b", "tda"), Row("c", "tpt")
STREAMS = (
    Setting("shuffled"),
    Setting("class by class", Scenario("by_class")),
    Setting("with outsiders", Scenario("outsiders")),
)


def streamed(folder: Path, n_sources: int = 1) -> Study:
    """``a`` has 120 right, then 90, then 110; ``b`` always has 130; zero-shot has 100."""
    sources = [PLAIN, Source("more", n_samples=200)][:n_sources]
    book = Book([A, B], "streams", settings=STREAMS, sources=sources)
    for source in range(n_sources):
        for setting, n_right in enumerate((120, 90, 110)):
            for label, n in (("zero_shot", 100), ("a", n_right), ("b", 130)):
                book.add(label, share(n), base=share(100), source=source, setting=setting)
    return book.read(folder)


def test_a_row_is_held_against_itself_in_the_first_stream(tmp_path: Path) -> None:
    """In every further stream, with a verdict; in the first one and for zero-shot there is none."""
    first, second, _ = streamed(tmp_path).tables
    moved = second.line("a").to_first_setting
    assert moved is not None and (moved.against, moved.verdict) == ("shuffled", "worse")
    assert moved.interval.mean == pytest.approx(-0.15)
    same = second.line("b").to_first_setting
    assert same is not None and (same.interval.mean, same.verdict) == (0, "")
    assert first.line("a").to_first_setting is None
    assert second.line("zero_shot").to_first_setting is None
    assert not second.line("a").change_to


def test_it_is_the_gain_that_is_held_against_the_first(tmp_path: Path) -> None:
    """By hand: in another task zero-shot is right elsewhere, on images that both score."""
    book = Book([A], "streams", orders=2, settings=[STREAMS[0], STREAMS[2]])
    book.add("a", np.array([1, 1, 0, 1], bool), base=np.array([1, 0, 0, 0], bool))
    book.add("a", np.array([1, 1, 1, 0], bool), base=np.array([0, 1, 1, 0], bool), setting=1,
             scored=np.array([1, 1, 1, 0], bool))  # fmt: skip
    moved = book.read(tmp_path).tables[1].line("a").to_first_setting
    assert moved is not None
    assert moved.interval.mean == pytest.approx(((1 - 0) + (0 - 1) + (0 - 0)) / 3)


@pytest.mark.parametrize("scored", [None, share(100)])
def test_a_row_that_was_run_once_stands_for_all_orders(tmp_path: Path, scored: Bits | None) -> None:
    """Whether it was run once in the other stream, too, or in every order."""
    book = Book([C], "streams", settings=STREAMS[:2])
    book.add("c", [share(90)], base=share(50))
    rights = [share(70)] if scored is None else share(70)
    book.add("c", rights, base=share(50), setting=1, scored=scored)
    moved = book.read(tmp_path).tables[1].line("c").to_first_setting
    assert moved is not None and moved.verdict == "worse"
    assert moved.interval.mean == pytest.approx(-20 / (200 if scored is None else 100))


def test_without_the_first_stream_there_is_nothing_to_hold_against(tmp_path: Path) -> None:
    """A source that has other settings only, such as domains, is left alone."""
    book = Book([A], "streams", settings=STREAMS, sources=(PLAIN, Source("two", n_samples=200)))
    for source, setting in ((0, 0), (1, 1), (1, 2)):
        book.add("a", share(120), base=share(100), source=source, setting=setting)
    study = book.read(tmp_path)
    assert all(table.line("a").to_first_setting is None for table in study.tables)
    assert "Against" not in caption(study, "two") + " ".join(findings_on(study, "two"))


def test_other_experiments_do_not_compare_their_settings(tmp_path: Path) -> None:
    """Only where they are numbers or streams."""
    book = Book([A], settings=STREAMS[:2])
    for setting in (0, 1):
        book.add("a", share(120), base=share(100), setting=setting)
    assert book.read(tmp_path).tables[1].line("a").to_first_setting is None


def test_findings_count_the_streams_that_are_worse(tmp_path: Path) -> None:
    """With the worst and its interval; rows of which nothing is judged share a few words."""
    *_, said, neither = findings_on(streamed(tmp_path), "toy")
    assert said.startswith(
        "Against its own gain over zero-shot in shuffled, a is judged worse in 2 and better in 0 "
        "of 2 streams, at worst by 15.00 points (95% interval "
    )
    assert said.endswith("): class by class.")
    assert neither == (
        "Against its own gain over zero-shot in shuffled, b is judged neither worse nor better in "
        "any stream."
    )


def test_sources_are_counted_together(tmp_path: Path) -> None:
    """The head of the section names the source of the worst."""
    said = " ".join(sentences_of(streamed(tmp_path, n_sources=2)))
    assert "a is judged worse in 4 and better in 0 of 4 streams, at worst by 15.00 points (" in said
    assert "): toy (class by class). Against its own gain" in said


def test_captions_name_the_row_that_a_stream_costs_most(tmp_path: Path) -> None:
    """Of those that are judged worse than in the first stream."""
    said = caption(streamed(tmp_path), "toy")
    assert "in shuffled, 1 of 2 rows is worse in some stream: a by 15.00 points (" in said
    assert said.endswith(") in the stream 'class by class', the most.")


def test_a_caption_says_that_no_row_is_worse(tmp_path: Path) -> None:
    """Then there is nobody to name."""
    book = Book([A], "streams", settings=STREAMS[:2])
    for setting in (0, 1):
        book.add("a", share(120), base=share(100), setting=setting)
    said = caption(book.read(tmp_path), "toy")
    assert said.endswith(
        "Against their gain over zero-shot in shuffled, no row is judged worse in any stream."
    )
