"""Running again from a line of a results file: the same bits, or told what differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from crg.bench.rerun import archive_file, archived, changed_since, is_number, repeat
from crg.cli import main
from crg.engine import run_all
from crg.results import ledger, provenance
from crg.results.schema import ArchivedRun, Data, Run, encode
from made_experiments import FILES, lines_of, save_experiment
from made_files import raw_values, save_plugin, save_raw, save_stream

EXPERIMENT = f"""orders = 1
[[row]]
method = "crg"
options = {{ queue_size = 3 }}
[[row]]
method = "gda"
[[setting]]
[[setting]]
order = "by_class"
mislabelled = 0.3
[[setting]]
order = "domains"
{FILES}"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished experiment on two files in the current folder."""
    monkeypatch.chdir(tmp_path)
    values = raw_values(n=30, width=64)  # of narrower ones compiled sums depend on the memory
    few = {"few_features": values["image_features"][:6], "few_labels": np.arange(6) % 3}
    save_raw(tmp_path / "one.npz", **values, **few)
    save_raw(tmp_path / "two.npz", **raw_values(width=64), **few)
    file = save_experiment(tmp_path, EXPERIMENT)
    words = ["bench", str(file), "--data", "one.npz", "--data", "two.npz", "--workers", "1"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return tmp_path / "results" / "small.jsonl"


def _rerun(*words: str) -> Result:
    return CliRunner().invoke(main, ["rerun", *words])


def test_every_run_of_an_experiment_is_the_same_again(made: Path) -> None:
    """Options, scenario, further files and labelled images are all in the line."""
    runs = [number for number, line in enumerate(lines_of(made), start=1) if "metrics" in line]
    assert len(runs) == 15
    for number in runs:
        done = _rerun(f"{made}:{number}")
        assert done.exit_code == 0, done.output
    assert "Everything was measured again as it was" in done.output
    [counted] = [line for line in done.output.splitlines() if line.startswith("The same to")]
    assert len(counted) < 160 and "values, among them accuracy, predicted, ece" in counted


def test_a_run_is_found_by_number_and_by_the_start_of_its_key(made: Path) -> None:
    """Keys are looked for wherever results usually are."""
    line = lines_of(made)[3]
    assert _rerun("4", "--results", str(made)).exit_code == 0
    found = _rerun(line["key"][:12], "--json")
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert told["key"] == line["key"] and told["line"] == 4 and told["is_same"]
    assert "accuracy" in told["same"] and "ms_per_step" not in told["same"]


def test_a_start_of_a_key_may_be_digits_only() -> None:
    """A number of ten digits or more is no line but the start of a key, wherever that is."""
    assert is_number("4") and not is_number("8263515809") and not is_number("82635158097f")


def test_what_is_no_run_is_refused(made: Path, tmp_path: Path) -> None:
    """Lines of other kinds, lines and files that are not there, and keys that fit none."""
    count = len(lines_of(made))
    for words, told in (
        ([f"{made}:1"], "is of the kind 'experiment': name the line of a run, such as 2."),
        ([f"{made}:99"], f"has no line 99: it has {count} lines, which count from 1."),
        ([f"{made}:-3"], f"has no line -3: it has {count} lines, which count from 1."),
        ([f"{made}:0"], "has no line 0"),
        ([f"{made}:x"], f"Which line of {made}: write {made}:NUMBER, counted from 1."),
        ([str(made)], f"Which line of {made}: write {made}:NUMBER, counted from 1."),
        (["nothing.jsonl:1"], "There is no file nothing.jsonl"),
        (["zzz"], "No run has a key that begins with 'zzz'"),
        (["", "--results", str(made)], "give more of it"),
        (["3"], "There is no file crg-results.jsonl"),
    ):
        refused = _rerun(*words)
        assert refused.exit_code == 2 and told in refused.output, refused.output


def test_other_numbers_are_reported(made: Path, tmp_path: Path) -> None:
    """A line that someone has touched is found out, and the exit code is 1."""
    line = lines_of(made)[2]
    line["metrics"]["accuracy"] += 1e-16 + 0.01
    line["zero_shot"]["nll"] = 1.0
    other = tmp_path / "touched.jsonl"
    other.write_text(json.dumps(line) + "\n")
    done = _rerun(f"{other}:1")
    assert done.exit_code == 1
    assert "Not the same: accuracy was" in done.output and "(-0.01)." in done.output
    assert "Equal answers: 30 of 30." in done.output
    assert "Not the same: zero_shot: nll was 1.0" in done.output


def test_changed_and_lost_data_are_refused(made: Path, tmp_path: Path) -> None:
    """A file that is not what it was, first or further one, and one that is gone."""
    lines = lines_of(made)
    sequence = 1 + next(k for k, line in enumerate(lines) if line.get("then"))
    save_stream(tmp_path / "two.npz")
    refused = _rerun(f"{made}:{sequence}")
    assert refused.exit_code == 2 and "has changed since the run" in refused.output
    (tmp_path / "one.npz").unlink()
    refused = _rerun(f"{made}:{sequence}")
    assert refused.exit_code == 2 and "one.npz is not there: name the folder" in refused.output


def test_other_surroundings_are_noted(made: Path, tmp_path: Path) -> None:
    """Another version, machine or code of the method is reported and stops nothing."""
    line = lines_of(made)[2]
    line["versions"]["numpy"], line["machine"]["host"], line["code"] = "0.1", "elsewhere", "other"
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(line) + "\n")
    done = _rerun(f"{other}:1")
    assert done.exit_code == 0
    code = f"the code of {line['method']} was another one"
    for told in ("numpy was 0.1", "host was elsewhere", code):
        assert told in done.output


