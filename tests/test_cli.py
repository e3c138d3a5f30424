"""The command line in this process: output, refusals and what is kept."""

from __future__ import annotations

import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import crg
from crg.bench.design import RowDesign
from crg.cli import main
from crg.cli.compare import parse_methods, rich_tables
from crg.methods import registry
from crg.results import ledger as results
from crg.types import InputError
from made_files import save_plugin, save_raw, save_stream


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _crg(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def _json(*words: str) -> Any:
    outcome = _crg(*words)
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def test_version_and_help() -> None:
    """Every command has help with an example."""
    assert _crg("--version").stdout == f"crg, version {crg.__version__}\n"
    for words in ([], ["methods"], ["run"], ["compare"], ["demo"]):
        text = _crg(*words, "--help").stdout
        assert "Example:\n" in text
        assert "--plugin" in text


def test_methods_are_listed_with_their_options() -> None:
    """The list names every method, and one method shows defaults and meanings."""
    listed = _json("methods", "--json")["methods"]
    assert [each["name"] for each in listed] == crg.list_methods()
    table = _crg("methods").stdout
    assert all(name in table for name in crg.list_methods())
    options = {
        each["name"]: each for each in _json("methods", "tda", "--json")["methods"][0]["options"]
    }
    assert options["positive_size"]["default"] == 3
    assert options["positive_size"]["help"] in _crg("methods", "tda").stdout
    assert "predict_on" in _crg("methods", "zero_shot").stdout


def test_run_prints_a_table_and_keeps_a_record(folder: Path) -> None:
    """One line in crg-results.jsonl, whose command repeats the run to the same accuracy."""
    save_stream(folder / "a.npz")
    outcome = _crg("run", "a.npz", "--method", "tda", "-o", "positive_sharpness=4", "--seed", "2")
    assert outcome.exit_code == 0
    assert "accuracy %" in outcome.stdout and "zero_shot" in outcome.stdout
    [run] = results.read("crg-results.jsonl").runs.values()
    assert run.options["positive_sharpness"] == 4.0
    again = _json(*shlex.split(run.command)[1:], "--json", "--no-results")
    assert again["key"] == run.key
    assert again["metrics"]["correct"] == run.metrics["correct"]
    assert len(results.read("crg-results.jsonl").entries) == 1


def test_run_saves_the_state(folder: Path) -> None:
    """The state file goes on where the run stopped."""
    save_stream(folder / "a.npz")
    _crg("run", "a.npz", "--method", "tda", "--save-state", "s.safetensors")
    assert crg.load(folder / "s.safetensors").n_steps == 40


def test_run_without_labels_shows_times_only(folder: Path) -> None:
    """A file without labels is no error."""
    save_raw(folder / "a.npz", labels=None)
    outcome = _crg("run", "a.npz", "--method", "zero_shot")
    assert outcome.exit_code == 0
    assert "ms per step" in outcome.stdout
    assert "accuracy" not in outcome.stdout


def test_compare_gives_json_of_the_documented_form(folder: Path) -> None:
    """Files, then methods, then the measures; zero-shot is a row without being asked for."""
    save_stream(folder / "a.npz")
    words = ["compare", "a.npz", "--methods", "tda", "--orders", "2", "--workers", "1", "--json"]
    rows = _json(*words)["files"]["a.npz"]
    assert set(rows) == {"zero_shot", "tda"}
    assert set(rows["tda"]["accuracy"]) == {"mean", "std", "per_order"}
    assert len(rows["tda"]["accuracy"]["per_order"]) == 2
    assert {"ece", "nll", "purity", "gain"} <= set(rows["tda"])
    ledger = results.read("crg-results.jsonl")
    assert len(ledger.runs) == 4 and len(ledger.entries) == 5  # with the outline
    report = _crg("report", "crg-results.jsonl", "--markdown", "tables.md")
    assert report.exit_code == 0 and "Comparison on a" in Path("tables.md").read_text()


def test_compare_prints_a_table_with_the_best_in_bold(folder: Path) -> None:
    """Markdown marks the best row and no other."""
    save_stream(folder / "a.npz")
    words = ["compare", "a.npz", "--methods", "tda", "--workers", "1", "--no-results"]
    assert "a.npz: 40 images, 4 classes, 5 orders" in _crg(*words).stdout
    lines = _crg(*words, "--format", "markdown").stdout.splitlines()
    rows = _json(*words, "--json")["files"]["a.npz"]
    for label, row in rows.items():
        [line] = [line for line in lines if label in line]
        assert ("**" in line) == row["best"]
    assert list(folder.iterdir()) == [folder / "a.npz"]


def test_compare_takes_a_file_twice_and_equal_names(folder: Path) -> None:
    """A file given twice counts once with a note; two files of one name are two."""
    (folder / "b").mkdir()
    save_stream(folder / "a.npz")
    save_stream(folder / "b" / "a.npz", n=41)
    words = ["--methods", "zero_shot", "--orders", "1", "--workers", "1", "--json"]
    outcome = _crg("compare", "a.npz", "./a.npz", "b/a.npz", *words)
    assert list(json.loads(outcome.stdout)["files"]) == ["a.npz", "b/a.npz"]
    assert "given twice" in outcome.stderr


def test_compare_continues_and_names_truncated_lines(folder: Path) -> None:
    """What is whole in the results file is not run again."""
    save_stream(folder / "a.npz")
    words = ["compare", "a.npz", "--methods", "tda", "--orders", "2", "--workers", "1"]
    _crg(*words)
    lines = Path("crg-results.jsonl").read_bytes().splitlines(keepends=True)
    Path("crg-results.jsonl").write_bytes(b"".join(lines[:4]) + lines[4][:50])
    outcome = _crg(*words)
    assert outcome.exit_code == 0
    assert "Line 5 of crg-results.jsonl was left out" in outcome.stderr
    ledger = results.read("crg-results.jsonl")
    assert len(ledger.entries) == 5 and len(ledger.runs) == 4


def _row(method: str) -> RowDesign:
    return RowDesign(method, method)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zero_shot,tda", [_row("zero_shot"), _row("tda")]),
        (
            "crg,bare=crg:negative=false,gaussian=false,tda",
            [
                _row("crg"),
                RowDesign("crg", "bare", {"negative": "false", "gaussian": "false"}),
                _row("tda"),
            ],
        ),
        ("crg:lr=0", [RowDesign("crg", "crg:lr=0", {"lr": "0"})]),
        ("same=crg,other=tda", [RowDesign("crg", "same"), RowDesign("tda", "other")]),
        (
            "a=crg:lr=0,b=crg:lr=1",
            [RowDesign("crg", "a", {"lr": "0"}), RowDesign("crg", "b", {"lr": "1"})],
        ),
        (" tda , ,crg,", [_row("tda"), _row("crg")]),
    ],
)
def test_lists_of_methods_are_read(text: str, expected: list[RowDesign]) -> None:
    """Plain names, labels and options in one list."""
    assert parse_methods([text]) == expected


