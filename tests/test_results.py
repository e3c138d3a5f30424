"""Results files: whole lines, whole records, and keys that mean one run."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crg
from crg.report.experiment import read_experiments
from crg.results import ledger, provenance
from crg.results.ledger import left_out_notes
from crg.results.provenance import Origin, failed_run, make_run, run_key
from crg.results.schema import ArchivedRun, Variant, decode, encode
from crg.types import InputError, Result
from made_results import Book, share
from sentences import refused_in_one_sentence

RESULT = Result("tda", {"beta": 5.0}, 3, {"accuracy": 0.5}, {"accuracy": 0.4}, 10, 1.5)
ORIGIN = Origin("/data/my file.npz", "abc", "code", ("/own.py",))


def test_a_record_holds_what_is_needed_to_repeat_it() -> None:
    """Measures, configuration, seed, versions, data, machine, time and the command."""
    run = make_run(RESULT, ORIGIN, {"beta": 5.0, "flag": True})
    assert run.metrics == {"accuracy": 0.5} and run.options == {"beta": 5.0}
    assert (run.data.path, run.data.sha256) == ("/data/my file.npz", "abc")
    assert run.versions["crg"] == crg.__version__
    assert {"python", "numpy", "platform", "array_library"} <= set(run.versions)
    assert run.machine["processors"] == os.cpu_count() and run.machine["blas"]
    words = shlex.split(run.command)
    assert words[:4] == ["crg", "--plugin", "/own.py", "run"]
    assert words[4:] == [
        "/data/my file.npz", "--method", "tda", "-o", "beta=5.0", "-o", "flag=true", "--seed", "3",
    ]  # fmt: skip
    assert run.result == RESULT


def test_appended_records_are_read_back(tmp_path: Path) -> None:
    """One line per record, in the order of writing."""
    path = tmp_path / "r.jsonl"
    runs = [make_run(RESULT, Origin("p", str(i)), {}) for i in range(3)]
    for run in runs:
        ledger.append(path, run)
    assert ledger.read(path).entries == dict(enumerate(runs, start=1))


def test_a_file_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    """Before the first run there are no results, which is no error."""
    assert ledger.read(tmp_path / "none.jsonl") == ledger.Ledger()


def test_what_is_not_a_number_is_not_written(tmp_path: Path) -> None:
    """JSON has no word for NaN, so a run that measured one is refused."""
    run = make_run(dataclasses.replace(RESULT, metrics={"nll": [float("nan")]}), ORIGIN, {})
    with pytest.raises(ValueError, match="not a finite number"):
        ledger.append(tmp_path / "r.jsonl", run)
    assert not (tmp_path / "r.jsonl").exists()


def test_a_truncated_last_line_is_named_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    """A line that a crash cut off is left out by number, and writing goes on below it."""
    path = tmp_path / "r.jsonl"
    run = make_run(RESULT, ORIGIN, {})
    ledger.append(path, run)
    path.write_bytes(path.read_bytes() + b'{"schema":1,"key":"x","opt')
    ledger.append(path, run)
    read = ledger.read(path)
    assert (list(read.entries), [line.number for line in read.left_out]) == ([1, 3], [2])


@given(cut=st.integers(0, 400))
def test_whatever_is_cut_the_first_record_stays(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """A cut anywhere in the last line costs that line at most."""
    path = tmp_path_factory.mktemp("truncated") / "r.jsonl"
    run = make_run(RESULT, ORIGIN, {})
    line = encode(run) + b"\n"
    path.write_bytes(line + line[: min(cut, len(line) - 2)])
    read = ledger.read(path)
    assert read.entries == {1: run}
    assert [line.number for line in read.left_out] == ([2] if cut else [])


def test_lines_that_are_not_ours_are_named(tmp_path: Path) -> None:
    """JSON of another kind and bytes that are no text are left out by number."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'[1]\n{"schema": 99, "key": "x"}\n\xff\xfe\n\n')
    read = ledger.read(path)
    assert read.entries == {} and read.n_lines == 3
    assert left_out_notes("r.jsonl", read.left_out) == [
        "Lines 1, 3 of r.jsonl were left out: each is truncated or not ours.",
        "Line 2 of r.jsonl was left out: it is of the schema 99, which this crg does not read.",
    ]


