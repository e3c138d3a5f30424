"""Results files: whole lines, whole records, and keys that mean one run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crg
from crg.results import ledger as results
from crg.results.ledger import Origin
from crg.results.soundness import sentences_on
from crg.types import InputError, Result
from sentences import refused_in_one_sentence

RESULT = Result("tda", {"beta": 5.0}, 3, {"accuracy": 0.5}, {"accuracy": 0.4}, 10, 1.5)
ORIGIN = Origin("/data/my file.npz", "abc", "code", ("/own.py",))


def test_a_record_holds_what_is_needed_to_repeat_it() -> None:
    """Measures, configuration, seed, versions, data, machine, time and the command."""
    record = results.make_record(RESULT, ORIGIN, {"beta": 5.0, "flag": True})
    assert record["metrics"] == {"accuracy": 0.5}
    assert record["options"] == {"beta": 5.0}
    assert record["data"] == {"path": "/data/my file.npz", "sha256": "abc"}
    assert record["versions"]["crg"] == crg.__version__
    assert {"python", "numpy", "platform", "array_library"} <= set(record["versions"])
    assert record["machine"]["processors"] == os.cpu_count()
    assert record["machine"]["blas"]
    words = shlex.split(record["command"])
    assert words[:4] == ["crg", "--plugin", "/own.py", "run"]
    assert words[4:] == [
        "/data/my file.npz", "--method", "tda", "-o", "beta=5.0", "-o", "flag=true", "--seed", "3",
    ]  # fmt: skip
    assert results.to_result(record) == RESULT


def test_appended_records_are_read_back(tmp_path: Path) -> None:
    """One line per record, in the order of writing."""
    path = tmp_path / "r.jsonl"
    records = [results.make_record(RESULT, Origin("p", str(i)), {}) for i in range(3)]
    for record in records:
        results.append(path, record)
    assert len(path.read_text().splitlines()) == 3
    assert results.read_ledger(path) == results.Ledger(tuple(records))


def test_a_file_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    """Before the first run there are no results, which is no error."""
    assert results.read_ledger(tmp_path / "none.jsonl").records == ()


def test_a_truncated_last_line_is_named_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    """A line that a crash cut off is left out by number, and writing goes on below it."""
    path = tmp_path / "r.jsonl"
    record = results.make_record(RESULT, ORIGIN, {})
    results.append(path, record)
    path.write_bytes(path.read_bytes() + b'{"schema":1,"key":"x","opt')
    assert results.read_ledger(path).truncated == (2,)
    results.append(path, record)
    ledger = results.read_ledger(path)
    assert (len(ledger.records), ledger.truncated) == (2, (2,))


@given(cut=st.integers(0, 400))
def test_whatever_is_cut_the_first_record_stays(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """A cut anywhere in the last line costs that line at most."""
    path = tmp_path_factory.mktemp("truncated") / "r.jsonl"
    record = results.make_record(RESULT, ORIGIN, {})
    line = json.dumps(record).encode() + b"\n"
    path.write_bytes(line + line[: min(cut, len(line) - 2)])
    ledger = results.read_ledger(path)
    assert ledger.records == (record,)
    assert ledger.truncated == ((2,) if cut else ())


def test_lines_that_are_not_ours_are_named(tmp_path: Path) -> None:
    """JSON of another kind and bytes that are no text are left out by number."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'[1]\n{"schema": 99}\n\xff\xfe\n\n')
    ledger = results.read_ledger(path)
    assert ledger == results.Ledger((), (1, 2, 3)) and ledger.n_lines == 3
    assert sentences_on("r.jsonl", ledger.left_out) == [
        "Lines 1, 3 of r.jsonl were left out: each is truncated or not ours.",
        "Line 2 of r.jsonl was left out: it is of the schema 99, which this crg does not read.",
    ]


