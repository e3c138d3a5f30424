"""Experiments: runs find their methods, and differences are between answers to the same image."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crg import metrics
from crg.evaluate import run
from crg.report.experiment import read_experiments
from crg.report.page import distinct
from crg.results import ledger, provenance
from crg.results.measurements import correct_rows
from crg.results.papers import bundled_papers
from crg.results.schema import (
    LABELLED_IMAGES,
    Cell,
    Data,
    Outline,
    Result,
    RunSpec,
    Setting,
    Source,
    Variant,
)
from crg.streams import Scenario
from crg.streams.synthetic import gaussian_stream
from crg.types import InputError
from made_results import PLAIN, Book, measured, share

A, B = Variant("a", "crg", {"x": 1}), Variant("b", "tda")
FEW = Variant("few", "gda", needs=(LABELLED_IMAGES,))
TUNED = Variant("own settings", "tda", {"x": 2}, tuned=True)
TWICE = Variant("tda, second pass", "tda", offline=True)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, int], Result]]:
    """A results file of real runs in five orders, with a truncated line, and these runs."""
    features, rows = gaussian_stream(n=60, n_classes=4, width=12), (Variant("z", "zero_shot"), B)
    path = tmp_path_factory.mktemp("real") / "real.jsonl"
    runs = {(row.label, seed): run(features, row.method, seed=seed)
            for row in rows for seed in range(5)}  # fmt: skip
    records = [
        provenance.make_run(each, RunSpec(Data("s.npz", "1"), each.method, {}, each.seed))
        for each in runs.values()
    ]
    cells = [
        Cell(0, 0, ["z", "b"].index(label), seed, record.key)
        for (label, seed), record in zip(runs, records, strict=True)
    ]
    outline = Outline("real", "Real", "", "table", rows, (Source("s", n_samples=60),),
                      (Setting("shuffled"),), tuple(range(5)), tuple(cells))  # fmt: skip
    path.write_text('{"schema": 1, "key": "truncated\n')
    for line in (outline, *records):
        ledger.append(path, line)
    return path, runs


def test_the_figures_of_a_row_are_those_of_its_runs(real: Any) -> None:
    """Mean, deviation and values over orders of everything that is measured."""
    path, runs = real
    [study] = read_experiments([path])
    [table] = study.comparisons
    own = [runs["b", seed].metrics for seed in range(5)]
    for name, spread in (
        ("accuracy", table.of("b").accuracy),
        ("ece", table.of("b").ece),
        ("nll", table.of("b").nll),
        ("worst_class_accuracy", table.of("b").worst_class_accuracy),
        ("purity", table.of("b").purity),
    ):
        assert spread is not None
        assert spread.per_order == tuple(each[name] for each in own)
        assert spread.mean == pytest.approx(statistics.fmean(spread.per_order))
        assert spread.std == pytest.approx(statistics.stdev(spread.per_order))
    assert table.of("b").status == "measured"
    assert study.machine["crg"] == provenance.surroundings()["versions"]["crg"]


def test_zero_shot_is_paired_within_each_run(real: Any) -> None:
    """The interval is that of the answers of each run beside zero-shot in the same run."""
    path, runs = real
    [study] = read_experiments([path])
    own = [runs["b", seed] for seed in range(5)]
    expected = metrics.paired_interval(
        np.stack([correct_rows(each.metrics, 60) for each in own]),
        np.stack([correct_rows(each.zero_shot, 60) for each in own]),
        n_resamples=10_000,
    )
    found = study.comparisons[0].of("b").gain
    assert found is not None
    assert (found.interval, found.against) == (expected, "z")
    assert study.comparisons[0].of("z").gain is None


def test_a_truncated_line_is_told_and_not_fatal(real: Any) -> None:
    """The rest is read, and every trace is the number of the line that holds the run."""
    path, _ = real
    [study] = read_experiments([path])
    assert any("Line 1 " in note for note in study.notes)
    lines = path.read_text().splitlines()
    for each in study.comparisons[0].results:
        seeds = [json.loads(lines[number - 1])["seed"] for number in each.lines]
        assert seeds == list(range(5))


def test_what_became_of_rows(tmp_path: Path) -> None:
    """Failed, incomplete, not reached, refused: each with its reason; a retried failure is gone."""
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
    told = {line.row.label: (line.status, line.reason) for line in table.results}
    assert told["a"] == ("failed", "Oops: 4")
    assert told["b"][0] == "not run" and "run crg bench again" in told["b"][1]
    assert told["c"][0] == "incomplete"
    assert told["c"][1] == "3 of 5 stream orders missing: Out of memory: try less."
    assert told["d"] == ("not run", "It needs labels.")
    assert told["e"] == ("measured", "")
    assert table.of("a").accuracy is None and not table.of("c").best


def test_missing_sources_are_kept_apart(tmp_path: Path) -> None:
    """They have no table and say what would bring them."""
    gone = Source("imagenet", missing="There is no store: encode it.")
    book = Book([A], sources=(PLAIN, gone))
    book.add("a", share(9))
    study = book.read(tmp_path)
    assert study.missing == (gone,)
    assert [table.source.name for table in study.comparisons] == ["toy"]


def test_the_latest_outline_counts(tmp_path: Path) -> None:
    """What an experiment was before it was changed is forgotten; its runs are not."""
    first = Book([A, B])
    first.add("a", share(9))
    first.write(tmp_path / "toys.jsonl")
    second = Book([A], title="Anew")
    for seed in range(5):
        second.expect("a", seed)
    study = second.read(tmp_path)
    assert study.outline.title == "Anew"
    assert [line.row.label for line in study.comparisons[0].results] == ["zero_shot", "a"]
    assert study.comparisons[0].of("a").status == "measured"


def test_a_folder_is_all_its_results_files(tmp_path: Path) -> None:
    """Each file is a study of its own; a place without any is refused in one sentence."""
    for name in ("b", "a"):
        book = Book([A], name=name)
        book.add("a", share(9))
        book.write(tmp_path / f"{name}.jsonl")
    (tmp_path / "other.txt").write_text("not read")
    assert [study.outline.name for study in read_experiments([tmp_path])] == ["a", "b"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no experiment: run one with crg bench"):
        read_experiments([tmp_path / "empty"])
    with pytest.raises(InputError, match="does not exist: name a results file"):
        read_experiments([tmp_path / "nowhere.jsonl"])


def test_counts_are_summed_over_orders(tmp_path: Path) -> None:
    """Bins of confidence and insertions under a wrong label add up; memory is the largest."""
    book = Book([A], orders=2)
    book.add("a", share(100), mislabelled={"insertions": 10, "mislabelled": 3}, peak_bytes=7,
             reliability=[[150, 0.4, 0.5], [50, 0.9, 0.8], [0, None, None]])  # fmt: skip
    line = book.read(tmp_path).comparisons[0].of("a")
    assert [(n, right) for n, _, right in line.reliability] == [(300, 0.5), (100, 0.8)]
    assert line.mislabelled == pytest.approx(0.3)
    assert line.peak_bytes == 7


def test_what_papers_print_stands_beside_the_row(tmp_path: Path) -> None:
    """By dataset, model and method, with its notes; one prompt is another zero-shot."""
    source = Source(
        "i", dataset="imagenet-a", model="ViT-B-16:openai", prompts=("a photo of a {}.",)
    )
    book = Book(
        [B, TUNED, Variant("other options", "tda", {"x": 4})], sources=(source,), reported="robustness"
    )
    for label in ("zero_shot", "b", "own settings", "other options"):
        book.add(label, share(9))
    lines = {line.row.label: line.reported for line in book.read(tmp_path).comparisons[0].results}
    tda = bundled_papers().number("robustness", "ViT-B-16", "imagenet-a", "tda")
    assert lines["b"] == lines["own settings"] == tda
    assert lines["other options"] is None
    assert lines["zero_shot"] == bundled_papers().number("robustness", "ViT-B-16", "imagenet-a",
                                          "zero_shot_one_prompt")  # fmt: skip


def test_runs_without_labels_have_no_accuracy(tmp_path: Path) -> None:
    """There is neither accuracy nor any contrast, and nothing breaks."""
    book = Book([A])
    book.add("a", share(9))
    bare = [{**dict(record), "metrics": {"ms_per_step_median": 1.0},
             "zero_shot": {"ms_per_step_median": 1.0}} for record in book.records]  # fmt: skip
    book.records = list(bare)
    line = book.read(tmp_path).comparisons[0].of("a")
    assert (line.accuracy, line.gain, line.learning, line.best) == (None, None, (), False)


def test_intervals_come_from_ten_thousand_resamples(tmp_path: Path) -> None:
    """Fewer of them would give other bounds, and so would leave close verdicts to the seed."""
    rng = np.random.default_rng(0)
    base, rights = rng.random(200) < 0.5, [rng.random(200) < 0.6 for _ in range(5)]
    book = Book([A])
    book.add("a", rights, base=base)
    found = book.read(tmp_path).comparisons[0].of("a").gain
    right, baseline = np.stack(rights), np.stack([base] * 5)
    assert found is not None
    assert found.interval == metrics.paired_interval(right, baseline, n_resamples=10_000)
    assert found.interval != metrics.paired_interval(right, baseline, n_resamples=2_000)


def test_scored_images_are_counted_per_order(tmp_path: Path) -> None:
    """A setting that leaves images out says how many an order has, over all of its rows."""
    settings = [Setting("shuffled"), Setting("imbalanced", Scenario("imbalanced"))]
    book = Book([A], settings=settings, orders=2)
    book.add("a", share(100))
    book.add("a", [share(30)], setting=1, scored=np.arange(200) < 42)
    book.add("zero_shot", [share(30), share(30)], setting=1, scored=np.arange(200) < 42)
    whole, part = book.read(tmp_path).comparisons
    assert (whole.n_scored, part.n_scored) == (200, 42)


def test_made_metrics_are_like_real_ones(real: Any) -> None:
    """The made records of these tests have no name that real ones lack."""
    _, runs = real
    assert set(measured(share(3), 0)) <= set(runs["b", 0].metrics)


def test_rows_are_paired_by_order_and_image(tmp_path: Path) -> None:
    """A case by hand: four images, two orders; who is right where is all that counts."""
    book = Book([A, B], orders=2)
    book.add("a", [np.array([1, 1, 0, 1], bool), np.array([1, 0, 0, 0], bool)])
    book.add("b", [np.array([0, 1, 0, 0], bool), np.array([1, 1, 0, 0], bool)])
    found = book.read(tmp_path).comparisons[0].of("a").rival
    assert found is not None
    assert found.against == "b"
    assert found.interval.mean == pytest.approx(((1 + 0 + 0 + 1) + (0 - 1 + 0 + 0)) / 8)


def test_a_row_that_forgets_is_paired_with_every_order(tmp_path: Path) -> None:
    """Its one run stands against all runs of another, has no spread, and can be judged."""
    book = Book([A, B])
    book.add("a", [share(150)], base=share(100))
    book.add("b", [share(90 + seed) for seed in range(5)], base=share(100))
    table = book.read(tmp_path).comparisons[0]
    one, other = table.of("a"), table.of("b")
    assert one.accuracy is not None and one.accuracy.std is None
    assert one.status == "measured" and len(one.lines) == 1
    assert one.rival is not None and other.rival is not None
    gain = 0.75 - statistics.fmean((90 + seed) / 200 for seed in range(5))
    assert one.rival.interval.mean == pytest.approx(gain)
    assert other.rival.interval.mean == pytest.approx(-gain)
    assert (one.rival.verdict, other.rival.verdict) == ("better", "worse")
    assert one.gain is not None and one.gain.verdict == "better"


@pytest.mark.parametrize(("orders", "verdict"), [(4, ""), (5, "better")])
def test_a_verdict_takes_five_orders(tmp_path: Path, orders: int, verdict: str) -> None:
    """With four of them the same difference is shown, not judged, and the study says so."""
    book = Book([A, B], orders=orders)
    book.add("a", share(180), base=share(100))
    book.add("b", [share(60)], base=share(100))
    study = book.read(tmp_path)
    line = study.comparisons[0].of("a")
    assert line.gain is not None and line.rival is not None
    assert line.gain.interval.low > 0
    assert (line.gain.verdict, line.rival.verdict) == (verdict, verdict)
    assert any("4 stream orders" in note for note in study.notes) == (orders == 4)


@pytest.mark.parametrize(("n", "verdict", "lacks"), [(29, "", "images"), (30, "better", "")])
def test_a_verdict_takes_thirty_images(tmp_path: Path, n: int, verdict: str, lacks: str) -> None:
    """With one image less in each order nothing is judged, and the study says where."""
    book = Book([A])
    book.add("a", share(200), base=share(0), scored=np.arange(200) < n)
    study = book.read(tmp_path)
    found = study.comparisons[0].of("a").gain
    assert found is not None and found.interval.low > 0
    assert (found.verdict, found.lacks) == (verdict, lacks)
    assert study.comparisons[0].n_scored == n


def test_no_verdict_where_zero_is_in_the_interval(tmp_path: Path) -> None:
    """As many images corrected as broken is no difference, however many orders there are."""
    book = Book([A], orders=6)
    book.add("a", share(100, first=50), base=share(100))
    found = book.read(tmp_path).comparisons[0].of("a").gain
    assert found is not None
    assert found.interval.low < 0 < found.interval.high and found.verdict == ""


def test_rows_with_labels_are_no_rivals_of_rows_without(tmp_path: Path) -> None:
    """They are of each other, they are never the best, and zero-shot is nobody's rival."""
    book = Book([A, B, FEW, TUNED])
    for label, n_right in (("zero_shot", 190), ("a", 120), ("b", 110), ("few", 180),
                           ("own settings", 170)):  # fmt: skip
        book.add(label, share(n_right), base=share(190))
    table = book.read(tmp_path).comparisons[0]
    rivals = {line.row.label: line.rival and line.rival.against
              for line in table.results}  # fmt: skip
    assert rivals == {
        "zero_shot": None, "a": "b", "b": "a", "few": "own settings", "own settings": "few",
    }  # fmt: skip
    assert [line.row.label for line in table.results if line.best] == ["zero_shot"]


