"""Events: a session learns them, and the log keeps them, in SQLite, synced at every commit.

The same events give the same bits, live or replayed. One transaction writes an event with the
features of its image, its answer and the idempotency key of its request: the log holds a prefix of
all events, with every one that was answered. An event carries a checksum of itself and of the one
before it; the first follows its session's.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import json, msgpack

from crg.adapter import Adapter
from crg.answer import NONE_OF_THESE, answer_for
from crg.encoders.base import Vectors
from crg.server.schema import ProblemError
from crg.types import InputError, as_floats, printable, unit_rows

Kind: TypeAlias = Literal["answer", "correction", "class_added", "class_removed", "renamed"]
Key: TypeAlias = tuple[str, bytes] | None  # idempotency key of a request, and digest of its body
Change: TypeAlias = Callable[[sqlite3.Connection], object]  # for ``Log.commit``
_VERSION = 4
_TABLES = """
CREATE TABLE clock (seconds REAL NOT NULL);
INSERT INTO clock VALUES (0);
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, created REAL NOT NULL,
    start TEXT NOT NULL, text_features BLOB, digest BLOB NOT NULL, used REAL NOT NULL);
CREATE TABLE events (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE, seq INTEGER NOT NULL,
    kind TEXT NOT NULL, at REAL NOT NULL, step INTEGER, label TEXT, probability REAL,
    changed INTEGER, detail TEXT NOT NULL, digest BLOB NOT NULL, used REAL NOT NULL,
    PRIMARY KEY (session, seq)) WITHOUT ROWID;
CREATE INDEX events_by_step ON events (session, step);
CREATE INDEX class_changes ON events (session, seq) WHERE kind IN ('class_added', 'class_removed');
CREATE INDEX names ON events (session, seq) WHERE kind = 'renamed';
CREATE TABLE features (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE, seq INTEGER NOT NULL,
    vectors BLOB NOT NULL, PRIMARY KEY (session, seq));
CREATE TABLE keys (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE, key TEXT NOT NULL,
    digest BLOB NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    PRIMARY KEY (session, key)) WITHOUT ROWID;
CREATE TABLE thumbnails (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE, step INTEGER NOT NULL,
    jpeg BLOB NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (session, step));
