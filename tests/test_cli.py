"""The command line in this process: output, refusals and what is kept."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import crg
from crg.bench.design import RowDesign, parse_methods
from crg.cli.shared import heeding_interrupts
from crg.results import ledger as results
from made_files import save_plugin, save_raw, save_stream
from processes import called


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    """A working directory with a feature file."""
    save_stream(here / "a.npz")
    return here


def _json(*words: str) -> Any:
    return json.loads(called(*words).stdout)


def test_methods_are_listed_with_their_options() -> None:
    """The list names every method, and one method shows defaults and meanings."""
    assert called("--version").stdout == f"crg, version {crg.__version__}\n"
    listed = _json("methods", "--json")["methods"]
    assert [each["name"] for each in listed] == crg.list_methods()
    table = called("methods").stdout
    assert all(name in table for name in crg.list_methods())
    options = {
        each["name"]: each for each in _json("methods", "tda", "--json")["methods"][0]["options"]
    }
    assert options["positive_size"]["default"] == 3
    assert options["positive_size"]["help"] in called("methods", "tda").stdout
    assert "predict_on" in called("methods", "zero_shot").stdout
    assert "0 or at least 1, at most" in called("methods", "anchored").stdout  # its half_life


def test_compare_takes_a_file_twice_and_equal_names(folder: Path) -> None:
    """A file given twice counts once; two files of one name are two; the table counts images."""
    (folder / "b").mkdir()
    save_stream(folder / "b" / "a.npz", n=41)
    words = ["--methods", "zero_shot", "--orders", "1", "--workers", "1"]
    shown = called("compare", "a.npz", "./a.npz", "b/a.npz", *words).stdout
    assert "a.npz: 40 images, 4 classes, 1 order" in shown
    assert "b/a.npz: 41 images" in shown and shown.count("images") == 2


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


def test_plug_ins_work_wherever_a_method_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None
) -> None:
    """From the group, from a command, from the environment and from a module."""
    plugin = save_plugin(folder).name
    words = ["compare", "a.npz", "--methods", "constant:answer=1", "--orders", "1"]
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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compare", "none.npz"], "does not exist"),
        (["compare", "table.csv"], "ends in .npz or .safetensors"),
        (["compare", "a.npz", "none.npz"], "does not exist"),
        ([*_SOUND, "zero_shoot"], "did you mean 'zero_shot'"),
        (["methods", "tdaa"], "did you mean 'tda'"),
        ([*_SOUND, "tda:positive_size=x"], "must be a whole number"),
        ([*_SOUND, "tda:beta"], "write key=value"),
        ([*_SOUND, "zero_shot", "--results", "/dev/null/r.jsonl"], "--results"),
        ([*_SOUND, "zero_shot", "--results", "a.npz"], "no results file"),
        ([*_SOUND, ""], "No method is named"),
        ([*_SOUND, "tda,tda"], "two rows are called 'tda'"),
        (["compare", "bare.npz", "--methods", "tda"], "bare has no labels"),
        ([*_SOUND, "gda"], "needs labelled images"),
        ([*_SOUND, "=tda"], "label=method:key=value"),
        ([*_SOUND, "x=tda:positiv_size=1"], "did you mean 'positive_size'"),
        (["--plugin", "none.py", "methods"], "does not exist"),
        (["--plugin", "no_such_module", "methods"], "failed to load"),
        (["--plugin", "broken.py", "methods"], "ZeroDivisionError"),
        (["compare", "a.npz", "--orders", "0"], "--orders"),
        (["compare"], "FILE"),
        (["run"], "There is no command"),
        (["predikt"], "did you mean 'predict'?"),
        (["compare", "b"], "There is nothing to measure"),
        (["review", "none.csv"], "none.csv cannot be read"),
        (["predict", "a.npz", "--load-state", "a.npz"], "or not a state that crg saved"),
        (["methods", "check", "table.csv"], "no Python file"),
        (["demo", "--shift", "knight"], "did you mean 'night'"),
        (["demo", "--severity", "6"], "--severity"),
        (["demo", "--report", "none/page.html"], "none"),
        (["demo", "--methods", "crgg"], "did you mean 'crg'"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(folder: Path, words: list[str], says: str) -> None:
    """Exit code 2, one sentence on stderr, no traceback and nothing on stdout."""
    (folder / "b").mkdir()
    (folder / "table.csv").write_text("1")
    (folder / "broken.py").write_text("1 / 0")
    save_raw(folder / "bare.npz", labels=None)
    outcome = called(*words, code=2)
    assert isinstance(outcome.exception, SystemExit)
    last = outcome.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ") and last.endswith((".", "?")) and says in last
    assert outcome.stdout == "" and "Traceback" not in outcome.stderr


def test_ctrl_c_in_a_destructor_is_not_lost(capsys: pytest.CaptureFixture[str]) -> None:
    """Python would print it and continue; it comes again once the destructor is over."""

    class Closing:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), heeding_interrupts():
        Closing()
        time.sleep(60)
    assert capsys.readouterr().err == ""
