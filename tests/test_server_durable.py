"""Sessions on disk: what was answered is there after any end, to the bit."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from crg.server.event_log import Change, Learner, Log
from processes import wait_until
from served import NAMES, Process, client, headers_of, png, refused, send, start


def lines_of(served: TestClient, session: str) -> list[Any]:
    """The answers of a session."""
    return [json.loads(line) for line in served.get(f"{session}/answers").text.splitlines()]


def busy_session(served: TestClient, method: str = "anchored", rounds: int = 5) -> str:
    """A session with images, corrections and classes that came and went."""
    session = start(served, method=method)
    for number in range(rounds):
        for colour in NAMES:
            send(served, session, png(colour, noise=3 * number), f"{number}-{colour}")
        body = {"image": number + 1, "label": NAMES[number % 3]}
        assert served.post(f"{session}/corrections", json=body).status_code == 200
    served.post(f"{session}/classes", json={"name": "red blue"})
    send(served, session, png("green", noise=9))
    served.delete(f"{session}/classes", params={"name": "red blue"})
    return session


@pytest.mark.parametrize("method", ["anchored", "crg", "tda", "dpe"])
def test_a_restart_continues_with_the_same_bits(tmp_path: Path, method: str) -> None:
    """With snapshots or with the log alone, the answers equal those of a session without a stop."""
    with client(tmp_path / "a", snapshot_every=7) as served:
        session = busy_session(served, method)
        before = lines_of(served, session), served.get(session).json()
        kept = send(served, session, png("red", noise=-9), "last")
    with client(tmp_path / "b") as other:
        twin = busy_session(other, method)
        send(other, twin, png("red", noise=-9), "last")
        for noise in range(2):
            with client(tmp_path / "a", snapshot_every=7) as served:
                assert lines_of(served, session)[: len(before[0])] == before[0]
                assert served.get(session).json()["classes"] == before[1]["classes"]
                assert send(served, session, png("red", noise=-9), "last") == kept
                for colour in ("blue", "green"):
                    one, two = (
                        send(each, place, png(colour, noise=noise))
                        for each, place in ((served, session), (other, twin))
                    )
                    assert {**one, "at": 0} == {**two, "at": 0}
                assert "crg_replay_differences_total 0.0" in served.get("/metrics").text
            assert list((tmp_path / "a" / "states").rglob("*.crg"))
            shutil.rmtree(tmp_path / "a" / "states")


def test_an_unused_session_leaves_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that do not fit into memory are unloaded and reloaded, also those from a state."""
    monkeypatch.setattr("crg.server.service._WORTH_SAVING", 3)
    with client(tmp_path, max_memory=250_000) as served:
        state = served.get(f"{busy_session(served)}/state").content
        headers = {"Content-Type": "application/octet-stream"}
        made = [served.post("/v1/sessions", content=state, headers=headers) for _ in range(4)]
        sessions = [each.headers["location"] for each in made]
        for noise in range(8):
            answers = [send(served, each, png("red", noise=noise)) for each in sessions]
            assert len({answer["probability"] for answer in answers}) == 1
            assert {answer["step"] for answer in answers} == {17 + noise}
        assert "crg_loaded_sessions 2.0" in served.get("/metrics").text


class Disk:
    """The disk of a service, in the order in which it is used; full if the test says so."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.full, self.order = False, list[str]()
        fsync, commit, write = os.fsync, Log.commit, Path.write_bytes

        def committed(log: Log, changes: Sequence[Change]) -> list[Any]:
            self.order.append("commit")
            return commit(log, [*changes, self._fail] if self.full else changes)

        def synced(handle: int) -> None:
            self.order.append("sync")
            fsync(handle)

        def written(path: Path, content: Any) -> int:
            return write(path, content[: len(content) // 2] if self.full else content)

        patch.setattr(os, "fsync", synced)
        patch.setattr(Log, "commit", committed)
        patch.setattr(Path, "write_bytes", written)

    def _fail(self, _: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk of this test."""
    return Disk(monkeypatch)