def test_writers_side_by_side_do_not_mix_their_lines(tmp_path: Path) -> None:
    """Four processes append long lines at once, and every line is whole."""
    path = tmp_path / "r.jsonl"
    code = (
        "import sys; from crg.results import ledger\n"
        "for i in range(50): ledger.append(sys.argv[1], "
        "{'schema': 1, 'kind': 'pad', 'key': sys.argv[2] + str(i), 'pad': 'x' * 20000})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "abcd"]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    ledger = results.read_ledger(path)
    assert ledger.truncated == ()
    assert {record["key"] for record in ledger.records} == {
        n + str(i) for n in "abcd" for i in range(50)
    }


def test_a_key_means_one_run() -> None:
    """Another file, code, method, option or seed is another run; the path does not matter."""
    key = results.run_key(ORIGIN, "tda", {"a": 1, "b": 2}, 0)
    moved = Origin("/elsewhere.npz", "abc", "code")
    assert results.run_key(moved, "tda", {"b": 2, "a": 1}, 0) == key
    others = {
        results.run_key(Origin("p", "other", "code"), "tda", {"a": 1, "b": 2}, 0),
        results.run_key(Origin("p", "abc", "edited"), "tda", {"a": 1, "b": 2}, 0),
        results.run_key(ORIGIN, "dpe", {"a": 1, "b": 2}, 0),
        results.run_key(ORIGIN, "tda", {"a": 1, "b": 3}, 0),
        results.run_key(ORIGIN, "tda", {"a": 1, "b": 2}, 1),
    }
    assert len(others | {key}) == 6


def test_another_version_of_crg_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of an older crg are not taken for results of this one."""
    key = results.run_key(ORIGIN, "tda", {}, 0)
    monkeypatch.setattr(crg, "__version__", "0.0.0")
    assert results.run_key(ORIGIN, "tda", {}, 0) != key


def test_find_gives_the_latest_record_of_a_key() -> None:
    """A run that was repeated counts as it came out last."""
    records = [{"key": "a", "n": 1}, {"key": "b", "n": 2}, {"key": "a", "n": 3}]
    assert results.find(records, ["a", "c"]) == {"a": {"key": "a", "n": 3}}


def test_the_machine_is_no_part_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run on another machine is the same run."""
    here = results.make_record(RESULT, ORIGIN, {})
    monkeypatch.setattr(results, "describe_machine", lambda: {"processor": "another"})
    there = results.make_record(RESULT, ORIGIN, {})
    assert here["key"] == there["key"] and here["machine"] != there["machine"]


def test_keys_are_read_from_where_the_last_reading_ended(tmp_path: Path) -> None:
    """Only whole lines of runs count, and a line that is not finished is read the next time."""
    path = tmp_path / "r.jsonl"
    assert results.run_keys_from(path, 0) == (set(), 0)
    record = results.make_record(RESULT, ORIGIN, {})
    results.append(path, results.make_failure("failed", "bad luck"))
    results.append(path, record)
    keys, end = results.run_keys_from(path, 0)
    assert keys == {record["key"]} and end == path.stat().st_size
    path.write_bytes(path.read_bytes() + json.dumps({**record, "key": "next"}).encode())
    assert results.run_keys_from(path, end) == (set(), end)
    path.write_bytes(path.read_bytes() + b"\n")
    assert results.run_keys_from(path, end) == ({"next"}, path.stat().st_size)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """The sentence names the two ways out, or the one that a command has."""
    for path in (tmp_path, tmp_path / "none" / "r.jsonl"):
        with pytest.raises(InputError, match=r"--results or none with --no-results\.$"):
            results.check_writable(path, or_none=True)
        with pytest.raises(InputError, match=r"choose another file with --results\.$"):
            results.check_writable(path)
    with pytest.raises(InputError, match=r"choose another file with --results\.$"):
        results.make_folder("/dev/null/none/r.jsonl")


def test_a_file_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    """A feature file named as results file by mistake is refused and keeps its bytes."""
    other = tmp_path / "features.npz"
    other.write_bytes(b"PK something else")
    with refused_in_one_sentence("no results file"):
        results.check_writable(other)
    assert other.read_bytes() == b"PK something else"