"""
_PAGE = 64  # rows that are read at a time
_TOP = 5  # classes of an answer


@dataclass
class Event:
    """An event in a session; ``detail`` is its public form."""

    kind: Kind
    detail: dict[str, Any]
    features: Vectors | None = None  # of the image (V, D), or of the text of a class (1, D)
    thumbnail: bytes | None = None
    digest: bytes = b""  # of it and of the event before

    @property
    def seq(self) -> int:
        """Its number in the session, from 1."""
        return int(self.detail["event"])

    @cached_property
    def text(self) -> str:
        """The detail as JSON."""
        return json.encode(self.detail).decode()

    @cached_property
    def vectors(self) -> bytes | None:
        """The features as bytes."""
        return _content(self.features)


@dataclass(frozen=True)
class StoredSession:
    """A session as it was started."""

    number: int
    id: str
    start: dict[str, Any]  # name, classes, logit_scale, model, method, options, views, seen, size


class Log:
    """The database of one folder: one connection that writes, one per thread that reads."""

    def __init__(self, path: Path, width: int) -> None:
        self._path, self._width = path, width
        self._here = threading.local()
        self._readers: list[sqlite3.Connection] = []
        try:
            self._writer = self._connect()
            self._prepare()
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path} cannot be used ({printable(str(error))}): restore it from a "
                             "copy, or choose another folder with --data.") from None  # fmt: skip

    def close(self) -> None:
        """Close every connection."""
        for connection in (*self._readers, self._writer):
            connection.close()

    def commit(self, changes: Sequence[Change]) -> list[Any]:
        """Write all changes in one transaction; if one fails, none is written."""
        with self._writer:  # commits, or rolls back
            self._writer.execute("BEGIN IMMEDIATE")
            return [change(self._writer) for change in changes]

    def find(self, session_id: str) -> StoredSession | None:
        """A session by its id."""
        query = "SELECT number, iif(json_valid(start), start, '{}') FROM sessions WHERE id = ?"
        for number, start in self.rows(query, session_id):
            return StoredSession(number, session_id, json.decode(start))
        return None

    def text_features(self, number: int) -> Vectors | None:
        """The text features (K, D) that a session started with; None: it has them in a state."""
        [(text,)] = self.rows("SELECT text_features FROM sessions WHERE number = ?", number)
        return self._vectors(text)

    def unused_since(self, moment: float) -> list[str]:
        """The ids of sessions in which nothing happened after ``moment``, on the log's clock."""
        query = """SELECT id FROM sessions WHERE ifnull((SELECT used FROM events
                   WHERE session = number ORDER BY seq DESC LIMIT 1), used) < ?"""
        return [row[0] for row in self.rows(query, moment)]

    def digest(self, number: int, seq: int) -> bytes:
        """The checksum of an event, or of the session itself for 0; empty if there is none."""
        query = """SELECT digest FROM sessions WHERE number = ?1 AND ?2 = 0
                   UNION ALL SELECT digest FROM events WHERE session = ?1 AND seq = ?2"""
        return b"".join(digest for (digest,) in self.rows(query, number, seq))

    def verify(self, number: int, beat: Callable[[], None]) -> None:
        """Refuse a session that is not as it was written; ``beat`` is called at each page."""
        query = "SELECT id, created, start, text_features, digest FROM sessions WHERE number = ?"
        [(*begun, digest)] = self.rows(query, number)
        if checksum(*begun) != digest:
            raise _damaged(begun[0], 0)
        query = """SELECT * FROM events LEFT JOIN features USING (session, seq)
                   WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?"""
        seq = 0
        while rows := self.rows(query, number, seq, _PAGE):
            beat()
            for *columns, _, vectors in rows:
                kind, detail = columns[2], columns[8]
                digest = checksum(digest, kind, detail, vectors)
                seq += 1
                if columns[9] != digest or columns != _columns(
                    number, Event(kind, json.decode(detail), digest=digest)
                ):
                    raise _damaged(begun[0], seq)

    def events(self, number: int, after: int) -> Iterator[list[Event]]:
        """The events after one, with features, some at a time."""
        while some := self._events("seq > ? ORDER BY seq LIMIT ?", number, after, _PAGE):
            after = some[-1].seq
            yield some

    def messages(self, number: int, after: int) -> list[tuple[int, str, str]]:
        """Number, kind and detail (as JSON) of the next events after one."""
        query = """SELECT seq, kind, detail FROM events
                   WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?"""
        return self.rows(query, number, after, _PAGE)

    def answers(self, number: int, after: int) -> list[tuple[int, str, str | None]]:
        """Event number, answer (as JSON) and last correction of the next images."""
        query = """SELECT seq, detail, (SELECT c.label FROM events c WHERE c.session = e.session
                   AND c.step = e.step AND c.kind = 'correction' ORDER BY c.seq DESC LIMIT 1)
                   FROM events e WHERE session = ? AND seq > ? AND kind = 'answer'
                   ORDER BY seq LIMIT ?"""
        return self.rows(query, number, after, _PAGE)

    def image(self, number: int, step: int) -> Event | None:
        """The answer to an image, with its features."""
        return next(iter(self._events("step = ? AND kind = 'answer'", number, step)), None)

    def thumbnail(self, number: int, step: int) -> bytes | None:
        """The small copy of an image, if it is kept."""
        query = "SELECT jpeg, digest FROM thumbnails WHERE session = ? AND step = ?"
        found = self.rows(query, number, step)
        return next((jpeg for jpeg, digest in found if checksum(step, jpeg) == digest), None)

    def known(self, number: int, key: str, content: bytes) -> list[str] | None:
        """The details of the events of the request with this idempotency key.

        They are none if its body had another digest than ``content``.
        """
        query = "SELECT digest, first, last FROM keys WHERE session = ? AND key = ?"
        for digest, first, last in self.rows(query, number, key):
            events = "SELECT detail FROM events WHERE session = ? AND seq BETWEEN ? AND ?"
            found = self.rows(events, number, first, last)
            return [each for (each,) in found if checksum(key, content, first, last) == digest]
        return None

    def rows(self, query: str, *values: Any) -> list[Any]:
        """The rows of a query that only reads; any thread may ask."""
        if not hasattr(self._here, "connection"):
            self._here.connection = self._connect()
            self._here.connection.execute("PRAGMA query_only = ON")
            self._readers.append(self._here.connection)
        return list(self._here.connection.execute(query, values))

    def _events(self, condition: str, *values: int) -> list[Event]:
        query = f"""SELECT kind, detail, vectors, digest FROM events LEFT JOIN features
                    USING (session, seq) WHERE session = ? AND {condition}"""
        return [
            Event(kind, json.decode(detail), self._vectors(vectors), digest=digest)
            for kind, detail, vectors, digest in self.rows(query, *values)
        ]

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")  # if damaged
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA busy_timeout = 10000")
        return connection

    def _prepare(self) -> None:
        for pragma in ("journal_mode = WAL", "foreign_keys = ON", "secure_delete = FAST"):
            self._writer.execute(f"PRAGMA {pragma}")
        [version] = self._writer.execute("PRAGMA user_version").fetchone()
        if version == 0:
            made = f"BEGIN; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;"
            self._writer.executescript(made)
        elif version != _VERSION:
            raise InputError(f"{self._path} was written by another version of crg: "
                             "choose another folder with --data.")  # fmt: skip
        [found] = self._writer.execute("PRAGMA integrity_check(1)").fetchone()
        sound = "SELECT 1 FROM clock WHERE typeof(seconds) = 'real' AND seconds BETWEEN 0 AND 1e10"
        if found != "ok" or self._writer.execute(sound).fetchone() is None:
            raise sqlite3.DatabaseError("its clock is damaged" if found == "ok" else found)

    def _vectors(self, content: bytes | None) -> Vectors | None:
        array = np.frombuffer(content or b"", "<f4").astype(np.float32).reshape(-1, self._width)
        return None if content is None else array


