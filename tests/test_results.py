"""Results files: lines are never mixed or half read, and a key means one run."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import crg
from crg.report.experiment import read_experiments
from crg.results import ledger, provenance
from crg.results.provenance import failed_run, make_run, run_key
from crg.results.schema import Data, Result, RunSpec, Variant, decode, encode
from crg.streams import Scenario
from made_results import Book, share
from sentences import check_refused

SPEC = RunSpec(Data("/data/my file.npz", "abc"), "tda", {"beta": 5.0}, 3, code="code")
BARE = Result(SPEC.data, "tda", {}, 3, metrics={"accuracy": 0.5}, zero_shot={"accuracy": 0.4},
              options={"beta": 5.0, "b": 1}, n_samples=10, seconds=1.5)  # fmt: skip
RUN = make_run(BARE, SPEC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a results file that is not there yet."""
    return tmp_path / "r.jsonl"


def write(path: Path, *lines: Any) -> None:
    """Append entries to a results file."""
    for line in lines:
        ledger.append(path, line)


def test_a_result_holds_everything_needed_to_repeat_it() -> None:
    """Metrics, configuration, seed, versions, data, machine and time."""
    assert RUN.metrics == {"accuracy": 0.5} and RUN.options == BARE.options
    assert (RUN.data, RUN.given, RUN.seed, RUN.code) == (SPEC.data, {"beta": 5.0}, 3, "code")
    assert RUN.versions["crg"] == crg.__version__ and RUN.time
    assert {"python", "numpy", "platform", "numba"} <= set(RUN.versions)
    assert RUN.machine["processors"] == os.cpu_count() and RUN.machine["blas"]


def test_entries_are_read_back_and_parsed_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line per entry, in the order of writing; a refresh parses only what was added."""
    known = ledger.read(path)
    assert known.entries == {} == known.left_out  # a missing file is no error
    with pytest.raises(ValueError, match="not JSON compliant"):  # JSON cannot hold NaN
        write(path, replace(RUN, metrics={"nll": [float("nan")]}))
    runs = [replace(RUN, key=str(n)) for n in range(3)]
    write(path, *runs[:2])
    assert known.refresh().entries == dict(enumerate(runs[:2], start=1))
    write(path, runs[2])
    monkeypatch.setattr(ledger, "decode", lambda line: decode(line) if b'"2"' in line else 1 / 0)
    assert known.refresh().entries == dict(enumerate(runs, start=1))


@given(cut=st.integers(0, 400))
def test_a_cut_costs_the_last_line_at_most(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """Wherever the last line is cut, the others stay, and it is read once the rest is there."""
    path = tmp_path_factory.mktemp("truncated") / "r.jsonl"
    line = encode(RUN) + b"\n"
    cut = min(cut, len(line) - 2)
    path.write_bytes(line + line[:cut])
    read = ledger.read(path)
    assert read.entries == {1: RUN} and list(read.left_out) == ([2] if cut else [])
    write(path, RUN)  # below what a crash left
    assert list(ledger.read(path).entries) == list(read.refresh().entries) == [1, 3 if cut else 2]
    path.write_bytes(line + line)
    assert read.refresh().entries == {1: RUN, 2: RUN} and read.left_out == {}


def test_lines_that_are_not_ours_are_named(path: Path) -> None:
    """JSON of another kind and bytes that are not text are left out by number."""
    path.write_bytes(b'[1]\n{"schema": 99, "key": "x"}\n\xff\xfe\n\n')
    read = ledger.read(path)
    assert read.entries == {}
    assert read.notes() == [
        f"Lines 1, 3 of {path} were left out: each is truncated or not ours.",
        f"Line 2 of {path} was left out: it is of the schema 99, which this crg does not read.",
    ]


def test_concurrent_writers_do_not_mix_their_lines(path: Path) -> None:
    """Four processes append long lines at once, and every line is complete."""
    code = (
        "import sys; from crg.results import ledger; from crg.results.schema import Failure\n"
        "for i in range(50): ledger.append(sys.argv[1], "
        "Failure(key=sys.argv[2] + str(i), reason='x' * 20000))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "abcd"]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    read = ledger.read(path)
    assert read.left_out == {} and set(read.latest) == {n + str(i) for n in "abcd"
                                                        for i in range(50)}  # fmt: skip


def test_a_key_means_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other data, code, method, options, scenario, seed or version is another run, a path not."""
    options = {"a": 1, "b": 2}
    key = run_key(SPEC, options)
    moved = replace(SPEC, data=Data("/elsewhere.npz", "abc"))
    assert run_key(moved, {"b": 2, "a": 1}) == key
    scenarios: list[Any] = [Scenario("by_class"), Scenario(mislabelled=0.1), Scenario(passes=2)]
    changes: list[Any] = [{"scenario": each} for each in scenarios]
    changes += [{"data": Data("p", "x")}, {"code": "x"}, {"method": "dpe"}, {"seed": 1}]
    others = {run_key(replace(SPEC, **each), options) for each in changes}
    others |= {run_key(SPEC, {"a": 1, "b": 3})}
    monkeypatch.setattr(crg, "__version__", "0.0.0")
    assert len(others | {key, run_key(SPEC, options)}) == 10


