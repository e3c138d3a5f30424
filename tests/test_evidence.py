"""Studies: runs find their rows, and everything that was measured its place."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crg import metrics
from crg.evaluate import run
from crg.report.evidence import read_studies
from crg.results import ledger
from crg.results.measurements import correct_rows
from crg.results.outline import Cell, Outline, Row, Setting, Source
from crg.results.papers import bundled_papers
from crg.streams.scenario import Scenario
from crg.streams.synthetic import gaussian_stream
from crg.types import InputError, Result
from made_results import PLAIN, Book, measured, share

A, B = Row("a", "crg", {"x": 1}), Row("b", "tda")
TUNED = Row("own settings", "tda", {"x": 2}, tuned=True)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, int], Result]]:
    """A results file of real runs in five orders, with a truncated line, and these runs."""
    features, rows = gaussian_stream(n=60, n_classes=4, width=12), (Row("z", "zero_shot"), B)
    path = tmp_path_factory.mktemp("real") / "real.jsonl"
    runs = {(row.label, seed): run(features, row.method, seed=seed)
            for row in rows for seed in range(5)}  # fmt: skip
    records = [ledger.make_record(each, ledger.Origin("s.npz", "1"), {}) for each in runs.values()]
    cells = [
        Cell(0, 0, ["z", "b"].index(label), seed, record["key"])
        for (label, seed), record in zip(runs, records, strict=True)
    ]
    outline = Outline("real", "Real", "", "table", rows, (Source("s", n_samples=60),),
                      (Setting("shuffled"),), tuple(range(5)), tuple(cells))  # fmt: skip
    path.write_text('{"schema": 1, "key": "truncated\n')
    for record in ({"schema": 1, **outline.as_record()}, *records):
        ledger.append(path, record)
    return path, runs


def test_the_figures_of_a_row_are_those_of_its_runs(real: Any) -> None:
    """Mean, deviation and values over orders of everything that is measured."""
    path, runs = real
    [study] = read_studies([path])
    [table] = study.tables
    own = [runs["b", seed].metrics for seed in range(5)]
    for name, spread in (
        ("accuracy", table.line("b").accuracy),
        ("ece", table.line("b").ece),
        ("nll", table.line("b").nll),
        ("worst_class_accuracy", table.line("b").worst_class),
        ("purity", table.line("b").purity),
        ("ms_per_step_median", table.line("b").milliseconds),
    ):
        assert spread is not None
        assert spread.per_order == tuple(each[name] for each in own)
        assert spread.mean == pytest.approx(statistics.fmean(spread.per_order))
        assert spread.std == pytest.approx(statistics.stdev(spread.per_order))
    assert table.line("b").status == "measured"
    assert study.machine["crg"] == ledger.surroundings()["versions"]["crg"]


def test_zero_shot_is_paired_within_each_run(real: Any) -> None:
    """The interval is that of the answers of each run beside zero-shot in the same run."""
    path, runs = real
    [study] = read_studies([path])
    own = [runs["b", seed] for seed in range(5)]
    expected = metrics.paired_interval(
        np.stack([correct_rows(each.metrics, 60) for each in own]),
        np.stack([correct_rows(each.zero_shot, 60) for each in own]),
        n_resamples=10_000,
    )
    found = study.tables[0].line("b").to_zero_shot
    assert found is not None
    assert (found.interval, found.against) == (expected, "z")
    assert study.tables[0].line("z").to_zero_shot is None


def test_a_truncated_line_is_told_and_not_fatal(real: Any) -> None:
    """The rest is read, and every trace is the number of the line that holds the run."""
    path, _ = real
    [study] = read_studies([path])
    assert any("Line 1 " in note for note in study.notes)
    lines = path.read_text().splitlines()
    for line in study.tables[0].lines:
        for trace in line.traces:
            record = json.loads(lines[trace.line - 1])
            assert (record["key"], record["seed"]) == (trace.key, trace.seed)


def test_what_became_of_rows(tmp_path: Path) -> None:
    """Failed, incomplete, not reached, refused: each with its reason; a retried failure is gone."""
    c, d = Row("c", "dpe"), Row("d", "crg")
    book = Book([A, B, c, d, Row("e", "tda", {"x": 3})])
    book.add("e", share(9))
    for seed in range(5):
        cells = [book.expect(label, seed) for label in ("a", "b")]
        book.records.append(ledger.make_failure(str(cells[0].key), f"Traceback\n  x\nOops: {seed}"))
    book.add("c", [share(10), share(11)])
    for seed in (2, 3, 4):
        book.expect("c", seed)
    book.records.insert(0, ledger.make_failure("0-0-c-0", "corrected since"))
    book.records.append(ledger.make_failure("0-0-c-4", "Out of memory: try less."))
    book.refuse("d", "It needs labels.")
    table = book.read(tmp_path).tables[0]
    told = {line.row.label: (line.status, line.reason) for line in table.lines}
    assert told["a"] == ("failed", "Oops: 4")
    assert told["b"][0] == "not run" and "run the experiment again" in told["b"][1]
    assert told["c"][0] == "incomplete"
    assert told["c"][1] == "3 of 5 stream orders are missing: Out of memory: try less."
    assert told["d"] == ("not run", "It needs labels.")
    assert told["e"] == ("measured", "")
    assert table.line("a").accuracy is None and not table.line("c").best


def test_missing_sources_are_kept_apart(tmp_path: Path) -> None:
    """They have no table and say what would bring them."""
    gone = Source("imagenet", missing="There is no store: encode it.")
    book = Book([A], sources=(PLAIN, gone))
    book.add("a", share(9))
    study = book.read(tmp_path)
    assert study.missing == (gone,)
    assert [table.source.name for table in study.tables] == ["toy"]


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
    assert [line.row.label for line in study.tables[0].lines] == ["zero_shot", "a"]
    assert study.tables[0].line("a").status == "measured"


def test_a_folder_is_all_its_results_files(tmp_path: Path) -> None:
    """Each file is a study of its own; a place without any is refused in one sentence."""
    for name in ("b", "a"):
        book = Book([A], name=name)
        book.add("a", share(9))
        book.write(tmp_path / f"{name}.jsonl")
    (tmp_path / "other.txt").write_text("not read")
    assert [study.outline.name for study in read_studies([tmp_path])] == ["a", "b"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no experiment: run one with crg bench"):
        read_studies([tmp_path / "empty"])
    with pytest.raises(InputError, match="does not exist: name a results file"):
        read_studies([tmp_path / "nowhere.jsonl"])


def test_curves_and_first_images(tmp_path: Path) -> None:
    """Accuracy so far is counted in the order of the stream, with a band over orders."""
    book = Book([A], "cold_start", orders=2)
    book.add("a", [share(120), share(80)], base=share(10), purity=0.5,
             purity_over_time=[[50, 0.9], [200, 0.5]])  # fmt: skip
    line = book.read(tmp_path).tables[0].line("a")
    assert (line.learning[0].x, line.learning[-1].x) == (20, 200)
    assert 50 <= len(line.learning) <= 60
    assert line.learning[-1].mean == pytest.approx(0.5)
    assert line.learning[-1].high == pytest.approx(0.5 + statistics.stdev([0.6, 0.4]))
    orders = [np.random.default_rng(seed).permutation(200)[:50] for seed in (0, 1)]
    shares = [share(n)[rows].mean() for n, rows in zip((120, 80), orders, strict=True)]
    assert sorted(line.first) == sorted(line.first_gain) == [50, 100, 200]
    assert line.first[50].per_order == pytest.approx(shares)
    base = statistics.fmean(share(10)[rows].mean() for rows in orders)
    gain = line.first_gain[50].interval.mean
    assert gain == pytest.approx(statistics.fmean(shares) - base)
    assert [(point.x, point.mean) for point in line.purity_over_time] == [(50, 0.9), (200, 0.5)]


def test_counts_are_summed_over_orders(tmp_path: Path) -> None:
    """Bins of confidence and insertions under a wrong label add up; memory is the largest."""
    book = Book([A], orders=2)
    book.add("a", share(100), mislabelled={"insertions": 10, "mislabelled": 3}, peak_bytes=7,
             reliability=[[150, 0.4, 0.5], [50, 0.9, 0.8], [0, None, None]])  # fmt: skip
    line = book.read(tmp_path).tables[0].line("a")
    assert [(each.count, each.accuracy) for each in line.reliability] == [(300, 0.5), (100, 0.8)]
    assert line.mislabelled == pytest.approx(0.3)
    assert line.peak_bytes == 7


def test_what_papers_print_stands_beside_the_row(tmp_path: Path) -> None:
    """By dataset, model and method, with its notes; one prompt is another zero-shot."""
    source = Source(
        "i", dataset="imagenet-a", model="ViT-B-16:openai", prompts=("a photo of a {}.",)
    )
    book = Book(
        [B, TUNED, Row("other options", "tda", {"x": 4})], sources=(source,), reported="robustness"
    )
    for label in ("zero_shot", "b", "own settings", "other options"):
        book.add(label, share(9))
    lines = {line.row.label: line.reported for line in book.read(tmp_path).tables[0].lines}
    tda = bundled_papers().number("robustness", "ViT-B-16", "imagenet-a", "tda")
    assert lines["b"] == lines["own settings"] == tda
    assert lines["other options"] is None
    assert lines["zero_shot"] == bundled_papers().number("robustness", "ViT-B-16", "imagenet-a",
                                          "zero_shot_one_prompt")  # fmt: skip


def test_runs_without_labels_have_times_only(tmp_path: Path) -> None:
    """There is neither accuracy nor any contrast, and nothing breaks."""
    book = Book([A])
    book.add("a", share(9))
    bare = [{**dict(record), "metrics": {"ms_per_step_median": 1.0},
             "zero_shot": {"ms_per_step_median": 1.0}} for record in book.records]  # fmt: skip
    book.records = list(bare)
    line = book.read(tmp_path).tables[0].line("a")
    assert (line.accuracy, line.to_zero_shot, line.learning, line.best) == (None, None, (), False)
    assert line.milliseconds is not None


def test_intervals_come_from_ten_thousand_resamples(tmp_path: Path) -> None:
    """Fewer of them would give other bounds, and so would leave close verdicts to the seed."""
    rng = np.random.default_rng(0)
    base, rights = rng.random(200) < 0.5, [rng.random(200) < 0.6 for _ in range(5)]
    book = Book([A])
    book.add("a", rights, base=base)
    found = book.read(tmp_path).tables[0].line("a").to_zero_shot
    right, baseline = np.stack(rights), np.stack([base] * 5)
    assert found is not None
    assert found.interval == metrics.paired_interval(right, baseline, n_resamples=10_000)
    assert found.interval != metrics.paired_interval(right, baseline)


def test_scored_images_are_counted_per_order(tmp_path: Path) -> None:
    """A setting that leaves images out says how many an order has, over all of its rows."""
    settings = [Setting("shuffled"), Setting("imbalanced", Scenario("imbalanced"))]
    book = Book([A], settings=settings, orders=2)
    book.add("a", share(100))
    book.add("a", [share(30)], setting=1, scored=np.arange(200) < 42)
    book.add("zero_shot", [share(30), share(30)], setting=1, scored=np.arange(200) < 42)
    whole, part = book.read(tmp_path).tables
    assert whole.scored is not None and whole.scored.per_order == (200, 200)
    assert part.scored is not None and part.scored.mean == 42


def test_made_metrics_are_like_real_ones(real: Any) -> None:
    """The made records of these tests have no name that real ones lack."""
    _, runs = real
    assert set(measured(share(3), 0)) <= set(runs["b", 0].metrics)