@dataclass
class Learner:
    """The adapter of a session, and the number of the last event that it has learnt."""

    adapter: Adapter
    log: Log
    number: int  # of the session in the log
    seq: int
    digest: bytes  # of that event

    def answer(
        self, features: Any, name: str | None, thumbnail: bytes | None = None, top: int = _TOP
    ) -> Event:
        """Learn an image, and answer it with the ``top`` most probable classes."""
        task, step = self.adapter.task, self.adapter.n_steps + 1
        rows = as_floats(features, "features")
        prediction = self.adapter.step(rows, step)
        unit = unit_rows(rows.reshape(-1, task.width), "features")
        answer = answer_for(task, prediction, unit, step)
        detail = {
            "step": step, "name": name, "label": answer.label, "probability": answer.probability,
            "top": [{"label": label, "probability": p} for label, p in answer.top(top)],
            "zero_shot_label": answer.zero_shot_label,
            "zero_shot_probability": answer.zero_shot_probability,
            "changed": answer.changed, **answer.decisions, "thumbnail": thumbnail is not None,
        }  # fmt: skip
        return self._event("answer", detail, rows, thumbnail)

    def correct(self, step: int, label: str) -> Event:
        """Learn the label that a person gives an image."""
        image = self.log.image(self.number, step)
        if image is None:
            raise InputError(f"There is no image {step} in this session: give an answer's step.")
        self.adapter.correct(image.features, label, step)
        detail = {"step": step, "label": label, "was": image.detail["label"]}
        return self._event("correction", detail)

    def add_class(self, name: str, text_feature: Vectors) -> Event:
        """Add a class."""
        self.adapter.add_class(name, text_feature)
        return self._event("class_added", {"name": name}, text_feature[None, :])

    def remove_class(self, name: str) -> Event:
        """Remove a class."""
        self.adapter.remove_class(name)
        return self._event("class_removed", {"name": name})

    def rename(self, name: str | None) -> Event:
        """Give the session another name, or none."""
        return self._event("renamed", {"name": name})

    def replay(self, event: Event) -> bool:
        """Learn an event of the log again; False if the answer differs."""
        detail = event.detail
        if event.kind == "answer":
            again = self.answer(event.features, detail["name"], None, len(detail["top"]))
            again.detail["thumbnail"] = detail["thumbnail"]
        elif event.kind == "correction":
            again = self.correct(detail["step"], detail["label"])
        elif event.kind == "class_added":
            assert event.features is not None
            again = self.add_class(detail["name"], event.features[0])
        elif event.kind == "renamed":
            again = self.rename(detail["name"])
        else:
            again = self.remove_class(detail["name"])
        self.digest = event.digest
        return {**again.detail, "at": detail["at"]} == detail

    def _event(
        self,
        kind: Kind,
        detail: dict[str, Any],
        features: Vectors | None = None,
        thumbnail: bytes | None = None,
    ) -> Event:
        self.seq += 1
        public = {"event": self.seq, "at": round(time.time(), 3), **detail}
        event = Event(kind, public, features, thumbnail)
        event.digest = self.digest = checksum(self.digest, kind, event.text, event.vectors)
        return event


