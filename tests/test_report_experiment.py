"""Experiments: runs find their methods, and differences are between answers to the same image."""

from __future__ import annotations

import functools
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crg import metrics
from crg.report.contrasts import AVERAGED
from crg.report.experiment import read_experiments
from crg.results import ledger, provenance
from crg.results.measurements import packed_bits, unpacked_bits
from crg.results.papers import bundled_papers
from crg.results.schema import LABELLED_IMAGES, Result, Source, Variant
from crg.streams.orders import shuffled
from made_files import save_stream
from made_results import PLAIN, Book, measured, share
from processes import called
from sentences import check_refused

A, B = Variant("a", "crg", {"x": 1}), Variant("b", "tda")
FEW = Variant("few", "gda", needs=(LABELLED_IMAGES,))
TUNED = Variant("own settings", "tda", {"x": 2}, tuned=True)
TWICE = Variant("tda, second pass", "tda", offline=True)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, int], Result]]:
    """A results file of real runs in five orders, with a truncated line, and these runs."""
    folder = tmp_path_factory.mktemp("real")
    stream, path = save_stream(folder / "s.npz", n=60), folder / "real.jsonl"
    words = ["compare", str(stream), "--methods", "b=tda", "--results", str(path)]
    called(*words, "--workers", "1")
    path.write_text('{"schema": 1, "key": "truncated\n' + path.read_text())
    return path, {(run.method, run.seed): run for run in ledger.read(path).runs.values()}


def test_the_figures_of_a_method_are_those_of_its_runs(real: Any) -> None:
    """Mean, deviation and values of every metric, and the interval beside zero-shot in each run."""
    path, runs = real
    [experiment] = read_experiments([path])
    found = experiment.comparisons[0].of("b")
    for name in set(AVERAGED) - {"outside_auroc"}:  # of streams with out-of-distribution images
        spread = getattr(found, name)
        assert spread.per_order == tuple(runs["tda", seed].metrics[name] for seed in range(5))
        assert spread.mean == pytest.approx(statistics.fmean(spread.per_order))
        assert spread.std == pytest.approx(statistics.stdev(spread.per_order))
    assert found.status == "measured" and any("Line 1 " in note for note in experiment.notes)
    lines = path.read_text().splitlines()
    assert [json.loads(lines[number - 1])["seed"] for number in found.lines] == list(range(5))
    assert experiment.machine["crg"] == [provenance.surroundings()["versions"]["crg"]]
    assert set(measured(share(3), 0)) <= set(runs["tda", 0].metrics)  # made metrics are like these
    own = [runs["tda", seed] for seed in range(5)]
    right = np.stack([unpacked_bits(each.metrics["correct"], 60) for each in own])
    base = np.stack([unpacked_bits(each.zero_shot["correct"], 60) for each in own])
    assert found.gain is not None and found.gain.against == "zero_shot"
    assert found.gain.interval == metrics.paired_interval(right, base, n_resamples=10_000)
    assert metrics.RESAMPLES == 10_000  # with fewer, the seed would decide close comparisons
    assert experiment.comparisons[0].of("zero_shot").gain is None


def test_methods_have_a_status_and_a_reason(tmp_path: Path) -> None:
    """Failed, incomplete, not reached, refused; a failure that was retried is gone."""
    c, d = Variant("c", "dpe"), Variant("d", "crg")
    book = Book([A, B, c, d, Variant("e", "tda", {"x": 3})])
    book.add("e", share(9))
    for seed in range(5):
        cells = [book.expect(label, seed) for label in ("a", "b")]
        book.fail(str(cells[0].key), f"Traceback\n  x\nOops: {seed}")
    book.add("c", [share(10), share(11)])
    for seed in (2, 3, 4):
        book.expect("c", seed)
    book.fail("0-0-c-0", "corrected since")
    book.records.insert(0, book.records.pop())
    book.fail("0-0-c-4", "Out of memory: try less.")
    book.refuse("d", "It needs labels.")
    table = book.read(tmp_path).comparisons[0]
    assert {each.row.label: (each.status, each.reason) for each in table.results[1:]} == {
        "a": ("failed", "Oops: 4"),
        "b": ("not run", "Not reached: run crg bench again."),
        "c": ("incomplete", "3 of 5 stream orders missing: Out of memory: try less."),
        "d": ("not run", "It needs labels."),
        "e": ("measured", ""),
    }
    assert table.of("a").accuracy is None and not table.of("c").best