def test_a_method_that_fails_breaks_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception halfway through a request is a 500, and the session is as before it."""
    plain, left = Learner.answer, [1, 2]

    def answer(self: Learner, *arguments: Any) -> Any:
        if not left:
            raise MemoryError
        left.pop()
        return plain(self, *arguments)

    with client(tmp_path) as served:
        session = busy_session(served)
        before = served.get(f"{session}/state").content
        parts = [("i", ("a", png("blue")))] * 3
        with monkeypatch.context() as patch:
            patch.setattr(Learner, "answer", answer)
            refused(served.post(f"{session}/images", files=parts), 500)
        assert served.get(f"{session}/state").content == before


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    """Neither a second service on a folder nor a foreign file as its log is accepted or changed."""
    with client(tmp_path), pytest.raises(ValueError, match="another process"), client(tmp_path):
        pass
    (tmp_path / "sessions.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(ValueError, match="--data"), client(tmp_path):
        pass
    assert (tmp_path / "sessions.sqlite").read_bytes() == b"something else" * 100
    for number, clock in enumerate(("'x'", "9e999", "-1.0")):
        with client(folder := tmp_path / str(number)):
            pass
        edit_log(folder, f"UPDATE clock SET seconds = {clock}")
        with pytest.raises(ValueError, match="clock is damaged"), client(folder):
            pass


def test_damaged_snapshots_and_leftovers_of_a_stop_do_no_harm(tmp_path: Path) -> None:
    """The log brings a session back; files of no session and temporary files are removed."""
    with client(tmp_path, snapshot_every=5) as served:
        session = busy_session(served)
        before = served.get(f"{session}/state").content
    [snapshot] = (tmp_path / "states").rglob("*.crg")
    snapshot.write_bytes(snapshot.read_bytes()[:-5])
    (snapshot.parent / ".9.crg.tmp").write_bytes(b"x")
    for leftover in ("0" * 32, "tmp_state"):
        (tmp_path / "states" / leftover / "images").mkdir(parents=True)
    with client(tmp_path) as served:
        assert list((tmp_path / "states").iterdir()) == [snapshot.parent]
        assert not list(snapshot.parent.glob(".*"))
        assert served.get(f"{session}/state").content == before


def test_thumbnails_are_bounded_and_images_kept_only_if_asked(tmp_path: Path) -> None:
    """The last thumbnails are there; the images themselves only with keep_images."""
    with client(tmp_path / "a", thumbnails=3) as served:
        session = start(served)
        for number in range(5):
            send(served, session, png("red", (300, 200), number))
        found = [served.get(f"{session}/images/{step}/thumbnail") for step in range(1, 6)]
        assert [each.status_code for each in found] == [404, 404, 200, 200, 200]
        assert found[-1].headers["content-type"] == "image/jpeg"
        refused(served.get(f"{session}/images/5"), 404, "keep_images")
    with client(tmp_path / "b", keep_images=True, thumbnails=0) as served:
        session, content = start(served), png("red")
        assert not send(served, session, content)["thumbnail"]
        kept = served.get(f"{session}/images/1")
        assert kept.content == content and kept.headers["content-type"] == "image/png"
        served.delete(session)
        assert not list((tmp_path / "b" / "states").iterdir())


def edit_log(folder: Path, *statements: str) -> None:
    """Change the log behind the back of the service."""
    connection = sqlite3.connect(folder / "sessions.sqlite")
    with connection:
        for each in statements:
            connection.execute(each)
    connection.close()


@pytest.mark.parametrize("statement", [
    "UPDATE events SET detail = replace(detail, '0.', '0.1') WHERE seq = 3",
    "UPDATE events SET detail = '{' WHERE kind = 'renamed'",
    "UPDATE events SET label = 'blue', probability = 1 WHERE seq = 3",
    "UPDATE features SET vectors = zeroblob(16) WHERE seq = 3",
    "DELETE FROM events WHERE seq = 3",
    "UPDATE sessions SET start = replace(start, 'red', 'ret')",
    "UPDATE sessions SET start = x'7bff'",
    "UPDATE sessions SET text_features = zeroblob(48)",
])  # fmt: skip
def test_a_damaged_log_is_refused(tmp_path: Path, statement: str) -> None:
    """No address answers from a session whose checksums do not fit; it can be deleted."""
    with client(tmp_path) as served:
        session, other = busy_session(served), start(served)
        served.patch(session, json={"name": "kitchen"})
    edit_log(tmp_path, statement + (" WHERE number = 1" if "sessions" in statement else ""))
    with client(tmp_path) as served:
        for path in ("", "/answers", "/state", "/events", "/images/1/thumbnail"):
            refused(served.get(session + path), 500, "damaged", "delete the session")
        refused(served.post(f"{session}/images", content=png(), headers=headers_of()), 500)
        assert send(served, other, png())["step"] == 1
        assert served.get("/v1/sessions").json()["sessions"][0]["id"] == other[-32:]
        assert served.delete(session).status_code == 204


def test_a_log_older_than_its_snapshots_is_refused(tmp_path: Path) -> None:
    """After an old copy of the log is put back, a session does not mix the two."""
    with client(tmp_path, snapshot_every=1) as served:
        session = start(served)
        send(served, session, png("red"))
    shutil.copy(tmp_path / "sessions.sqlite", tmp_path / "copy")
    with client(tmp_path, snapshot_every=1) as served:
        send(served, session, png("green"))
    shutil.copy(tmp_path / "copy", tmp_path / "sessions.sqlite")
    with client(tmp_path) as served:
        refused(served.get(f"{session}/state"), 500, "older than a snapshot", "one copy")


def test_a_session_that_cannot_be_replayed_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After three replays that failed at one event no fourth is tried, nor after a restart.

    A disk that fails for a moment does not count, and a damaged note of it does no harm.
    """
    with client(tmp_path) as served:
        session = busy_session(served, rounds=1)
        before = served.get(f"{session}/state").content
    shutil.rmtree(tmp_path / "states")
    plain, tried = Learner.replay, list[type[Exception]]()

    def replay(self: Learner, event: Any) -> bool:
        if event.seq == 4:
            tried.append(errors[0])
            raise errors[0]
        return plain(self, event)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "replay", replay)
        for each in (sqlite3.OperationalError, OSError, MemoryError) * 2:
            errors = [each]
            with client(tmp_path) as served:
                answers = [served.get(f"{session}/state") for _ in range(4)]
                assert len(lines_of(served, session)) == 4
    refused(answers[-1], 500, "set aside", "start another")
    assert tried.count(MemoryError) == 3
    [note] = (tmp_path / "states").rglob("replaying")
    note.write_bytes(bytes(len(note.read_bytes())))  # as some disks leave it after a power cut
    with client(tmp_path) as served:
        assert served.get(f"{session}/state").content == before


