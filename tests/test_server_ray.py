"""The service on a real Ray of this machine, some of whose processes are killed under load."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from killed_server import OPTIONS, check_all, under_load, wait_for_more
from served import Process

pytest.importorskip("ray")
pytest.importorskip("fastapi")


def _below(process: int) -> Iterator[tuple[int, str]]:
    """Number and command of every process that this one started, and that those started."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_text()
        except OSError:  # it has ended meanwhile
            continue
        if parent == process:
            yield int(entry.name), command
            yield from _below(int(entry.name))


def _kill(server: Process, actor: str) -> int:
    """Kill one actor of this kind."""
    found = [number for number, told in _below(server.process.pid) if f"ray::{actor}" in told]
    os.kill(found[0], signal.SIGKILL)
    return found[0]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_lost_owners_and_replicas_lose_nothing(tmp_path: Path) -> None:
    """Owners and a replica are killed under load; no request fails, nothing is lost, bits agree."""
    with Process(tmp_path, *OPTIONS, "--engine", "ray") as server:
        with under_load(server, seed=5) as senders:
            killed = set()
            for actor in ("Owner", "Replica", "Owner", "Owner"):
                wait_for_more(senders, 12)
                killed.add(_kill(server, actor))
            wait_for_more(senders, 24)
        assert len(killed) == 4
        assert check_all(tmp_path, server, senders)["given"] >= 60
