"""A server that is killed at random moments under load, and what must hold afterwards.

``python killed_server.py FOLDER KILLS SEED`` prints how many kills there were and what was found.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from crg.encoders import load_encoder
from crg.server.event_log import Log
from crg.server.learner import States
from crg.server.summary import brief
from made_images import encoded, noise
from served import Process

NAMES = ["red circle", "blue square", "green triangle", "yellow star"]
IMAGES = [encoded(noise(40, 30, seed), "PNG") for seed in range(12)]
CONFIG = {"snapshot_every": 9, "max_loaded": 2}


class Sender(threading.Thread):
    """Sends one request after another to a session; one without an answer is sent again."""

    def __init__(self, session: str, name: str, seed: int) -> None:
        super().__init__()
        self.session, self.prefix, self.random = session, name, random.Random(seed)
        self.number = 0
        self.given: dict[str, Any] = {}  # by idempotency key
        self.address = ""
        self.ended = False

    def run(self) -> None:
        """Go on until the end, through any number of servers."""
        body = self._next()
        while not self.ended:
            address = self.address
            try:
                with httpx.Client(base_url=address, timeout=60) as client:
                    while not self.ended and address == self.address:
                        key = f"{self.prefix}-{self.number}"
                        path, content = body
                        answer = client.post(
                            f"{self.session}/{path}", headers={"Idempotency-Key": key}, **content
                        )
                        if answer.status_code == 503:  # nobody answered in time: send it again
                            time.sleep(float(answer.headers["Retry-After"]))
                            continue
                        assert answer.status_code == 200, answer.text
                        self.given[key] = answer.json()
                        self.number += 1
                        body = self._next()
            except httpx.HTTPError:  # it was killed: wait for the next one
                while address == self.address and not self.ended:
                    time.sleep(0.01)

    def _next(self) -> tuple[str, dict[str, Any]]:
        steps = [each["answers"][0]["step"] for each in self.given.values() if "answers" in each]
        if steps and self.random.random() < 0.2:
            body = {"image": self.random.choice(steps), "label": self.random.choice(NAMES)}
            return "corrections", {"json": body}
        parts = [("i", (f"{self.prefix}-{self.number}", self.random.choice(IMAGES)))]
        return "images", {"files": parts}


def below(process: int) -> Iterator[tuple[int, str]]:
    """Number and command of every process that this one started, and that those started."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_text()
        except OSError:  # it has ended meanwhile
            continue
        if parent == process:
            yield int(entry.name), command
            yield from below(int(entry.name))


def kill_repeatedly(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill a server ``kills`` times; raises AssertionError where anything is lost or differs."""
    chance, server = random.Random(seed), Process(folder, **CONFIG)
    with under_load(server, seed) as senders:
        for _ in range(kills):
            wait_for_more(senders)
            time.sleep(chance.uniform(0, 0.3))
            server.stop(signal.SIGKILL)
            server = Process(folder, **CONFIG)
            for sender in senders:
                sender.address = server.address
    return check_all(folder, server, senders)


@contextlib.contextmanager
def under_load(server: Process, seed: int) -> Iterator[list[Sender]]:
    """Four clients that send to three sessions meanwhile."""
    with server.client() as client:
        made = [client.post("/v1/sessions", json={"classes": NAMES}) for _ in range(3)]
    sessions = [each.headers["location"] for each in made]
    senders = [Sender(sessions[n % 3], str(n), seed + n) for n in range(4)]  # two share one
    try:
        for sender in senders:
            sender.address = server.address
            sender.start()
        yield senders
    finally:
        for sender in senders:
            sender.ended = True
        for sender in senders:
            sender.join()


def wait_for_more(senders: list[Sender], more: int = 3) -> None:
    """Wait until some more requests have been answered."""
    known = sum(sender.number for sender in senders)
    while sum(sender.number for sender in senders) < known + more:
        assert all(sender.is_alive() for sender in senders), "a request was refused"
        time.sleep(0.005)


def check_all(folder: Path, server: Process, senders: list[Sender]) -> dict[str, int]:
    """Every given answer is kept, and what was learnt is what one process would have learnt."""
    with server, server.client() as client:
        for sender in senders:
            _check_given(client, sender)
        assert server.stop()[0] == 0
    return _check_log(folder, senders)


def _check_given(client: httpx.Client, sender: Sender) -> None:
    """Every answer that was given is there, the same, and its key still gets it."""
    lines = client.get(f"{sender.session}/answers").text.splitlines()
    kept = {line["event"]: line for line in map(json.loads, lines)}
    for given in sender.given.values():
        for answer in given.get("answers", []):
            line = kept[answer["event"]]
            assert {key: answer[key] for key in line if key != "corrected"}.items() <= line.items()


def _check_log(folder: Path, senders: list[Sender]) -> dict[str, int]:
    """A session that learns the same events without any stop gives the same bits."""
    encoder = load_encoder("mini")
    log, states = Log(folder / "sessions.sqlite", encoder.width), States(folder, encoder)
    events = 0
    for row in log.newest(2**62, 10):
        learner = states.fresh(row)
        for some in log.events(row.number, 0):
            assert all(learner.replay(event, log, row.number) for event in some)
        keys = log.rows("SELECT key, first, last FROM keys WHERE session = ?", row.number)
        assert len(keys) == learner.seq == sum(last - first + 1 for _, first, last in keys)
        mine = [each for each in senders if each.session.endswith(row.id)]
        given = {key for sender in mine for key in sender.given}
        assert given <= {key for key, _, _ in keys}
        assert learner.seq <= len(given) + len(mine)  # one of each may have got no answer
        assert brief(log, row)["images"] == learner.adapter.n_steps
        events += learner.seq
    log.close()
    return {"events": events, "given": sum(len(sender.given) for sender in senders)}


if __name__ == "__main__":
    found = kill_repeatedly(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    print(f"{sys.argv[2]} kills: {found['given']} answers given, {found['events']} events, "
          "nothing lost, all bits equal.")  # fmt: skip