@pytest.mark.parametrize("alone", [FEW, TUNED, TWICE], ids=lambda row: row.label)
def test_a_row_that_has_no_equal_has_no_rival(tmp_path: Path, alone: Variant) -> None:
    """Labels, or all images before the first answer: others are no rivals of such a row."""
    book = Book([A, alone])
    book.add("a", share(120), base=share(100))
    book.add(alone.label, share(150), base=share(100))
    table = book.read(tmp_path).comparisons[0]
    assert table.of(alone.label).rival is None
    assert table.of("a").rival is None


def test_streams_of_other_images_count_what_came(tmp_path: Path) -> None:
    """Where an order leaves images out, only those that came are compared."""
    book = Book([A], orders=2)
    came = share(100)
    book.add("a", share(60), base=share(20), scored=came)
    line = book.read(tmp_path).comparisons[0].of("a")
    assert line.gain is not None and line.accuracy is not None
    assert line.accuracy.mean == pytest.approx(0.6)
    assert line.gain.interval.mean == pytest.approx(0.4)


def test_changes_over_settings_are_compared(tmp_path: Path) -> None:
    """Each row against itself in the first setting, and the changes against each other."""
    settings = [Setting(f"q = {q}", Scenario(mislabelled=q)) for q in (0.0, 0.5)]
    book = Book([A, B], "noise", settings=settings, x_values=(0.0, 0.5))
    for place, (first, second) in enumerate(((150, 140), (60, 130))):
        book.add("a", share(first), base=share(100), setting=place)
        book.add("b", share(second), base=share(100), setting=place)
    early, late = book.read(tmp_path).comparisons
    moved = late.of("a").change
    assert moved is not None
    assert (moved.against, moved.verdict) == ("q = 0.0", "worse")
    assert moved.interval.mean == pytest.approx(-0.45)
    assert early.of("a").change is None


