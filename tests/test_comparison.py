"""Comparisons: the summary of a plan's runs, and what ``crg compare`` runs and reuses."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from crg.bench.run import EngineOptions, begin, missing, run_specs
from crg.cli import main
from crg.evaluate import run
from crg.features.files import read_features
from crg.report.experiment import experiments_of
from crg.report.layout import summary
from crg.results import ledger
from made_experiments import FILES, planned
from made_files import save_stream

TWINS = '[[row]]\nmethod = "tda"\n[[row]]\nlabel = "twin"\nmethod = "tda"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _compare(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["compare", *words, "--workers", "1", "--json"])
    assert done.exit_code == 0, done.output
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def test_the_summary_is_that_of_the_single_runs(tmp_path: Path) -> None:
    """Mean, sample deviation and list over orders, the gain over zero-shot and the best rows."""
    made, path = planned(tmp_path, f"orders = 3\n{TWINS}{FILES}"), tmp_path / "r.jsonl"
    begin(made, known := ledger.read(path))
    specs = missing(made, known)
    assert len(list(run_specs(specs, known, EngineOptions(workers=1)))) == 6  # twins share runs
    [experiment] = experiments_of(known.refresh())
    [rows] = summary(experiment)["files"].values()
    runs = [run(read_features(specs[0].data.path), "tda", seed=seed) for seed in range(3)]
    shares = [each.metrics["accuracy"] for each in runs]
    spread = rows["tda"]["accuracy"]
    assert list(spread["per_order"]) == shares
    assert spread["mean"] == pytest.approx(statistics.fmean(shares))
    assert spread["std"] == pytest.approx(statistics.stdev(shares))
    assert rows["tda"]["ece"] == pytest.approx(statistics.fmean(r.metrics["ece"] for r in runs))
    base, gain = rows["zero_shot"]["accuracy"], rows["tda"]["gain"]
    assert base["std"] == 0.0 and gain["low"] <= gain["mean"] <= gain["high"]
    assert gain["mean"] == pytest.approx(spread["mean"] - base["mean"])
    top = max(row["accuracy"]["mean"] for row in rows.values())
    assert all(row["best"] == (row["accuracy"]["mean"] == top) for row in rows.values())
    assert rows["twin"]["accuracy"] == spread


def test_runs_on_disk_are_reused_until_the_data_changes(folder: Path) -> None:
    """Only what is missing is run; what the file holds of old content does not count."""
    save_stream(folder / "a.npz")
    words = ("a.npz", "--methods", "tda", "--orders")
    _compare(*words, "1")
    first = _compare(*words, "2")
    known = ledger.read("crg-results.jsonl")
    assert len(known.runs) == 4 and len(known.entries) == 6  # two outlines
    again = _compare(*words, "2")
    assert again == first and ledger.read("crg-results.jsonl").entries == known.entries
    save_stream(folder / "a.npz", seed=1)
    _compare(*words, "2")
    assert len(ledger.read("crg-results.jsonl").runs) == 8


def test_seeds_count_up_and_one_order_has_no_spread(folder: Path) -> None:
    """The first order has the seed that was asked for; a single value has no deviation."""
    save_stream(folder / "a.npz")
    summary = _compare("[a].np?", "--methods", "zero_shot", "--orders", "1", "--seed", "7")
    assert summary["seeds"] == [7]
    assert summary["files"]["a.npz"]["zero_shot"]["accuracy"]["std"] is None
    assert [each.seed for each in ledger.read("crg-results.jsonl").runs.values()] == [7]


def test_copies_of_a_file_share_their_runs(folder: Path) -> None:
    """Equal content is run once, and each file has its rows; options are of their own type."""
    first = save_stream(folder / "a.npz")
    (folder / "b.npz").write_bytes(first.read_bytes())
    words = ("--methods", "x=tda:positive_sharpness=4", "--orders", "1")
    files = _compare("a.npz", "b.npz", *words)["files"]
    assert list(files) == ["a.npz", "b.npz"] and files["a.npz"] == files["b.npz"]
    assert files["a.npz"]["x"]["options"] == {"positive_sharpness": 4.0}
    assert len(ledger.read("crg-results.jsonl").runs) == 2


def test_a_run_that_fails_is_reported_and_the_others_are_shown(folder: Path) -> None:
    """The exit code is 1, the failure is named, and its row has no figures."""
    save_stream(folder / "a.npz")
    Path("failing.py").write_text(
        "import crg\n\n\n@crg.register\nclass Failing(crg.get_method('tda')):\n"
        "    name = 'failing'\n\n    def step(self, sample):\n        raise RuntimeError('luck')\n"
    )
    words = ["--plugin", "failing.py", "compare", "a.npz", "--methods", "failing,tda"]
    done = CliRunner().invoke(main, [*words, "--orders", "1", "--workers", "1", "--json"])
    assert done.exit_code == 1 and "RuntimeError: luck" in done.stderr
    rows = json.loads(done.stdout)["files"]["a.npz"]
    assert rows["failing"]["accuracy"] is None and rows["tda"]["accuracy"] is not None