def checksum(*parts: Any) -> bytes:
    """The digest of some values."""
    return hashlib.blake2b(msgpack.encode(parts), digest_size=16).digest()


def _damaged(session_id: str, seq: int) -> ProblemError:
    what = f"The log of session {session_id} is damaged at event {seq}: "
    return ProblemError(500, f"{what}restore --data from a copy, or delete the session.")


def started(
    session_id: str, start: dict[str, Any], text: Vectors | None, now: float, most: int
) -> Change:
    """Log a new session, unless there are ``most``; returns how many were logged."""
    values = (session_id, round(time.time(), 3), json.encode(start).decode(), _content(text))
    query = """INSERT INTO sessions (id, created, start, text_features, digest, used)
               SELECT ?, ?, ?, ?, ?, ? WHERE (SELECT count(*) FROM sessions) < ?"""
    row = (*values, checksum(*values), now, most)
    return lambda connection: connection.execute(query, row).rowcount


def happened(number: int, events: Sequence[Event], key: Key, thumbnails: int, now: float) -> Change:
    """Log new events of a session and the key of their request; keep ``thumbnails`` thumbnails."""

    def write(connection: sqlite3.Connection) -> bool:
        places = ", ".join("?" * 11)
        rows = [(*_columns(number, event), now) for event in events]
        connection.executemany(f"INSERT INTO events VALUES ({places})", rows)
        rows = [(number, e.seq, e.vectors) for e in events if e.vectors is not None]
        connection.executemany("INSERT INTO features VALUES (?, ?, ?)", rows)
        if key is not None:
            name, content, first, last = *key, events[0].seq, events[-1].seq
            values = (number, name, checksum(name, content, first, last), first, last)
            connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?)", values)
        shown = [(e.detail["step"], e.thumbnail) for e in events if e.thumbnail]
        if shown:
            rows = [(number, *each, checksum(*each)) for each in shown]
            connection.executemany("INSERT OR REPLACE INTO thumbnails VALUES (?, ?, ?, ?)", rows)
            older = "DELETE FROM thumbnails WHERE session = ? AND step <= ?"
            connection.execute(older, (number, shown[-1][0] - thumbnails))
        return True

    return write


def deleted(number: int) -> Change:
    """Delete a session and all that belongs to it."""
    query = "DELETE FROM sessions WHERE number = ?"
    return lambda connection: connection.execute(query, (number,))


def ran(seconds: float) -> Change:
    """Note for how long servers have run on this log: the clock by which sessions expire."""
    return lambda connection: connection.execute("UPDATE clock SET seconds = ?", (seconds,))


def _columns(number: int, event: Event) -> list[Any]:
    detail = event.detail
    label = NONE_OF_THESE if detail.get("none_of_these") else detail.get("label")
    kept = [detail.get("step"), label, detail.get("probability"), detail.get("changed")]
    return [number, event.seq, event.kind, detail["at"], *kept, event.text, event.digest]


def _content(vectors: Vectors | None) -> bytes | None:
    return None if vectors is None else np.ascontiguousarray(vectors, "<f4").tobytes()
