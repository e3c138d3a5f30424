"""Encoders on a real Ray of this machine, one of which is killed under load."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from killed_server import CONFIG, below, check_all, under_load, wait_for_more
from served import Process

pytest.importorskip("ray")
pytest.importorskip("fastapi")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_a_lost_encoder_loses_nothing(tmp_path: Path) -> None:
    """A replica is killed under load; every request is answered once, and bits agree."""
    with Process(tmp_path, "--engine", "ray", **CONFIG) as server:
        with under_load(server, seed=5) as senders:
            wait_for_more(senders, 12)
            workers = [id for id, command in below(server.process.pid) if "ray::Worker" in command]
            assert len(workers) == 2
            os.kill(workers[0], signal.SIGKILL)
            wait_for_more(senders, 24)
        assert check_all(tmp_path, server, senders)["given"] >= 36