def test_the_latest_outline_and_all_files_of_a_folder_count(tmp_path: Path) -> None:
    """An outline replaces the one before it; a folder is all its files, and one without is refused.

    The runs stay.
    """
    first = Book([A, B])
    first.add("a", share(9))
    first.write(tmp_path / "toys.jsonl")
    second = Book([A], title="Again")
    for seed in range(5):
        second.expect("a", seed)
    experiment = second.read(tmp_path)
    assert experiment.outline.title == "Again"
    assert [each.row.label for each in experiment.comparisons[0].results] == ["zero_shot", "a"]
    assert experiment.comparisons[0].of("a").status == "measured"
    for name in ("b", "a"):
        book = Book([A], name=name)
        book.add("a", share(9))
        book.write(tmp_path / f"{name}.jsonl")
    (tmp_path / "other.txt").write_text("not read")
    assert [each.outline.name for each in read_experiments([tmp_path])] == ["a", "b", "toys"]
    (tmp_path / "empty").mkdir()
    for name, said in (("empty", "holds no experiment: run one"), ("none.jsonl", "does not exist")):
        check_refused(said, read_experiments, [tmp_path / name])


def test_reported_accuracies_are_found_by_dataset_model_and_method(tmp_path: Path) -> None:
    """Other options have none; with a single prompt zero-shot has other ones."""
    source = Source(
        "i", dataset="imagenet-a", model="ViT-B-16:openai", prompts=("a photo of a {}.",)
    )
    rows = [B, TUNED, Variant("other options", "tda", {"x": 4})]
    book = Book(rows, sources=(source,), reported="robustness")
    for label in ("zero_shot", "b", "own settings", "other options"):
        book.add(label, share(9))
    found = {each.row.label: each.reported for each in book.read(tmp_path).comparisons[0].results}
    numbers = functools.partial(bundled_papers().numbers, "robustness", "ViT-B-16", "imagenet-a")
    tda, zero_shot = numbers("tda"), numbers("zero_shot_one_prompt")
    assert tda and zero_shot and found == {
        "zero_shot": zero_shot, "b": tda, "own settings": tda, "other options": (),
    }  # fmt: skip


def test_runs_without_labels_have_no_accuracy(tmp_path: Path) -> None:
    """There is neither accuracy nor any contrast, and nothing breaks."""
    book = Book([A])
    book.add("a", share(9))
    times = {"ms_per_step_median": 1.0}
    book.records = [{**each, "metrics": times, "zero_shot": times} for each in book.records]
    found = book.read(tmp_path).comparisons[0].of("a")
    assert (found.accuracy, found.gain, found.learning, found.best) == (None, None, (), False)


def test_methods_are_paired_by_order_and_image(tmp_path: Path) -> None:
    """By hand, differences at the same image count; a single run is paired with every order."""
    book = Book([A, B], orders=2)
    book.add("a", [np.array([1, 1, 0, 1], bool), np.array([1, 0, 0, 0], bool)])
    book.add("b", [np.array([0, 1, 0, 0], bool), np.array([1, 1, 0, 0], bool)])
    found = book.read(tmp_path).comparisons[0].of("a").rival
    assert found is not None and found.against == "b"
    assert found.interval.mean == pytest.approx(((1 + 0 + 0 + 1) + (0 - 1 + 0 + 0)) / 8)
    book = Book([A, B], name="second")
    book.add("a", [share(150)], base=share(100))
    book.add("b", [share(90 + seed) for seed in range(5)], base=share(100))
    [second] = read_experiments([book.write(tmp_path / "second.jsonl")])
    table = second.comparisons[0]
    one, other = table.of("a"), table.of("b")
    assert one.accuracy and one.accuracy.std is None and one.gain
    assert one.status == "measured" and len(one.lines) == 1
    assert one.rival is not None and other.rival is not None
    gain = 0.75 - statistics.fmean((90 + seed) / 200 for seed in range(5))
    assert one.rival.interval.mean == pytest.approx(gain)
    assert other.rival.interval.mean == pytest.approx(-gain)
    assert one.gain.verdict == one.rival.verdict == "better" and other.rival.verdict == "worse"


@pytest.mark.parametrize(
    ("orders", "images", "verdict"),
    [(5, 200, "better"), (4, 200, ""), (5, 30, "better"), (5, 29, "")],
)
def test_significance_takes_five_orders_of_thirty_images(
    tmp_path: Path, orders: int, images: int, verdict: str
) -> None:
    """With fewer the same difference is shown without a verdict, and a note says so."""
    book = Book([A, B], orders=orders)
    scored = np.arange(200) < images
    book.add("a", share(200), base=share(0), scored=scored)
    book.add("b", [share(10)], base=share(0), scored=scored)
    experiment = book.read(tmp_path)
    found = experiment.comparisons[0].of("a")
    assert found.gain is not None and found.rival is not None
    assert found.gain.interval.low > 0
    assert (found.gain.verdict, found.rival.verdict) == (verdict, verdict)
    assert any("4 stream orders" in note for note in experiment.notes) == (orders == 4)


