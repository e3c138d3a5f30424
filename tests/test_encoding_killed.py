"""Encoding jobs that are killed from inside, at every moment; the attacks do it from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killed_encoding.py")


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("kind", ["good", "bad"])
def test_a_job_may_be_killed_at_every_operation_on_the_disk(tmp_path: Path, kind: str) -> None:
    """Whatever a job was doing to the disk when it was killed, the next one mends it."""
    command = [sys.executable, str(SCRIPT), str(tmp_path), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 50, "too few moments to be all"