def test_older_lines_know_less_of_the_machine(made: Path, tmp_path: Path) -> None:
    """What a line did not write down is no difference; what it did is one."""
    line = lines_of(made)[2]
    del line["machine"]["blas"]
    line["machine"]["processor"] = "another"
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(line) + "\n")
    done = _rerun(f"{other}:1")
    assert done.exit_code == 0 and "blas" not in done.output
    assert "processor was another and is " in done.output


def test_lines_that_lack_something_are_refused(made: Path, tmp_path: Path) -> None:
    """What is needed to repeat a run is named, and a key does not find such a line."""
    line = lines_of(made)[2]
    other = tmp_path / "other.jsonl"
    for part in ("metrics", "zero_shot", "data", "given"):
        rest = {name: value for name, value in line.items() if name != part}
        other.write_text(json.dumps(rest) + "\n\n" + json.dumps(line) + "\n")
        refused = _rerun(f"{other}:1")
        assert refused.exit_code == 2 and f"`{part}`" in refused.output, refused.output
    assert "Line 2 of" in _rerun(f"{other}:2").output
    assert json.loads(_rerun(line["key"], "--results", str(other), "--json").stdout)["line"] == 3


def test_a_line_loads_no_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A results file may come from a stranger: whoever repeats a run names its plug-in."""
    monkeypatch.chdir(tmp_path)
    words = ["--plugin", str(save_plugin(tmp_path)), "run", str(save_stream(tmp_path / "a.npz"))]
    ran = CliRunner().invoke(main, [*words, "--method", "constant", "-o", "answer=2"])
    assert ran.exit_code == 0, ran.output
    refused = _rerun("1")
    assert refused.exit_code == 2 and "--plugin if you trust it" in refused.output
    done = _rerun("1", "--plugin", str(save_plugin(tmp_path)))
    assert done.exit_code == 0 and "constant, seed 0" in done.output


def test_short_lines_are_repeated_to_the_last_bit(made: Path, tmp_path: Path) -> None:
    """A short line has no path but a name, and finds its data by it; the digest says the rest."""
    short = tmp_path / "short.jsonl.gz"
    archive_file(made, short)
    assert short.stat().st_size < made.stat().st_size / 5
    far = tmp_path / "far"
    far.mkdir()
    for name in ("one.npz", "two.npz"):
        (tmp_path / name).rename(far / name)
    runs = [number for number, line in enumerate(lines_of(made), start=1) if "metrics" in line]
    for number in runs[::4]:
        done = _rerun(f"{short}:{number}", "--data", str(far))
        assert done.exit_code == 0, done.output
        assert "4 of 4 values, among them digest, accuracy, ece, nll." in done.output
    refused = _rerun(f"{short}:{runs[0]}")
    assert refused.exit_code == 2 and "--data" in refused.output


def test_a_doctored_digest_is_noticed(made: Path) -> None:
    """Whatever was measured otherwise than the digest says is reported."""
    entries = [archived(entry) for entry in ledger.read(made).entries.values()]
    assert isinstance(entries[1], ArchivedRun)
    entries[1] = replace(entries[1], digest="0")
    made.write_bytes(b"\n".join(map(encode, entries)) + b"\n")
    done = _rerun(f"{made}:2")
    assert done.exit_code == 1 and "Not the same: digest" in done.output


def test_a_damaged_file_of_short_lines_is_refused(made: Path, tmp_path: Path) -> None:
    """A cut file gives one sentence, and a report of short lines too."""
    short = tmp_path / "short.jsonl.gz"
    archive_file(made, short)
    report = CliRunner().invoke(main, ["report", str(short)])
    assert report.exit_code == 2, report.output
    short.write_bytes(short.read_bytes()[:-20])
    refused = _rerun(f"{short}:2")
    assert refused.exit_code == 2 and "is damaged: restore it" in refused.output


def test_both_ways_of_computing_are_tried(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker process, as in crg bench, comes first, and this process where that differs."""
    ways: list[bool] = []

    def noted(specs: Any, workers: int, plugins: Any, isolated: bool) -> Any:
        ways.append(isolated)
        return run_all(specs, workers, plugins)  # quicker, and here the bits are the same

    monkeypatch.setattr("crg.bench.rerun.run_all", noted)
    run = ledger.read(made).entries[2]
    assert isinstance(run, Run) and repeat(run).is_same and ways == [True]
    other = replace(run, metrics={**run.metrics, "nll": 1.0})
    assert repeat(other).other == ("nll",) and ways == [True, True, False]


def test_a_library_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the run had and this machine lacks is reported in words; what it did not note is not."""
    now = {"versions": {"numba": None, "numpy": "2"}, "machine": {"blas": "any"}}
    monkeypatch.setattr(provenance, "surroundings", lambda: now)
    versions: dict[str, str | None] = {"numba": "0.68.1", "numpy": "2"}
    run = ArchivedRun(
        key="", method="crg", seed=0, given={}, data=Data("a.npz"), versions=versions,
        metrics={}, digest="",
    )  # fmt: skip
    told = [note for note in changed_since(run) if "code" not in note]
    assert told == ["numba was 0.68.1 and is not installed."]