def test_the_second_writer_of_a_run_writes_nothing(path: Path) -> None:
    """A run that another process has written is not written again; archived ones are no runs."""
    ledger.append(path, replace(RUN, digest="0"))
    mine, other = ledger.read(path), ledger.read(path)
    assert mine.add(failed_run(RUN.key, "bad luck")) and other.add(RUN)
    assert not mine.add(RUN) and len(ledger.read(path).entries) == 3
    assert ledger.read(path).runs == {RUN.key: RUN}
    path.write_bytes(b"")  # the file was replaced
    assert mine.add(RUN) and ledger.read(path).entries == {1: RUN}


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """The sentence names the way out."""
    nowhere = ledger.read(tmp_path / "none" / "r.jsonl")
    check_refused("choose another file with --results.", nowhere.check_writable)
    check_refused("cannot be read", ledger.read, tmp_path)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A results file with an outline, five runs of a method, and a gallery."""
    book = Book([Variant("a", "tda")])
    book.add("a", share(90), scored=share(150))
    image = {"id": "1", "png": "", "truth": "x", "answers": {}}
    book.records.append({"schema": 1, "kind": "gallery", "key": "g", "experiment": "toys",
                         "source": "toy", "images": [image]})  # fmt: skip
    made = book.write(tmp_path / "toys.jsonl")
    assert ledger.read(made).left_out == {}
    return made


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda run: run.pop("metrics"), "is not valid (Object missing required field `metrics`)"),
        (lambda run: run.pop("options"), "is not valid (Object missing required field `options`)"),
        (lambda run: run.update(zero_shot=[]), "is not valid (Expected `object`, got `array` - at"),
        (lambda run: run.update(data={}), "is not valid (Object missing required field `path`"),
        (lambda run: run.update(machine=3), "is not valid (Expected `object`, got `int`"),
        (lambda run: run.update(scenario={"order": "x"}), "is not valid (There is no order 'x'"),
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
        (lambda run: run["metrics"].update(mislabelled={"x": "y"}), "is not valid (Expected `int`"),
    ],
)  # fmt: skip
def test_a_run_that_contradicts_itself_is_left_out(
    made: Path, change: Callable[[Any], Any], why: str
) -> None:
    """It is reported with its line and reason, and the other runs are shown without it."""
    lines = [json.loads(line) for line in made.read_text().splitlines()]
    change(lines[2])
    made.write_text("".join(json.dumps(line) + "\n" for line in lines))
    said: list[str] = []
    [experiment] = read_experiments([made], on_note=said.append)
    assert f"Line 3 of {made} was left out: it {why}" in said[0] and said[0] in experiment.notes
    found = experiment.comparisons[0].of("a")
    assert found.status == "incomplete" and found.lines == (2, 4, 5, 6)


@pytest.mark.parametrize("part", ["rows", "settings", "seeds", "title", "cells"])
def test_an_invalid_outline_stops_no_other(made: Path, tmp_path: Path, part: str) -> None:
    """Another experiment in the same file is shown, and alone it is refused in one sentence."""
    other = json.loads(made.read_text().splitlines()[0])
    other["name"] = "other"
    other[part] = [{"source": 7, "setting": 0, "row": 0, "seed": 0}] * (part == "cells")
    alone = tmp_path / "alone.jsonl"
    alone.write_text(json.dumps(other) + "\n")
    made.write_text(made.read_text() + alone.read_text())
    assert [each.outline.name for each in read_experiments([made])] == ["toys"]
    check_refused("holds no experiment (line 1 is not valid", read_experiments, [alone])


def test_archived_runs_are_not_drawn(made: Path, tmp_path: Path) -> None:
    """The sentence says what they are for and what can be done."""
    run = {**json.loads(made.read_text().splitlines()[1]), "digest": "0" * 32}
    archive = tmp_path / "kept.jsonl.gz"
    archive.write_bytes(gzip.compress(json.dumps(run).encode() + b"\n"))
    said = "archived runs only, which are kept for crg bench --rerun"
    check_refused(said, read_experiments, [archive])
    archive.write_bytes(archive.read_bytes()[:-9])
    check_refused("is damaged: restore it from a copy", ledger.read, archive)


def test_the_archived_runs_of_the_documents_can_be_read() -> None:
    """Every line is an archived run or the place of another line."""
    read = ledger.read(Path(__file__).parents[1] / "docs" / "results" / "results.jsonl.gz")
    assert read.left_out == {} and not read.runs
    assert sum(isinstance(each, Result) for each in read.entries.values()) > 10_000


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
    """On Linux the kernel names it under several keys, elsewhere the platform; or nobody."""
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(provenance, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.processor", lambda: "from the platform")
    assert provenance.processor_model.__wrapped__() == model
    (tmp_path / "cpuinfo").unlink()
    monkeypatch.setattr("platform.processor", lambda: "")
    assert provenance.processor_model.__wrapped__() is None


def test_the_blas_of_numpy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are named too, and that of another library is ignored."""
    torch = {"user_api": "blas", "internal_api": "mkl", "filepath": "/torch/lib/libmkl.so"}
    own = {"user_api": "blas", "internal_api": "openblas", "version": "0.3",
           "architecture": "Haswell", "filepath": "/numpy.libs/libopenblas.so"}  # fmt: skip
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: [torch, own])
    assert provenance.blas.__wrapped__() == "openblas 0.3 Haswell"
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: [])
    built = provenance.blas.__wrapped__()
    assert built and "Haswell" not in built