def test_options_reach_the_variants_they_are_meant_for() -> None:
    """An option for a method reaches all its variants, except where one says otherwise."""
    variants = parse_methods(["crg,a=crg:lr=0,tda"], ["crg.lr=1", "a.beta=2"])
    assert [v.options for v in variants] == [{"lr": "1"}, {"lr": "0", "beta": "2"}, {}]
    variants = parse_methods(["a=crg:lr=0,b=crg"], ["crg.lr=1"])
    assert [v.options for v in variants] == [{"lr": "0"}, {"lr": "1"}]
    with pytest.raises(InputError, match="which is not compared"):
        parse_methods(["tda"], ["crg.lr=1"])


def test_plug_ins_work_wherever_a_method_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the group, from a command, from the environment and from a module."""
    crg.list_methods()
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))  # for this test alone
    plugin = save_plugin(folder).name
    save_stream(folder / "a.npz")
    words = ["run", "a.npz", "--method", "constant", "-o", "answer=1", "--json"]
    record = _json("--plugin", plugin, *words)
    assert record["command"].startswith(f"crg --plugin {folder / plugin} run")
    assert _json(*words, "--plugin", plugin)["key"] == record["key"]
    monkeypatch.setenv("CRG_PLUGINS", plugin)
    assert _json(*words)["key"] == record["key"]
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("CRG_PLUGINS", "own_method")
    assert _json(*words)["key"] == record["key"]
    monkeypatch.delitem(sys.modules, "own_method")


_SOUND = ["run", "a.npz", "--method", "zero_shot"]
_BAD = np.ones((12, 5), np.float32)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "none.npz"], "does not exist"),
        (["run", "empty.npz"], "is empty"),
        (["run", "cut.npz"], "truncated or damaged"),
        (["run", "table.csv"], "ends in .npz or .safetensors"),
        (["run", "pickled.npz"], "never loaded"),
        (["run", "narrow.npz"], "5 wide"),
        (["compare", "a.npz", "none.npz"], "does not exist"),
        (["run", "a.npz", "--method", "zero_shoot"], "did you mean 'zero_shot'"),
        (["methods", "tdaa"], "did you mean 'tda'"),
        (
            ["run", "a.npz", "--method", "tda", "-o", "positiv_size=1"],
            "did you mean 'positive_size'",
        ),
        (["run", "a.npz", "--method", "tda", "-o", "positive_size=x"], "must be a whole number"),
        (["run", "a.npz", "--method", "tda", "-o", "beta"], "write key=value"),
        ([*_SOUND, "--results", "none/r.jsonl"], "--no-results"),
        ([*_SOUND, "--save-state", "none/s.safetensors"], "choose a folder that exists"),
        (["compare", "a.npz", "--methods", ""], "No method is named"),
        (["compare", "a.npz", "--methods", "tda,tda"], "two rows are called 'tda'"),
        (["compare", "bare.npz", "--methods", "tda"], "bare has no labels"),
        (["compare", "a.npz", "--methods", "gda"], "needs labelled images"),
        (["compare", "a.npz", "--methods", "=tda"], "label=method:key=value"),
        (["compare", "a.npz", "--methods", "tda", "-o", "beta=1"], "crg.beta=1"),
        (["compare", "a.npz", "--methods", "x=tda:positiv_size=1"], "did you mean 'positive_size'"),
        (["--plugin", "none.py", "methods"], "does not exist"),
        (["--plugin", "no_such_module", "methods"], "failed to load"),
        (["--plugin", "broken.py", "methods"], "ZeroDivisionError"),
        (["compare", "a.npz", "--orders", "0"], "--orders"),
        (["run"], "FILE"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(folder: Path, words: list[str], says: str) -> None:
    """Exit code 2, one sentence on stderr, no traceback and nothing on stdout."""
    save_stream(folder / "a.npz")
    (folder / "empty.npz").touch()
    (folder / "cut.npz").write_bytes((folder / "a.npz").read_bytes()[:999])
    (folder / "table.csv").write_text("1")
    (folder / "broken.py").write_text("1 / 0")
    save_raw(folder / "pickled.npz", class_names=np.array(["a", "b", "c"], dtype=object))
    save_raw(folder / "narrow.npz", image_features=_BAD)
    save_raw(folder / "bare.npz", labels=None)
    outcome = _crg(*words)
    assert outcome.exit_code == 2
    assert isinstance(outcome.exception, SystemExit)
    assert outcome.stdout == ""
    last = outcome.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert last.endswith((".", "?"))
    assert says in last
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_figure_is_cut_on_a_narrow_terminal(width: int) -> None:
    """Columns that do not fit are left out whole; accuracy and gain stay."""
    rows = {"accuracy": {"mean": 0.9376, "std": 0.0024}, "ece": 0.0631, "nll": 37.512}
    rows |= {
        "purity": 0.934,
        "gain": {"mean": 0.1, "low": 0.08, "high": 0.12},
    }
    rows |= {"method": "crg", "best": True}
    facts = {"n_samples": 10, "n_classes": 3, "labelled": True}
    summary = {"files": {"f": {"crg": rows}}, "data": {"f": facts}, "seeds": [0, 1]}
    console = Console(width=width, record=True, file=io.StringIO())
    for table in rich_tables(summary, width):
        console.print(table)
    text = console.export_text()
    assert "…" not in text
    assert "93.76 ± 0.24" in text
    assert "+10.00 [+8.00, +12.00]" in text
    assert ("37.512" in text) == (width >= 80)
