"""The service on a real Ray of this machine, some of whose processes are killed under load."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from killed_server import OPTIONS, below, check_all, under_load, wait_for_more
from served import Process

pytest.importorskip("ray")
pytest.importorskip("fastapi")


def _kill(server: Process, actor: str) -> int:
    """Kill one actor of this kind."""
    found = [number for number, told in below(server.process.pid) if f"ray::{actor}" in told]
    os.kill(found[0], signal.SIGKILL)
    return found[0]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_lost_owners_and_replicas_lose_nothing(tmp_path: Path) -> None:
    """Owners and a replica are killed under load; nothing is lost, bits agree."""
    with Process(tmp_path, *OPTIONS, "--engine", "ray") as server:
        with under_load(server, seed=5) as senders:
            killed = set()
            for actor in ("Owner", "Replica", "Owner", "Owner"):
                wait_for_more(senders, 12)
                killed.add(_kill(server, actor))
            wait_for_more(senders, 24)
        assert len(killed) == 4
        assert check_all(tmp_path, server, senders)["given"] >= 60
