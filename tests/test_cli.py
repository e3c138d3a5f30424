"""The command line in this process: output, refusals and what is kept."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import crg
from crg.bench.design import RowDesign
from crg.cli import main
from crg.cli.compare import parse_methods
from crg.methods import registry
from crg.results import ledger as results
from crg.types import InputError
from made_files import save_plugin, save_raw, save_stream


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a feature file."""
    monkeypatch.chdir(tmp_path)
    save_stream(tmp_path / "a.npz")
    return tmp_path


def _crg(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def _json(*words: str) -> Any:
    outcome = _crg(*words)
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def test_version() -> None:
    """The command knows its version."""
    assert _crg("--version").stdout == f"crg, version {crg.__version__}\n"


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


def test_compare_gives_json_of_the_documented_form() -> None:
    """Files, methods, measures; zero-shot is a row without being asked for; runs are kept."""
    words = ["compare", "a.npz", "--methods", "tda", "-o", "positive_sharpness=4", "--seed", "2"]
    rows = _json(*words, "--orders", "2", "--workers", "1", "--json")["files"]["a.npz"]
    assert set(rows) == {"zero_shot", "tda"}
    assert set(rows["tda"]["accuracy"]) == {"mean", "std", "per_order"}
    assert len(rows["tda"]["accuracy"]["per_order"]) == 2
    assert {"ece", "nll", "purity", "gain"} <= set(rows["tda"])
    ledger = results.read("crg-results.jsonl")
    assert len(ledger.runs) == 4 and len(ledger.entries) == 5  # with the outline
    assert {run.seed for run in ledger.runs.values()} == {2, 3}
    [run, _] = [run for run in ledger.runs.values() if run.method == "tda"]
    assert run.options["positive_sharpness"] == 4.0 and run.given == {"positive_sharpness": 4.0}
    report = _crg("report", "crg-results.jsonl", "--markdown", "tables.md")
    assert report.exit_code == 0 and "Comparison on a" in Path("tables.md").read_text()


def test_compare_may_keep_no_results(folder: Path) -> None:
    """The table counts images, classes and orders, and no file is left."""
    words = ["compare", "a.npz", "--methods", "tda", "--workers", "1", "--no-results"]
    assert "a.npz: 40 images, 4 classes, 5 orders" in _crg(*words).stdout
    assert list(folder.iterdir()) == [folder / "a.npz"]


def test_compare_takes_a_file_twice_and_equal_names(folder: Path) -> None:
    """A file given twice counts once with a note; two files of one name are two."""
    (folder / "b").mkdir()
    save_stream(folder / "b" / "a.npz", n=41)
    words = ["--methods", "zero_shot", "--orders", "1", "--workers", "1", "--json"]
    outcome = _crg("compare", "a.npz", "./a.npz", "b/a.npz", *words)
    assert list(json.loads(outcome.stdout)["files"]) == ["a.npz", "b/a.npz"]
    assert "given twice" in outcome.stderr


def test_compare_continues_and_names_truncated_lines() -> None:
    """Complete runs in the results file are not run again."""
    words = ["compare", "a.npz", "--methods", "tda", "--orders", "2", "--workers", "1"]
    _crg(*words)
    lines = Path("crg-results.jsonl").read_bytes().splitlines(keepends=True)
    Path("crg-results.jsonl").write_bytes(b"".join(lines[:4]) + lines[4][:50])
    outcome = _crg(*words)
    assert outcome.exit_code == 0
    assert "Line 5 of crg-results.jsonl was left out" in outcome.stderr
    ledger = results.read("crg-results.jsonl")
    assert len(ledger.entries) == 5 and len(ledger.runs) == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zero_shot,tda", [("zero_shot", {}), ("tda", {})]),
        ("crg,bare=crg:negative=false,gaussian=false,tda",
         [("crg", {}), ("crg", "bare", {"negative": "false", "gaussian": "false"}), ("tda", {})]),
        ("crg:lr=0", [("crg", "crg:lr=0", {"lr": "0"})]),
        ("same=crg,other=tda", [("crg", "same", {}), ("tda", "other", {})]),
        ("a=crg:lr=0,b=crg:lr=1", [("crg", "a", {"lr": "0"}), ("crg", "b", {"lr": "1"})]),
        (" tda , ,crg,", [("tda", {}), ("crg", {})]),
    ],
)  # fmt: skip
def test_lists_of_methods_are_read(text: str, expected: list[tuple[Any, ...]]) -> None:
    """Plain names, labels and options in one list."""
    rows = [RowDesign(method, (*more, method)[0], given) for method, *more, given in expected]
    assert parse_methods([text]) == rows


