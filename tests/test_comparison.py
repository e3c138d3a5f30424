"""Grids and comparisons: what is run, what is reused and what is summed up."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from crg.bench.grid import Variant, iter_grid, plan_grid, summarise, with_baseline
from crg.evaluate import run
from crg.features.files import read_features
from crg.results import ledger
from crg.types import InputError
from made_files import save_raw, save_stream

TDA, ZERO = Variant("tda", "tda"), Variant("zero_shot", "zero_shot")


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A small stream."""
    return str(save_stream(tmp_path / "a.npz"))


def test_the_summary_is_that_of_the_single_runs(file: str) -> None:
    """Mean, sample deviation and list over orders, and the gain over zero-shot."""
    grid = plan_grid([file], [ZERO, TDA], [4, 5, 6])
    rows = summarise(grid, iter_grid(grid))["files"][file]
    runs = [run(read_features(file), "tda", seed=seed) for seed in (4, 5, 6)]
    shares = [each.metrics["accuracy"] for each in runs]
    assert rows["tda"]["accuracy"]["per_order"] == shares
    assert rows["tda"]["accuracy"]["mean"] == pytest.approx(statistics.fmean(shares))
    assert rows["tda"]["accuracy"]["std"] == pytest.approx(statistics.stdev(shares))
    assert rows["tda"]["ece"] == pytest.approx(statistics.fmean(r.metrics["ece"] for r in runs))
    base = rows["zero_shot"]["accuracy"]
    assert base["std"] == 0.0
    gain = rows["tda"]["gain"]
    assert gain["mean"] == pytest.approx(rows["tda"]["accuracy"]["mean"] - base["mean"])
    assert gain["low"] <= gain["mean"] <= gain["high"]


def test_the_best_row_is_marked(file: str) -> None:
    """The highest mean accuracy is best, and rows that are equal are best together."""
    twin = Variant("twin", "zero_shot")
    grid = plan_grid([file], [ZERO, twin], [0])
    rows = summarise(grid, iter_grid(grid))["files"][file]
    assert [row["best"] for row in rows.values()] == [True, True]
    grid = plan_grid([file], [ZERO, TDA], [0, 1])
    rows = summarise(grid, iter_grid(grid))["files"][file]
    top = max(row["accuracy"]["mean"] for row in rows.values())
    assert all(row["best"] == (row["accuracy"]["mean"] == top) for row in rows.values())


def test_a_single_order_has_no_spread(file: str) -> None:
    """One value has no sample deviation."""
    grid = plan_grid([file], [ZERO], [0])
    spread = summarise(grid, iter_grid(grid))["files"][file]["zero_shot"]["accuracy"]
    assert spread["std"] is None


def test_zero_shot_is_always_compared() -> None:
    """It is put first where it was not asked for, and not twice where it was."""
    assert [v.label for v in with_baseline([TDA])] == ["zero_shot", "tda"]
    assert with_baseline([TDA, ZERO]) == (TDA, ZERO)
    assert with_baseline([Variant("base", "zero_shot")]) == (Variant("base", "zero_shot"),)


def test_files_without_labels_are_summed_up_without_accuracy(tmp_path: Path) -> None:
    """There are times but neither accuracy nor gain nor a best row."""
    file = str(save_raw(tmp_path / "a.npz", labels=None))
    grid = plan_grid([file], [ZERO], [0, 1])
    row = summarise(grid, iter_grid(grid))["files"][file]["zero_shot"]
    assert (row["accuracy"], row["gain"], row["ece"], row["best"]) == (None, None, None, False)
    assert row["ms_per_step"] > 0


def test_the_same_run_under_two_names_is_run_once(tmp_path: Path) -> None:
    """Twins of a variant and copies of a file share their runs, and each has its row."""
    first, copy = save_stream(tmp_path / "a.npz"), tmp_path / "b.npz"
    copy.write_bytes(first.read_bytes())
    grid = plan_grid([str(first), str(copy)], [ZERO, Variant("twin", "zero_shot")], [0])
    finished = list(iter_grid(grid))
    assert len(finished) == grid.n_runs == 1
    summary = summarise(grid, finished)["files"]
    assert list(summary) == [str(first), str(copy)]
    assert all(list(rows) == ["zero_shot", "twin"] for rows in summary.values())


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    """Different ways to write one path lead to one file; equal names in two folders do not."""
    (tmp_path / "other").mkdir()
    first, second = save_stream(tmp_path / "a.npz"), save_stream(tmp_path / "other" / "a.npz", n=41)
    winding = f"{tmp_path}/other/../a.npz"
    grid = plan_grid([str(first), winding, str(second), str(first)], [ZERO], [0])
    assert [file.path for file in grid.files] == [str(first), str(second)]


def test_runs_on_disk_are_reused_on_resume_alone(file: str, tmp_path: Path) -> None:
    """With resume only what is missing is run; without, everything is."""
    path = tmp_path / "r.jsonl"
    small, large = (plan_grid([file], [ZERO, TDA], range(n)) for n in (1, 2))
    assert [f.reused for f in iter_grid(small, path)] == [False, False]
    resumed = list(iter_grid(large, path, resume=True))
    assert [f.reused for f in resumed] == [True, True, False, False]
    assert len(ledger.read_ledger(path).records) == 4
    assert [f.reused for f in iter_grid(small, path)] == [False, False]
    again = list(iter_grid(large, path, resume=True))
    assert (
        summarise(large, again)["files"][file]["tda"]["accuracy"]
        == (summarise(large, resumed)["files"][file]["tda"]["accuracy"])
    )


def test_a_changed_file_is_run_again(file: str, tmp_path: Path) -> None:
    """What the results file holds of the old content does not count for the new."""
    path = tmp_path / "r.jsonl"
    list(iter_grid(plan_grid([file], [ZERO], [0]), path))
    save_stream(Path(file), seed=1)
    assert [f.reused for f in iter_grid(plan_grid([file], [ZERO], [0]), path, resume=True)] == [
        False
    ]


def test_mistakes_are_refused_before_the_first_run(file: str) -> None:
    """A bad file, method, option or a label given twice is found while planning."""
    for paths, variants, words in (
        ([file, "none.npz"], [ZERO], "does not exist"),
        ([file], [Variant("x", "zero_shoot")], "zero_shot"),
        ([file], [Variant("tda", "tda", {"positiv_size": 1})], "positive_size"),
        ([file], [ZERO, ZERO], "twice"),
    ):
        with pytest.raises(InputError, match=words):
            plan_grid(paths, variants, [0])


def test_options_given_as_text_take_their_own_type(file: str) -> None:
    """What a command line gives as text is kept as a number."""
    grid = plan_grid([file], [Variant("tda", "tda", {"positive_sharpness": "4"})], [0])
    assert grid.variants[0].options == {"positive_sharpness": 4.0}