def test_methods_are_rivals_of_their_kind_only(tmp_path: Path) -> None:
    """Methods with labels are never the best, and zero-shot is no rival."""
    book = Book([A, B, FEW, TUNED, TWICE])
    for label, n_right in (("zero_shot", 190), ("a", 120), ("b", 110), ("few", 180),
                           ("own settings", 170), ("tda, second pass", 160)):  # fmt: skip
        book.add(label, share(n_right), base=share(190))
    table = book.read(tmp_path).comparisons[0]
    assert {each.row.label: each.rival and each.rival.against for each in table.results} == {
        "zero_shot": None, "a": "b", "b": "a", "few": "own settings", "own settings": "few",
        "tda, second pass": None,
    }  # fmt: skip
    assert [each.row.label for each in table.results if each.best] == ["zero_shot"]


def test_only_images_that_came_are_compared(tmp_path: Path) -> None:
    """Where an order leaves images out, accuracy, gain and count are over the others."""
    gone = Source("imagenet", missing="There is no store: encode it.")
    book = Book([A], orders=2, sources=(PLAIN, gone))
    book.add("a", share(60), base=share(20), scored=share(100))
    experiment = book.read(tmp_path)
    [comparison] = experiment.comparisons  # missing datasets are kept apart
    assert experiment.missing == (gone,) and comparison.n_scored == 100
    found = comparison.of("a")
    assert found.gain is not None and found.accuracy is not None
    assert found.accuracy.mean == pytest.approx(0.6)
    assert found.gain.interval.mean == pytest.approx(0.4)


def test_a_step_is_measured_from_the_most_similar_variant(tmp_path: Path) -> None:
    """Of the variants above of the same method, the one with the fewest other options."""
    rows = [Variant("start", "crg"), Variant("+ more", "crg"), Variant("apart", "crg"), B]
    book = Book(rows, "waterfall")
    options = ({"p": 0, "q": 0, "r": 0}, {"p": 1, "q": 0, "r": 0}, {"p": 0, "q": 0, "r": 9})
    for row, given in zip(rows, (*options, None), strict=True):
        book.add(row.label, share(100), options=given)
    table = book.read(tmp_path).comparisons[0]
    assert {each.row.label: each.rival and each.rival.against for each in table.results} == {
        "zero_shot": None, "start": None, "+ more": "start", "apart": "start", "b": None,
    }  # fmt: skip


def test_only_the_chosen_methods_are_shown(tmp_path: Path) -> None:
    """Methods are chosen by label or name, zero-shot stays, and an unknown name is refused."""
    book = Book([A, B])
    for label in ("zero_shot", "a", "b"):
        book.add(label, share(90), base=share(80))
    path = book.write(tmp_path / "toys.jsonl")
    [shown] = read_experiments([path], ["tda"])
    assert [each.row.label for each in shown.comparisons[0].results] == ["zero_shot", "b"]
    assert shown.comparisons[0].of("b").status == "measured"
    check_refused("'tdaa': choose from a, b, crg, tda", read_experiments, [path], ["tdaa"])


MINE, BASE = [share(120, first=10 * seed) for seed in range(5)], share(100)


@pytest.mark.parametrize(
    ("figure", "shift", "sizes"),
    [("cold_start", 0, [50, 100, 200]), ("cold_start", 50, []), ("table", 0, [])],
)
def test_the_gain_on_the_first_images_follows_the_order(
    tmp_path: Path, figure: str, shift: int, sizes: list[int]
) -> None:
    """The seed gives the order of a shuffled stream; another order or figure has no such gains."""
    orders = [shuffled(200, seed + shift) for seed in range(5)]
    book = Book([A], figure)
    book.add("a", MINE, base=BASE)
    for record, right, order in zip(book.records, MINE, orders, strict=True):
        record["metrics"]["right_in_order"] = packed_bits(right[order])
    gains = book.read(tmp_path).comparisons[0].of("a").first_gain
    assert sorted(gains) == sizes
    if sizes:
        seen = np.zeros((5, 200), dtype=bool)
        for place, order in enumerate(orders):
            seen[place, order[:100]] = True
        base = np.broadcast_to(BASE, (5, 200))
        assert gains[100].interval == metrics.paired_interval(np.stack(MINE), base, seen)


def test_curves_have_a_band_over_orders(tmp_path: Path) -> None:
    """Accuracy counts in stream order, purity at common checkpoints; memory is the largest."""
    book = Book([A], "cold_start", orders=2)
    book.add("a", [share(120), share(80)], base=share(10), purity=0.5, peak_bytes=7,
             purity_over_time=[[50, 0.9], [200, 0.5]])  # fmt: skip
    found = book.read(tmp_path).comparisons[0].of("a")
    assert (found.learning[0][0], found.learning[-1][0]) == (20, 200)
    assert 50 <= len(found.learning) <= 60
    assert found.learning[-1][1:] == pytest.approx((0.5, statistics.stdev([0.6, 0.4])))
    assert found.purity_over_time == ((50, 0.9, 0.0), (200, 0.5, 0.0)) and found.peak_bytes == 7
