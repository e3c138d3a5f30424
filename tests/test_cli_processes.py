"""The command line in other processes: pipes, terminals, Ctrl-C and workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from colour_encoder import save_image
from crg.results.ledger import read
from made_files import save_plugin, save_stream
from processes import wait_until

CRG = [sys.executable, "-m", "crg"]


def _run(folder: Path, *words: str, **streams: int) -> subprocess.CompletedProcess[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*CRG, *words], cwd=folder, **streams, text=True, timeout=120, check=False
    )


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    """A reader that goes away early, as head does, ends the command quietly."""
    reader, writer = os.pipe()
    os.close(reader)
    for words in (["methods"], ["methods", "--json"]):
        done = _run(tmp_path, *words, stdout=writer)
        assert (done.stderr, done.returncode) == ("", 0)
    os.close(writer)


@pytest.mark.parametrize("words", ["methods >&-", "predict - --classes a,b <&-"])
def test_a_closed_stream_is_reported(tmp_path: Path, words: str) -> None:
    """Without a standard output, or an input that is asked for, nothing is begun."""
    closed, what = f'exec "$0" -m crg {words}', "output" if ">" in words else "input"
    done = subprocess.run(
        ["sh", "-c", closed, sys.executable], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith(f"Error: Standard {what} is closed:")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_a_terminal_gets_a_table(tmp_path: Path) -> None:
    """Answers are JSON Lines in a pipe and a table on a terminal; names may be in any encoding."""
    save_image(tmp_path / "a.png", "red")
    words = ["predict", "-", "--classes", "red circle,blue square"]
    (tmp_path / "list").write_bytes(b"\xe9.png\na.png\n")
    near, far = os.openpty()
    with (tmp_path / "list").open() as names:
        _run(tmp_path, *words, stdout=far, stdin=names.fileno())
    os.close(far)
    head, lost, answer, *_ = os.read(near, 4096).decode().split("\r\n")
    os.close(near)
    assert head.startswith("image ") and "does not exist" in lost and answer.startswith("a.png ")
    with (tmp_path / "list").open() as names:
        done = _run(tmp_path, *words, stdin=names.fileno())
    assert [json.loads(line).get("step") for line in done.stdout.splitlines()] == [None, 1]
    done = _run(tmp_path, "predict", "a.png", "--classes", os.fsdecode(b"caf\xe9,tea"))
    assert done.returncode == 2 and "is not UTF-8: write it" in done.stderr


def _interrupted(folder: Path, words: list[str], workers: str) -> tuple[int, str]:
    """Start a comparison, press Ctrl-C when two runs are kept; give exit code and stderr."""
    process = subprocess.Popen(
        [*CRG, *words, "--workers", workers],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: len(read(folder / "crg-results.jsonl").runs) >= 2)
    os.killpg(process.pid, signal.SIGINT)  # a terminal signals the workers too
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_keeps_what_is_done_for_the_next_call(tmp_path: Path, workers: str) -> None:
    """One sentence and exit code 130; then only the missing runs are run, and a pipe gets JSON."""
    plugin = save_plugin(tmp_path)
    save_stream(tmp_path / "a.npz", n=20)
    words = ["--plugin", plugin.name, "compare", "a.npz", "--orders", "2",
             "--methods", "zero_shot,slow=constant:seconds=0.05"]  # fmt: skip
    code, errors = _interrupted(tmp_path, words, workers)
    assert code == 130
    assert errors.count("\n") == 1, errors
    n_kept = len(read(tmp_path / "crg-results.jsonl").runs)
    assert 2 <= n_kept < 4
    assert errors.startswith(f"Stopped: {n_kept} of 4 runs are kept in crg-results.jsonl")
    assert "the same command continues from there" in errors
    done = _run(tmp_path, *words, "--workers", workers, "--json")
    assert (done.returncode, done.stderr) == (0, "")  # nothing but JSON in a pipe
    ledger = read(tmp_path / "crg-results.jsonl")
    assert len(ledger.runs) == 4 and len(ledger.entries) == 5  # each once, and the outline
    assert set(json.loads(done.stdout)["files"]["a"]) == {"zero_shot", "slow"}
