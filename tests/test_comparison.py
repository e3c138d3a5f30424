"""``crg compare``: what it runs and reuses, and figures that agree with the report's."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from crg.evaluate import run
from crg.features.files import read_features
from crg.report.experiment import read_experiments
from crg.report.layout import comparison_table, short_table, summary
from crg.report.tables import to_markdown
from crg.results import ledger
from crg.results.schema import LABELLED_IMAGES, Variant
from made_files import save_stream
from made_results import Book, share
from processes import called

RESULTS = "crg-results.jsonl"


@pytest.fixture
def stream(here: Path) -> Path:
    """A feature file in an empty working directory."""
    return save_stream(Path("a.npz"))


def _compare(*words: str) -> dict[str, Any]:
    """What is on stdout, while a bar on stderr, which rich takes for a terminal, counts runs."""
    done = called("compare", *words, "--workers", "1", "--json", env={"FORCE_COLOR": "1"})
    assert re.search(r"(\d+)/\1\b", done.stderr), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_figures_are_those_of_the_single_runs(stream: Path) -> None:
    """Values over orders, means and the gain over zero-shot; twins share their runs."""
    words = ("a.npz", "--methods", "tda", "--methods", "twin=tda", "--orders", "3")
    rows = _compare(*words)["files"]["a"]
    assert len(ledger.read(RESULTS).runs) == 6
    runs = [run(read_features(stream), "tda", seed=seed) for seed in range(3)]
    spread = rows["tda"]["accuracy"]
    assert spread["per_order"] == [each.metrics["accuracy"] for each in runs]
    assert rows["tda"]["ece"] == pytest.approx(statistics.fmean(r.metrics["ece"] for r in runs))
    base, gain = rows["zero_shot"]["accuracy"], rows["tda"]["gain"]
    assert gain["mean"] == pytest.approx(spread["mean"] - base["mean"])
    assert rows["twin"]["accuracy"] == spread and rows["twin"]["gain"] == gain


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
    """What the command prints, of a method with labelled images too, is what a report reads."""
    save_stream(Path("few.npz"))
    called("compare", "a.npz", "--methods", "gda", code=2)
    assert not Path(RESULTS).exists()  # no run is begun
    found = _compare("a.npz", "--few", "few.npz", "--methods", "tda,gda", "--orders", "2")
    recorded = {run.few.path for run in ledger.read(RESULTS).runs.values() if run.few}
    assert {Path(path).name for path in recorded} == {"few.npz"}
    [experiment] = read_experiments([RESULTS])
    assert json.loads(json.dumps(summary(experiment))) == found


def test_copies_of_a_file_share_their_runs_until_one_changes(stream: Path) -> None:
    """Equal content in a folder is run once; options have types, one order has no spread."""
    Path("b.npz").write_bytes(stream.read_bytes())
    Path("empty.npz").touch()  # a note
    files = _compare(".", "--methods", "x=tda:positive_sharpness=4", "--orders", "1")["files"]
    assert list(files) == ["a", "b"] and files["a"] == files["b"]
    assert files["a"]["x"]["accuracy"]["std"] is None
    assert files["a"]["x"]["options"] == {"positive_sharpness": 4.0}
    [_, run] = ledger.read(RESULTS).runs.values()
    assert (run.method, run.seed, run.given) == ("tda", 0, {"positive_sharpness": 4.0})
    save_stream(stream, seed=1)
    _compare("a.npz", "--methods", "x=tda:positive_sharpness=4", "--orders", "1")
    assert len(ledger.read(RESULTS).runs) == 4
