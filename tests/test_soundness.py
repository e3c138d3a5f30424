"""Lines that lack something or contradict themselves: left out, named, and in nobody's way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from crg.bench.rerun import archive_file
from crg.cli import main
from crg.report.evidence import read_studies
from crg.results import ledger
from crg.results.outline import Row
from crg.results.soundness import fault_of
from made_experiments import lines_of
from made_results import Book, share

Line = dict[str, Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A results file with an outline, five runs of a row, and a gallery."""
    book = Book([Row("a", "tda")])
    scored = share(150)
    book.add("a", share(90), scored=scored)
    made = book.write(tmp_path / "toys.jsonl")
    image = {"id": "1", "png": "", "truth": "x", "answers": {}}
    ledger.append(made, {"schema": 1, "kind": "gallery", "key": "g", "experiment": "toys",
                          "source": "toy", "images": [image]})  # fmt: skip
    return made


def _change(path: Path, number: int, change: Callable[[Line], Any]) -> None:
    lines = lines_of(path)
    change(lines[number - 1])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _report(*words: str | Path) -> Any:
    return CliRunner().invoke(main, ["report", *map(str, words), "--format", "markdown"])


def test_what_is_measured_agrees_with_itself(path: Path) -> None:
    """Nothing is said against lines as they were written, not even where some are not scored."""
    assert [fault_of(line) for line in lines_of(path)] == [None] * 7
    assert "left out" not in _report(path).output


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda run: run.pop("metrics"), "lacks 'metrics'"),
        (lambda run: run.update(zero_shot=[]), "has no usable 'zero_shot'"),
        (lambda run: run.update(data={}), "has no usable 'data'"),
        (lambda run: run.update(machine=3), "has no usable 'machine'"),
        (lambda run: run.update(kind=["x"]), "is of the kind ['x'], which there is not"),
        (lambda run: run["metrics"].update(accuracy=0.9),
         "gives an accuracy of 90.00% where 90 of 150 answers were right"),
        (lambda run: run["zero_shot"].update(accuracy=0.3), "gives an accuracy of 30.00%"),
        (lambda run: run["metrics"].update(accuracy="0.6"), "has '0.6' for 'accuracy'"),
        (lambda run: run["metrics"].update(nll=float("nan")), "has nan for 'nll'"),
        (lambda run: run["metrics"].update(correct="xyz"), "has no usable 'correct'"),
        (lambda run: run["metrics"].update(n_scored=151), "counts 151 scored images"),
        (lambda run: run["metrics"].pop("n_scored"), "lacks 'n_scored'"),
        (lambda run: run["metrics"].update(right_in_order="ff"), "has answers to fewer than"),
        (lambda run: run["metrics"].update(reliability=[[1]]), "has no usable 'reliability'"),
        (lambda run: run["metrics"].update(mislabelled={"x": 1}), "has no usable 'mislabelled'"),
    ],
)  # fmt: skip
def test_a_run_that_cannot_be_believed_is_left_out(
    path: Path, change: Callable[[Line], Any], why: str
) -> None:
    """It is reported on the screen and in the notes, and the other runs are drawn without it."""
    _change(path, 3, change)
    done = _report(path)
    assert done.exit_code == 0, done.output
    assert f"Note: Line 3 of {path} was left out: it {why}" in done.stderr
    [study] = read_studies([path])
    assert any(f"Line 3 of {path} was left out: it {why}" in note for note in study.notes)
    line = study.tables[0].line("a")
    assert line.status == "incomplete" and [trace.line for trace in line.traces] == [2, 4, 5, 6]


def test_a_run_that_was_measured_again_counts(path: Path) -> None:
    """The line that was left out is reported, and its row is complete."""
    run = lines_of(path)[2]
    _change(path, 3, lambda line: line["metrics"].update(accuracy=1.0))
    ledger.append(path, run)
    [study] = read_studies([path])
    assert study.tables[0].line("a").status == "measured"
    assert ledger.find(ledger.read_ledger(path).records, [run["key"]]) == {run["key"]: run}


@pytest.mark.parametrize(("number", "part"), [(1, "experiment"), (7, "images"), (7, "source")])
def test_other_lines_may_lack_something_too(path: Path, number: int, part: str) -> None:
    """A gallery that is none is left out; without an outline there is nothing to draw."""
    _change(path, number, lambda line: line.update({part: None}))
    done = _report(path)
    assert done.exit_code == (2 if number == 1 else 0), done.output
    assert f"has no usable '{part}'" in done.stderr


@pytest.mark.parametrize("part", ["rows", "settings", "seeds", "title"])
def test_an_outline_that_is_none_stops_no_other(path: Path, tmp_path: Path, part: str) -> None:
    """Another experiment in the same file is drawn, and alone it is refused in one sentence."""
    outline = lines_of(path)[0]
    other = {**outline, "key": "experiment:other"}
    other["experiment"] = {**outline["experiment"], part: []}
    ledger.append(path, other)
    assert [study.outline.name for study in read_studies([path])] == ["toys"]
    assert "Line 8 of" in _report(path).stderr
    ledger.append(tmp_path / "alone.jsonl", other)
    alone = _report(tmp_path / "alone.jsonl")
    assert alone.exit_code == 2 and alone.stderr.count("\n") == 1
    assert "(line 1 is no outline of an experiment)" in alone.stderr


def test_lines_that_are_not_ours_are_told_on_the_screen(path: Path) -> None:
    """Torn lines and those of another schema, each reason in one sentence."""
    path.write_text(path.read_text() + '{"truncated\n[]\n{"schema": 99, "key": "x"}\n')
    told = _report(path).stderr.splitlines()
    assert f"Note: Lines 8, 9 of {path} were left out: each is truncated or not ours." in told
    assert f"Note: Line 10 of {path} was left out: it is of the schema 99, which this crg " in (
        " ".join(told)
    )


def test_short_lines_are_not_drawn(path: Path, tmp_path: Path) -> None:
    """The sentence says what they are for, and names the page beside them if there is one."""
    kept = tmp_path / "kept"
    kept.mkdir()
    archive_file(path, kept / "toys.jsonl.gz")
    for given in (kept, kept / "toys.jsonl.gz"):
        refused = _report(given)
        assert refused.exit_code == 2 and refused.stderr.count("\n") == 1
        assert "short lines only, which are kept for crg rerun: open the page" in refused.stderr
    (kept / "report.html").touch()
    assert f"open {kept / 'report.html'}, or draw what a new crg bench" in _report(kept).stderr


def test_short_lines_are_no_runs_that_are_done(path: Path, tmp_path: Path) -> None:
    """A short line among whole ones is neither drawn nor taken for a run that need not be done."""
    run = lines_of(path)[2]
    _change(path, 3, lambda line: line.update(digest="0"))
    records = ledger.read_ledger(path).records
    assert len(records) == 7 and ledger.find(records, [run["key"]]) == {}
    [study] = read_studies([path])
    assert study.tables[0].line("a").status == "incomplete"