def test_writers_side_by_side_do_not_mix_their_lines(tmp_path: Path) -> None:
    """Four processes append long lines at once, and every line is whole."""
    path = tmp_path / "r.jsonl"
    code = (
        "import sys; from crg.results import ledger; from crg.results.schema import Failure\n"
        "for i in range(50): ledger.append(sys.argv[1], "
        "Failure(key=sys.argv[2] + str(i), reason='x' * 20000))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "abcd"]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    read = ledger.read(path)
    assert read.left_out == ()
    assert {each.key for each in read.entries.values()} == {
        n + str(i) for n in "abcd" for i in range(50)
    }


def test_a_key_means_one_run() -> None:
    """Another file, code, method, option or seed is another run; the path does not matter."""
    key = run_key(ORIGIN, "tda", {"a": 1, "b": 2}, 0)
    moved = Origin("/elsewhere.npz", "abc", "code")
    assert run_key(moved, "tda", {"b": 2, "a": 1}, 0) == key
    others = {
        run_key(Origin("p", "other", "code"), "tda", {"a": 1, "b": 2}, 0),
        run_key(Origin("p", "abc", "edited"), "tda", {"a": 1, "b": 2}, 0),
        run_key(ORIGIN, "dpe", {"a": 1, "b": 2}, 0),
        run_key(ORIGIN, "tda", {"a": 1, "b": 3}, 0),
        run_key(ORIGIN, "tda", {"a": 1, "b": 2}, 1),
    }
    assert len(others | {key}) == 6


def test_another_version_of_crg_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of an older crg are not taken for results of this one."""
    key = run_key(ORIGIN, "tda", {}, 0)
    monkeypatch.setattr(crg, "__version__", "0.0.0")
    assert run_key(ORIGIN, "tda", {}, 0) != key


def test_the_latest_record_of_a_run_counts(tmp_path: Path) -> None:
    """A run that was repeated counts as it came out last; failures and archived runs are none."""
    path = tmp_path / "r.jsonl"
    first = make_run(RESULT, ORIGIN, {})
    last = make_run(dataclasses.replace(RESULT, seconds=9.0), ORIGIN, {})
    facts = {**json.loads(encode(first)), "key": "short", "digest": "0"}
    for line in (first, last, failed_run("failed", "bad luck"), decode(json.dumps(facts).encode())):
        ledger.append(path, line)
    assert ledger.read(path).runs == {last.key: last}
    assert isinstance(ledger.read(path).entries[4], ArchivedRun)


def test_the_machine_is_no_part_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run on another machine is the same run."""
    here = make_run(RESULT, ORIGIN, {})
    monkeypatch.setattr(provenance, "describe_machine", lambda: {"processor": "another"})
    there = make_run(RESULT, ORIGIN, {})
    assert here.key == there.key and here.machine != there.machine


def test_keys_are_read_from_where_the_last_reading_ended(tmp_path: Path) -> None:
    """Only complete lines of runs count, and a line that is not finished is read the next time."""
    path = tmp_path / "r.jsonl"
    assert ledger.run_keys_from(path, 0) == (set(), 0)
    run = make_run(RESULT, ORIGIN, {})
    ledger.append(path, failed_run("failed", "bad luck"))
    ledger.append(path, run)
    keys, end = ledger.run_keys_from(path, 0)
    assert keys == {run.key} and end == path.stat().st_size
    path.write_bytes(path.read_bytes() + encode(msgspec.structs.replace(run, key="next")))
    assert ledger.run_keys_from(path, end) == (set(), end)
    path.write_bytes(path.read_bytes() + b"\n")
    assert ledger.run_keys_from(path, end) == ({"next"}, path.stat().st_size)


def test_whoever_comes_second_writes_nothing(tmp_path: Path) -> None:
    """A run that another process has written meanwhile is not written again."""
    path = tmp_path / "r.jsonl"
    run = make_run(RESULT, ORIGIN, {})
    mine, other = ledger.Writer(path), ledger.Writer(path)
    assert mine.add(failed_run(run.key, "bad luck")) and other.add(run)
    assert not mine.add(run) and len(ledger.read(path).entries) == 2


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """The sentence names the two ways out, or the one that a command has."""
    for path in (tmp_path, tmp_path / "none" / "r.jsonl"):
        with pytest.raises(InputError, match=r"--results or none with --no-results\.$"):
            ledger.check_writable(path, or_none=True)
        with pytest.raises(InputError, match=r"choose another file with --results\.$"):
            ledger.check_writable(path)
    with pytest.raises(InputError, match=r"choose another file with --results\.$"):
        ledger.make_folder("/dev/null/none/r.jsonl")


def test_a_file_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    """A feature file named as results file by mistake is refused and keeps its bytes."""
    other = tmp_path / "features.npz"
    other.write_bytes(b"PK something else")
    with refused_in_one_sentence("no results file"):
        ledger.check_writable(other)
    assert other.read_bytes() == b"PK something else"


Line = dict[str, Any]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A results file with an outline, five runs of a method, and a gallery."""
    book = Book([Variant("a", "tda")])
    book.add("a", share(90), scored=share(150))
    image = {"id": "1", "png": "", "truth": "x", "answers": {}}
    book.records.append({"schema": 1, "kind": "gallery", "key": "g", "experiment": "toys",
                         "source": "toy", "images": [image]})  # fmt: skip
    return book.write(tmp_path / "toys.jsonl")


def _change(path: Path, number: int, change: Callable[[Line], Any]) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines[number - 1])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_what_is_measured_agrees_with_itself(made: Path) -> None:
    """Nothing is said against lines as they were written, even where some images are not scored."""
    assert ledger.read(made).left_out == ()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda run: run.pop("metrics"), "is not valid (Object missing required field `metrics`)"),
        (lambda run: run.update(zero_shot=[]), "is not valid (Expected `object`, got `array` - at"),
        (lambda run: run.update(data={}), "is not valid (Object missing required field `path`"),
        (lambda run: run.update(machine=3), "is not valid (Expected `object`, got `int`"),
        (lambda run: run.update(kind=["x"]), "is truncated or not ours"),
        (lambda run: run["metrics"].update(accuracy=0.9),
         "gives an accuracy of 90.00% where 90 of 150 answers were right"),
        (lambda run: run["zero_shot"].update(accuracy=0.3), "gives an accuracy of 30.00%"),
        (lambda run: run["metrics"].update(accuracy="0.6"), "is not valid (Expected `float"),
        (lambda run: run["metrics"].update(nll=float("nan")), "is truncated or not ours"),
        (lambda run: run["metrics"].update(correct="xyz"), "has answers that are not bits"),
        (lambda run: run["metrics"].update(n_scored=151), "counts 151 scored images"),
        (lambda run: run["metrics"].update(right_in_order="ff"), "has answers to fewer than"),
        (lambda run: run["metrics"].update(reliability=[[1]]), "is not valid (Expected `array`"),
        (lambda run: run["metrics"].update(mislabelled={"x": 1}), "is not valid (Object missing"),
    ],
)  # fmt: skip
def test_a_run_that_cannot_be_believed_is_left_out(
    made: Path, change: Callable[[Line], Any], why: str
) -> None:
    """It is reported with its line and reason, and the other runs are shown without it."""
    _change(made, 3, change)
    said: list[str] = []
    [experiment] = read_experiments([made], on_note=said.append)
    assert f"Line 3 of {made} was left out: it {why}" in said[0] and said[0] in experiment.notes
    found = experiment.comparisons[0].of("a")
    assert found.status == "incomplete" and found.lines == (2, 4, 5, 6)


@pytest.mark.parametrize("part", ["rows", "settings", "seeds", "title", "cells"])
def test_an_outline_that_is_none_stops_no_other(made: Path, tmp_path: Path, part: str) -> None:
    """Another experiment in the same file is shown, and alone it is refused in one sentence."""
    other = json.loads(made.read_text().splitlines()[0])
    other["key"] = "experiment:other"
    other["experiment"][part] = [{"source": 7, "setting": 0, "row": 0, "seed": 0}] * (
        part == "cells"
    )
    alone = tmp_path / "alone.jsonl"
    alone.write_text(json.dumps(other) + "\n")
    made.write_text(made.read_text() + alone.read_text())
    assert [each.outline.name for each in read_experiments([made])] == ["toys"]
    with refused_in_one_sentence("holds no experiment (line 1 is not valid"):
        read_experiments([alone])


def test_archived_runs_are_not_drawn(made: Path, tmp_path: Path) -> None:
    """The sentence says what they are for and what can be done."""
    run = {**json.loads(made.read_text().splitlines()[1]), "digest": "0" * 32}
    archive = tmp_path / "kept.jsonl.gz"
    archive.write_bytes(gzip.compress(json.dumps(run).encode() + b"\n"))
    with refused_in_one_sentence("archived runs only, which are kept for crg rerun"):
        read_experiments([archive])


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    """A compressed file that was cut off is named, with the remedy."""
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(b"{}" * 99)[:-9])
    with refused_in_one_sentence("is damaged: restore it from a copy"):
        ledger.read(path)


def test_the_archived_runs_of_the_documents_can_be_read() -> None:
    """Every line that is kept is an archived run or the place of another line."""
    folder = Path(__file__).parents[1] / "docs" / "results"
    files = sorted(folder.glob("*.jsonl.gz"))
    assert len(files) >= 10
    for file in files:
        read = ledger.read(file)
        assert read.left_out == () and not read.runs
        assert sum(isinstance(each, ArchivedRun) for each in read.entries.values()) > 100


@pytest.fixture(autouse=True)
def forgetful() -> None:
    """Nothing is remembered from test to test."""
    provenance.processor_model.cache_clear()
    provenance.blas.cache_clear()


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor\t: 0\nmodel name\t: AMD  EPYC, 7B13\nmodel name\t: other\n", "AMD EPYC 7B13"),
        ("Hardware\t: Board\nModel\t\t: Raspberry Pi 4\n", "Raspberry Pi 4"),
        ("", "from the platform"),
    ],
)
def test_the_processor_has_a_name(
    text: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says it on Linux, by several names, and the platform elsewhere."""
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(provenance, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.processor", lambda: "from the platform")
    assert provenance.processor_model() == model


def test_a_processor_without_a_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file and a silent platform are no error."""
    monkeypatch.setattr(provenance, "_CPUINFO", Path("/nowhere/cpuinfo"))
    monkeypatch.setattr("platform.processor", lambda: "")
    assert provenance.processor_model() is None


def test_the_blas_of_numpy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are named too, and that of another library is none of ours."""
    torch = {"user_api": "blas", "internal_api": "mkl", "filepath": "/torch/lib/libmkl.so"}
    own = {"user_api": "blas", "internal_api": "openblas", "version": "0.3",
           "architecture": "Haswell", "filepath": "/numpy.libs/libopenblas.so"}  # fmt: skip
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: [torch, own])
    assert provenance.blas() == "openblas 0.3 Haswell"
    provenance.blas.cache_clear()
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: [])
    built = provenance.blas()
    assert built and "Haswell" not in built