def test_a_step_is_measured_from_the_row_most_like_it(tmp_path: Path) -> None:
    """Of the rows above with the same method, the one with the fewest other options."""
    rows = [Variant("start", "crg"), Variant("+ more", "crg"), Variant("apart", "crg"), B]
    book = Book(rows, "waterfall")
    options = ({"p": 0, "q": 0, "r": 0}, {"p": 1, "q": 0, "r": 0}, {"p": 0, "q": 0, "r": 9})
    for row, given in zip(rows, options, strict=False):
        book.add(row.label, share(100), options=given)
    book.add("b", share(100))
    table = book.read(tmp_path).comparisons[0]
    found = {line.row.label: line.step and line.step.against for line in table.results}
    assert found == {
        "zero_shot": None,
        "start": None,
        "+ more": "start",
        "apart": "start",
        "b": None,
    }


def test_only_the_chosen_methods_are_shown(tmp_path: Path) -> None:
    """Methods are chosen by label or name, zero-shot stays, and an unknown name is refused."""
    book = Book([A, B])
    for label in ("zero_shot", "a", "b"):
        book.add(label, share(90), base=share(80))
    path = book.write(tmp_path / "toys.jsonl")
    [shown] = read_experiments([path], ["tda"])
    assert [each.row.label for each in shown.comparisons[0].results] == ["zero_shot", "b"]
    assert shown.comparisons[0].of("b").status == "measured"
    with pytest.raises(InputError, match="has no method 'tdaa': choose from a, b, crg, tda"):
        read_experiments([path], ["tdaa"])


def test_the_same_runs_are_shown_once(tmp_path: Path) -> None:
    """Of two experiments with the same methods on the same images the second one is left out."""
    for name in ("one", "two"):
        book = Book([B], name=name, title=name)
        book.add("b", share(90))
        book.write(tmp_path / f"{name}.jsonl")
    other = Book([A], name="three")
    other.add("a", share(90))
    other.write(tmp_path / "three.jsonl")
    read = read_experiments([tmp_path / f"{name}.jsonl" for name in ("one", "two", "three")])
    assert [each.outline.name for each in distinct(read)] == ["one", "three"]
