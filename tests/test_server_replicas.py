"""Encoders in processes of their own, which are killed under load."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from crg import threads
from crg.encoders import load_encoder
from crg.server.replicas import Replica
from killed_server import OPTIONS, below, check_all, under_load, wait_for_more
from served import Process

pytest.importorskip("fastapi")


def _replicas(server: Process) -> list[int]:
    return [number for number, told in below(server.process.pid) if "spawn_main" in told]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_a_lost_encoder_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    """Encoders are killed twice under load; the log has every answer."""
    with Process(tmp_path, *OPTIONS, "--engine", "processes", "--replicas", "1") as server:
        with under_load(server, seed=6) as senders:
            killed = set()
            for _ in range(2):
                wait_for_more(senders, 8)
                [replica] = _replicas(server)
                os.kill(replica, signal.SIGKILL)
                killed.add(replica)
            wait_for_more(senders, 8)
        assert len(killed) == 2
        assert check_all(tmp_path, server, senders)["given"] >= 24


def test_a_replica_keeps_blas_at_one_thread() -> None:
    """The limit holds as long as the replica, and is not set anew for each batch."""
    before = threads._blas_users
    replica = Replica(partial(load_encoder, "mini"), 10**6, thumbnails=False, threads=1)
    replica.prepare()
    assert threads._blas_users == before + 1
    replica._held.close()
    assert threads._blas_users == before


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_encoders_end_with_the_service(tmp_path: Path) -> None:
    """A service that is killed leaves no process behind."""
    with Process(tmp_path, *OPTIONS, "--engine", "processes", "--replicas", "2") as server:
        replicas = _replicas(server)
        assert len(replicas) == 2
        server.process.kill()
        server.process.wait()
        for replica in replicas:
            _wait_for_the_end(replica)


def _wait_for_the_end(process: int) -> None:
    while True:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
