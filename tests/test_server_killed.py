"""Servers and encoders that are killed under load lose nothing and continue with the same bits."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from crg.encoders import load_encoder
from crg.server.event_log import Log
from crg.server.states import States
from crg.server.summary import listed
from made_files import encoded, noise
from served import Process

NAMES = ["red circle", "blue square", "green triangle", "yellow star"]
IMAGES = [encoded(noise(40, 30, seed), "PNG") for seed in range(12)]
CONFIG: dict[str, Any] = {"snapshot_every": 9, "max_memory": 10_000_000}  # two sessions at a time


def test_killed_at_random_moments_nothing_is_lost(tmp_path: Path) -> None:
    """After kill -9 under load every given answer is kept, nothing is learnt twice, bits agree."""
    chance = random.Random(7)
    with Process(tmp_path, **CONFIG) as server:
        with under_load(server, seed=7) as senders:
            for _ in range(3):
                wait_for_more(senders, 3)
                time.sleep(chance.uniform(0, 0.3))
                server.restart()
        check_all(tmp_path, server, senders, at_least=9)


def test_sigterm_finishes_what_was_accepted(tmp_path: Path) -> None:
    """Under load with a watcher SIGTERM exits with 0; what was answered stays, in snapshots too."""
    with Process(tmp_path, **CONFIG) as server:
        with under_load(server, seed=3) as senders:
            wait_for_more(senders, 20)
            watched = f"GET {senders[0].session}/events HTTP/1.1"
            with server.request(watched) as watcher:
                assert b" 200 " in watcher.recv(4096)
                code, said = server.stop()
            assert code == 0 and "Traceback" not in said
            saved = {each.parent for each in (tmp_path / "states").rglob("*.crg")}
            assert len(saved) >= 2  # all that were in memory
            server.start("--port", str(server.port))
        check_all(tmp_path, server, senders, at_least=20)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_a_lost_encoder_on_ray_loses_nothing(tmp_path: Path) -> None:
    """A replica is killed under load; every request is answered once, and bits agree."""
    pytest.importorskip("ray")
    with Process(tmp_path, "--engine", "ray", **CONFIG) as server:
        with under_load(server, seed=5) as senders:
            wait_for_more(senders, 12)
            commands = {id: Path(f"/proc/{id}/cmdline") for id in below(server.process.pid)}
            workers = [id for id, path in commands.items() if "ray::Worker" in path.read_text()]
            assert len(workers) == 2
            os.kill(workers[0], signal.SIGKILL)
            wait_for_more(senders, 24)
        check_all(tmp_path, server, senders, at_least=36)


class Sender(threading.Thread):
    """Sends one request after another to a session; one without an answer is sent again."""

    def __init__(self, session: str, name: str, address: str, seed: int) -> None:
        super().__init__()
        self.session, self.prefix, self.random = session, name, random.Random(seed)
        self.given: dict[str, Any] = {}  # by idempotency key
        self.address, self.ended = address, False

    def run(self) -> None:
        """Continue until the end, through any number of servers."""
        with httpx.Client(base_url=f"{self.address}{self.session}/", timeout=60) as client:
            path, content = self._next()
            while not self.ended:
                key = f"{self.prefix}-{len(self.given)}"
                try:
                    answer = client.post(path, headers={"Idempotency-Key": key}, **content)
                except httpx.HTTPError:  # it was killed: wait until it is back
                    time.sleep(0.1)
                    continue
                if answer.status_code == 503:  # no encoder answered in time: send it again
                    time.sleep(float(answer.headers["Retry-After"]))
                    continue
                assert answer.status_code == 200, answer.text
                self.given[key] = answer.json()
                path, content = self._next()

    def _next(self) -> tuple[str, dict[str, Any]]:
        steps = [each["answers"][0]["step"] for each in self.given.values() if "answers" in each]
        if steps and self.random.random() < 0.2:
            body = {"image": self.random.choice(steps), "label": self.random.choice(NAMES)}
            return "corrections", {"json": body}
        return "images", {"files": [("i", (self.prefix, self.random.choice(IMAGES)))]}


def below(process: int) -> list[int]:
    """Every process that this one started, and that those started."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    started = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return [*started, *(each for child in started for each in below(child))]


@contextlib.contextmanager
def under_load(server: Process, seed: int) -> Iterator[list[Sender]]:
    """Four clients send to three sessions during the block."""
    with server.client() as client:
        made = [client.post("/v1/sessions", json={"classes": NAMES}) for _ in range(3)]
    sessions = [made[n % 3].headers["location"] for n in range(4)]  # two share one
    senders = [Sender(each, str(n), server.address, seed + n) for n, each in enumerate(sessions)]
    for sender in senders:
        sender.start()
    try:
        yield senders
    finally:
        for sender in senders:
            sender.ended = True
        for sender in senders:
            sender.join()


def wait_for_more(senders: list[Sender], more: int) -> None:
    """Wait until some more requests have been answered."""
    known = sum(len(sender.given) for sender in senders)
    while sum(len(sender.given) for sender in senders) < known + more:
        assert all(sender.is_alive() for sender in senders), "a request was refused"
        time.sleep(0.005)


def check_all(folder: Path, server: Process, senders: list[Sender], at_least: int) -> None:
    """Every given answer is kept, and what was learnt is what one process would have learnt."""
    assert sum(len(sender.given) for sender in senders) >= at_least
    with server.client() as client:
        for sender in senders:
            lines = client.get(f"{sender.session}/answers").text.splitlines()
            kept = {line["event"]: line for line in map(json.loads, lines)}
            for given in sender.given.values():
                for answer in given.get("answers", ()):
                    line = kept[answer["event"]]
                    assert line.items() >= {k: answer[k] for k in line if k != "corrected"}.items()
        assert server.stop()[0] == 0
    encoder = load_encoder("mini")
    log = Log(folder / "sessions.sqlite", encoder.width)
    for _, line in listed(log, 2**62, 10):
        row = log.find(line["id"])
        assert row is not None
        log.verify(row.number, lambda: None)
        learner = States(folder, encoder, log).fresh(row)
        for some in log.events(row.number, 0):
            assert all(learner.replay(event) for event in some)
        keys = log.rows("SELECT key, first, last FROM keys WHERE session = ?", row.number)
        assert len(keys) == learner.seq == sum(last - first + 1 for _, first, last in keys)
        mine = [each for each in senders if each.session.endswith(row.id)]
        given = {key for sender in mine for key in sender.given}
        assert given <= {key for key, _, _ in keys}
        assert learner.seq <= len(given) + len(mine)  # one of each may have got no answer
        assert line["images"] == learner.adapter.n_steps
    log.close()
