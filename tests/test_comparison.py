"""``crg compare``: what it runs and reuses, and figures that agree with the report's."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from crg.cli import main
from crg.evaluate import run
from crg.features.files import read_features
from crg.report.experiment import read_experiments
from crg.report.layout import comparison_table, short_table, summary
from crg.report.tables import to_markdown
from crg.results import ledger
from crg.results.schema import LABELLED_IMAGES, Variant
from made_files import save_stream
from made_results import Book, share

RESULTS = "crg-results.jsonl"


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A feature file in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return save_stream(Path("a.npz"))


def _compare(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["compare", *words, "--workers", "1", "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_figures_are_those_of_the_single_runs(stream: Path) -> None:
    """Mean, deviation and values over orders, the gain over zero-shot and the best methods."""
    words = ("a.npz", "--methods", "tda", "--methods", "twin=tda", "--orders", "3")
    rows = _compare(*words)["files"]["a.npz"]
    assert len(ledger.read(RESULTS).runs) == 6  # the twins share their runs
    runs = [run(read_features(stream), "tda", seed=seed) for seed in range(3)]
    accuracies = [each.metrics["accuracy"] for each in runs]
    spread = rows["tda"]["accuracy"]
    assert spread["per_order"] == accuracies
    assert spread["mean"] == pytest.approx(statistics.fmean(accuracies))
    assert spread["std"] == pytest.approx(statistics.stdev(accuracies))
    assert rows["tda"]["ece"] == pytest.approx(statistics.fmean(r.metrics["ece"] for r in runs))
    base, gain = rows["zero_shot"]["accuracy"], rows["tda"]["gain"]
    assert base["std"] == 0.0 and gain["low"] <= gain["mean"] <= gain["high"]
    assert gain["mean"] == pytest.approx(spread["mean"] - base["mean"])
    assert rows["twin"]["accuracy"] == spread and rows["twin"]["gain"] == gain
    top = max(row["accuracy"]["mean"] for row in rows.values())
    assert all(row["best"] == (row["accuracy"]["mean"] == top) for row in rows.values())


def test_all_commands_mark_the_same_method_best(tmp_path: Path) -> None:
    """A method that uses labels, or lacks an order, is not the best, however accurate it is."""
    rows = [Variant("tda", "tda"), Variant("gda", "gda", needs=(LABELLED_IMAGES,)),
            Variant("crg", "crg")]  # fmt: skip
    book = Book(rows)
    for label, right in (("zero_shot", share(100)), ("tda", share(120)), ("gda", share(180)),
                         ("crg", [share(190)] * 4)):  # fmt: skip
        book.add(label, right, base=share(100))
    book.expect("crg", 4)
    experiment = book.read(tmp_path)
    [comparison] = experiment.comparisons
    figures = summary(experiment)["files"]["toy"]
    assert [label for label, row in figures.items() if row["best"]] == ["tda"]
    for shown in (short_table(comparison), comparison_table(comparison)):
        assert re.findall(r"^\| (\w+).* \*\*", to_markdown(shown), re.M) == ["tda"]
    for label, verdict in (("tda", "better"), ("gda", "better"), ("crg", "")):  # of four orders
        gain = comparison.of(label).gain
        assert gain is not None and figures[label]["gain"]["verdict"] == gain.verdict == verdict
        assert figures[label]["gain"]["low"] == gain.interval.low


def test_compare_prints_what_the_report_shows(stream: Path) -> None:
    """With labelled images gda is the most accurate, and both commands mark another method."""
    save_stream(Path("few.npz"))
    found = _compare("a.npz", "--few", "few.npz", "--methods", "tda,gda", "--orders", "2")
    rows = found["files"]["a.npz"]
    assert max(rows, key=lambda label: rows[label]["accuracy"]["mean"]) == "gda"
    [experiment] = read_experiments([RESULTS])
    assert json.loads(json.dumps(summary(experiment))) == found
    done = CliRunner().invoke(main, ["report", RESULTS, "--markdown", "tables.md"])
    assert done.exit_code == 0, done.output
    shown = set(re.findall(r"^\| (\w+).* \*\*[\d.]+ ±", Path("tables.md").read_text(), re.M))
    assert shown == {label for label, row in rows.items() if row["best"]} and "gda" not in shown


def test_runs_on_disk_are_reused_until_the_data_changes(stream: Path) -> None:
    """Only missing runs are done; runs on the old content of a file do not count."""
    words = ("a.npz", "--methods", "tda", "--orders")
    _compare(*words, "1")
    first = _compare(*words, "2")
    known = ledger.read(RESULTS).entries
    assert len(ledger.read(RESULTS).runs) == 4 and len(known) == 6  # two outlines
    assert _compare(*words, "2") == first and ledger.read(RESULTS).entries == known
    save_stream(stream, seed=1)
    _compare(*words, "2")
    assert len(ledger.read(RESULTS).runs) == 8


def test_copies_of_a_file_share_their_runs(stream: Path) -> None:
    """Equal content is run once from the given seed; options have types, one order no spread."""
    Path("b.npz").write_bytes(stream.read_bytes())
    words = ("--methods", "x=tda:positive_sharpness=4", "--orders", "1", "--seed", "7")
    found = _compare("[ab].np?", *words)
    files = found["files"]
    assert found["seeds"] == [7] and files["a.npz"]["x"]["accuracy"]["std"] is None
    assert list(files) == ["a.npz", "b.npz"] and files["a.npz"] == files["b.npz"]
    assert files["a.npz"]["x"]["options"] == {"positive_sharpness": 4.0}
    assert [each.seed for each in ledger.read(RESULTS).runs.values()] == [7, 7]
