"""Encoding jobs that are killed, from inside at every moment and from outside at random."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crg.features import store_writer
from encoding_fakes import HashEncoder, contents, dot_files
from killed_encoding import run_job

SCRIPT = Path(__file__).with_name("killed_encoding.py")


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("kind", ["good", "bad"])
def test_a_job_may_be_killed_at_every_operation_on_the_disk(tmp_path: Path, kind: str) -> None:
    """Whatever a job was doing to the disk when it was killed, the next one mends it."""
    command = [sys.executable, str(SCRIPT), "every", str(tmp_path), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 50, "too few moments to be all"


def test_jobs_killed_at_random_moments_come_to_an_end(tmp_path: Path) -> None:
    """Killed from outside again and again, a job still ends in the same bytes."""
    dice = random.Random(time.time_ns())  # new moments each time
    store = tmp_path / "store"
    for least in (0, 3, 7):  # blocks that must be on disk, so that there is some progress
        _kill_after(tmp_path, store, least, dice.uniform(0, 0.1))
    kept = len(store_writer.read_entries(store))
    assert kept >= 7
    encoder = HashEncoder()
    run_job(dot_files(tmp_path / "images", 60), store, encoder)
    assert encoder.encoded <= 2 * 5 * (12 - kept)
    run_job(dot_files(tmp_path / "images", 60), tmp_path / "whole", HashEncoder())
    assert contents(store) == contents(tmp_path / "whole")


def _kill_after(place: Path, store: Path, blocks: int, seconds: float) -> None:
    process = subprocess.Popen([sys.executable, str(SCRIPT), "slowly", str(place)])
    while len(store_writer.read_entries(store)) < blocks and process.poll() is None:
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