def test_expiry_ignores_the_time_of_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that jumps by years deletes nothing; unused time of earlier runs counts."""
    monkeypatch.setattr("crg.server.service._SWEEP", 0.05)
    jumps, wall = iter((0.0, 1e9, -1e9)), time.time
    for _ in range(3):  # runs of 400 seconds each; a session expires after 1000
        ahead = next(jumps)
        monkeypatch.setattr(time, "time", lambda ahead=ahead: wall() + ahead)
        with client(tmp_path, expire=1000) as served:
            if not served.get("/v1/sessions").json()["sessions"]:
                session, used = start(served), start(served)
            send(served, used, png())
            assert served.get(session).status_code == 200
            served.app.state.service._born -= 400  # type: ignore[attr-defined]
    with client(tmp_path, expire=1000) as served:
        wait_until(lambda: served.get(session).status_code == 404)
        assert served.get(used).status_code == 200


def test_kept_images_are_as_durable_as_answers(tmp_path: Path, disk: Disk) -> None:
    """They are synced before the answer is logged; what cannot be kept teaches nothing."""
    with client(tmp_path, keep_images=True) as served:
        session = start(served)
        disk.order.clear()
        send(served, session, png("red"))
        assert disk.order[-1] == "commit" and disk.order.count("sync") >= 2
        before = served.get(f"{session}/state").content
        disk.full = True
        lost = served.post(f"{session}/images", content=png("blue"), headers=headers_of())
        refused(lost, 503, "make room")
        refused(served.get(f"{session}/images/2"), 404)
        disk.full = False
        assert served.get(f"{session}/state").content == before
        left = tmp_path / "states" / session[-32:] / "images" / "2"
        left.write_bytes(png("blue"))  # by a request whose answer could not be logged
        served.post(f"{session}/images", json={"features": [0.1, 0.2, 0.3, 0.4]})
        refused(served.get(f"{session}/images/2"), 404)
        send(served, session, png("blue"))
        assert served.get(f"{session}/images/3").content == png("blue")
        assert served.get(f"{session}/images/1").content == png("red")


NAMESPACE = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs tmpfs "$0"']


def test_a_full_disk_is_survived(tmp_path: Path) -> None:
    """Reads and DELETE work on a full disk and make room; refusals are 503 and name no folder."""
    if (
        not shutil.which("unshare")
        or subprocess.run([*NAMESPACE, tmp_path], check=False).returncode
    ):
        pytest.skip("needs a disk of its own")
    with Process(tmp_path / "data", disk=40, keep_images=True) as server, server.client() as served:
        sessions = [start(served) for _ in range(2)]
        content, answered = os.urandom(400_000), 0
        image = png("red", (50, 50)) + content  # bytes after the end of a PNG are kept, too
        while (answer := served.post(f"{sessions[0]}/images", content=image,
                                     headers=headers_of())).status_code == 200:  # fmt: skip
            answered += 1
        for each in (answer, served.post("/v1/sessions", json={"classes": ["a", "b"]})):
            if each.status_code != 201:
                assert str(tmp_path) not in refused(each, 503)["detail"]
        assert len(served.get(f"{sessions[0]}/answers").text.splitlines()) == answered > 5
        assert served.get(f"{sessions[0]}/images/1").content == image
        assert served.get(f"{sessions[0]}/state").status_code == 200
        assert served.get("/v1/sessions").status_code == 200
        assert served.delete(sessions[0]).status_code == 204
        assert served.post(f"{sessions[1]}/images", content=image, headers=headers_of()).is_success
        assert server.stop()[0] == 0