def test_options_reach_the_variants_they_are_meant_for() -> None:
    """An option for a method reaches all its variants, except where one says otherwise."""
    variants = parse_methods(["crg,a=crg:lr=0,tda"], ["crg.lr=1", "a.beta=2"])
    assert [v.options for v in variants] == [{"lr": "1"}, {"lr": "0", "beta": "2"}, {}]
    variants = parse_methods(["a=crg:lr=0,b=crg"], ["crg.lr=1"])
    assert [v.options for v in variants] == [{"lr": "0"}, {"lr": "1"}]
    [_, variant] = parse_methods(["zero_shot,crg"], ["lr=1"])
    assert variant.options == {"lr": "1"}
    with pytest.raises(InputError, match="which is not compared"):
        parse_methods(["tda"], ["crg.lr=1"])


def test_plug_ins_work_wherever_a_method_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the group, from a command, from the environment and from a module."""
    crg.list_methods()
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))  # for this test alone
    plugin = save_plugin(folder).name
    words = ["compare", "a.npz", "--methods", "constant", "-o", "answer=1", "--orders", "1"]
    first = _json("--plugin", plugin, *words, "--json")
    runs = {run.method: run for run in results.read("crg-results.jsonl").runs.values()}
    assert runs["constant"].plugins == (str(folder / plugin),)
    for given in (["--plugin", plugin], [], []):  # each finds the runs of the first call
        assert _json(*words, *given, "--json") == first
        named = os.environ.get("CRG_PLUGINS")
        monkeypatch.setenv("CRG_PLUGINS", "own_method" if named else plugin)
        monkeypatch.setattr(sys, "path", list(sys.path))
    assert len(results.read("crg-results.jsonl").runs) == 2
    monkeypatch.delitem(sys.modules, "own_method")


_SOUND = ["compare", "a.npz", "--methods"]
_BAD = np.ones((12, 5), np.float32)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compare", "none.npz"], "does not exist"),
        (["compare", "empty.npz"], "is empty"),
        (["compare", "cut.npz"], "truncated or damaged"),
        (["compare", "table.csv"], "ends in .npz or .safetensors"),
        (["compare", "pickled.npz"], "never loaded"),
        (["compare", "narrow.npz"], "5 wide"),
        (["compare", "a.npz", "none.npz"], "does not exist"),
        ([*_SOUND, "zero_shoot"], "did you mean 'zero_shot'"),
        (["methods", "tdaa"], "did you mean 'tda'"),
        ([*_SOUND, "tda", "-o", "positiv_size=1"], "did you mean 'positive_size'"),
        ([*_SOUND, "tda", "-o", "positive_size=x"], "must be a whole number"),
        ([*_SOUND, "tda", "-o", "beta"], "write key=value"),
        ([*_SOUND, "zero_shot", "--results", "none/r.jsonl"], "--no-results"),
        (["compare", "a.npz", "--methods", ""], "No method is named"),
        (["compare", "a.npz", "--methods", "tda,tda"], "two rows are called 'tda'"),
        (["compare", "bare.npz", "--methods", "tda"], "bare has no labels"),
        (["compare", "a.npz", "--methods", "gda"], "needs labelled images"),
        (["compare", "a.npz", "--methods", "=tda"], "label=method:key=value"),
        ([*_SOUND, "tda,crg", "-o", "beta=1"], "crg.beta=1"),
        (["compare", "a.npz", "--methods", "x=tda:positiv_size=1"], "did you mean 'positive_size'"),
        (["--plugin", "none.py", "methods"], "does not exist"),
        (["--plugin", "no_such_module", "methods"], "failed to load"),
        (["--plugin", "broken.py", "methods"], "ZeroDivisionError"),
        (["compare", "a.npz", "--orders", "0"], "--orders"),
        (["compare"], "FILE"),
        (["run"], "There is no command"),
        (["predikt"], "did you mean 'predict'?"),
        (["compare", "none-*"], "Nothing matches none-*"),
        (["methods", "check", "table.csv"], "no Python file"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(folder: Path, words: list[str], says: str) -> None:
    """Exit code 2, one sentence on stderr, no traceback and nothing on stdout."""
    (folder / "empty.npz").touch()
    (folder / "cut.npz").write_bytes((folder / "a.npz").read_bytes()[:999])
    (folder / "table.csv").write_text("1")
    (folder / "broken.py").write_text("1 / 0")
    save_raw(folder / "pickled.npz", class_names=np.array(["a", "b", "c"], dtype=object))
    save_raw(folder / "narrow.npz", image_features=_BAD)
    save_raw(folder / "bare.npz", labels=None)
    outcome = _crg(*words)
    assert outcome.exit_code == 2 and isinstance(outcome.exception, SystemExit)
    last = outcome.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ") and last.endswith((".", "?")) and says in last
    assert outcome.stdout == "" and "Traceback" not in outcome.stderr
