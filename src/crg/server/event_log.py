"""The log on disk: one ordered list of events per session, in SQLite, synced at every commit.

One transaction writes an event with the features of its image, its answer and the idempotency key
of its request. So the log holds a prefix of all events, with every event that was answered.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import json

from crg.answer import NONE_OF_THESE
from crg.encoders.base import Vectors
from crg.types import InputError

Kind: TypeAlias = Literal["answer", "correction", "class_added", "class_removed", "renamed"]
Key: TypeAlias = tuple[str, bytes] | None  # idempotency key of a request, and digest of its body
Change: TypeAlias = Callable[[sqlite3.Connection], object]  # for ``Log.commit``
_VERSION = 3
_TABLES = """
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, created REAL NOT NULL,
    start TEXT NOT NULL, text_features BLOB);
CREATE TABLE events (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE, seq INTEGER NOT NULL,
    kind TEXT NOT NULL, at REAL NOT NULL, step INTEGER, label TEXT, probability REAL,
    changed INTEGER, detail TEXT NOT NULL, PRIMARY KEY (session, seq)) WITHOUT ROWID;
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
    jpeg BLOB NOT NULL, PRIMARY KEY (session, step));
"""
_PAGE = 500  # rows that are read at a time
_POINTS = 100  # of a curve
_CLASSES = 12  # that have a curve


@dataclass(frozen=True)
class Event:
    """An event in a session; ``detail`` is its public form."""

    kind: Kind
    detail: dict[str, Any]
    features: Vectors | None = None  # of the image (V, D), or of the text of a class (1, D)
    thumbnail: bytes | None = None

    @property
    def seq(self) -> int:
        """Its number in the session, from 1."""
        return int(self.detail["event"])


@dataclass(frozen=True)
class StoredSession:
    """A session as it was started."""

    number: int
    id: str
    created: float
    start: dict[str, Any]  # name, classes, logit_scale, model, method, options, views, seen
    text_features: Vectors | None  # (K, D); None: it was started from a state


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
            sentence = f"{path} cannot be used ({error}): choose another folder with --data."
            raise InputError(sentence) from None

    def close(self) -> None:
        """Close every connection."""
        for connection in (*self._readers, self._writer):
            connection.close()

    def commit(self, changes: Sequence[Change]) -> list[None]:
        """Write all changes in one transaction; if one fails, none is written."""
        with self._writer:  # commits, or rolls back
            self._writer.execute("BEGIN IMMEDIATE")
            for change in changes:
                change(self._writer)
        return [None] * len(changes)

    def find(self, session_id: str) -> StoredSession | None:
        """A session by its id."""
        rows = self.rows("SELECT * FROM sessions WHERE id = ?", session_id)
        return self._row(rows[0]) if rows else None

    def newest(self, before: int, limit: int) -> list[StoredSession]:
        """Sessions, those that were started last first."""
        query = "SELECT * FROM sessions WHERE number < ? ORDER BY number DESC LIMIT ?"
        return [self._row(row) for row in self.rows(query, before, limit)]

    def unused_since(self, moment: float) -> list[str]:
        """The ids of sessions in which nothing happened after ``moment``."""
        query = """SELECT id FROM sessions WHERE ifnull((SELECT at FROM events
                   WHERE session = number ORDER BY seq DESC LIMIT 1), created) < ?"""
        return [row[0] for row in self.rows(query, moment)]

    def events(self, number: int, after: int) -> Iterator[list[Event]]:
        """The events after one, with features, some at a time."""
        while some := self._events("seq > ? ORDER BY seq LIMIT ?", number, after, _PAGE):
            after = some[-1].seq
            yield some

    def last(self, number: int) -> int:
        """The number of the last event; 0 before the first."""
        query = "SELECT ifnull(max(seq), 0) FROM events WHERE session = ?"
        return int(self.rows(query, number)[0][0])

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
        query = "SELECT jpeg FROM thumbnails WHERE session = ? AND step = ?"
        rows = self.rows(query, number, step)
        return rows[0][0] if rows else None

    def known(self, number: int, key: str) -> tuple[bytes, list[str]] | None:
        """Digest of the request with this idempotency key, and the details of its events."""
        query = "SELECT digest, first, last FROM keys WHERE session = ? AND key = ?"
        for digest, first, last in self.rows(query, number, key):
            events = "SELECT detail FROM events WHERE session = ? AND seq BETWEEN ? AND ?"
            return digest, [detail for (detail,) in self.rows(events, number, first, last)]
        return None

    def rows(self, query: str, *values: Any) -> list[Any]:
        """The rows of a query that only reads; any thread may ask."""
        if not hasattr(self._here, "connection"):
            self._here.connection = self._connect()
            self._here.connection.execute("PRAGMA query_only = ON")
            self._readers.append(self._here.connection)
        return list(self._here.connection.execute(query, values))

    def _events(self, condition: str, *values: int) -> list[Event]:
        query = f"""SELECT kind, detail, vectors FROM events LEFT JOIN features
                    USING (session, seq) WHERE session = ? AND {condition}"""
        return [
            Event(kind, json.decode(detail), self._vectors(vectors))
            for kind, detail, vectors in self.rows(query, *values)
        ]

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA busy_timeout = 10000")
        return connection

    def _prepare(self) -> None:
        for pragma in ("journal_mode = WAL", "foreign_keys = ON"):
            self._writer.execute(f"PRAGMA {pragma}")
        [version] = self._writer.execute("PRAGMA user_version").fetchone()
        if version == 0:
            made = f"BEGIN; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;"
            self._writer.executescript(made)
        elif version != _VERSION:
            raise InputError(f"{self._path} was written by another version of crg: "
                             "choose another folder with --data.")  # fmt: skip

    def _row(self, row: Any) -> StoredSession:
        number, session_id, created, start, text = row
        return StoredSession(number, session_id, created, json.decode(start), self._vectors(text))

    def _vectors(self, content: bytes | None) -> Vectors | None:
        array = None if content is None else np.frombuffer(content, "<f4").astype(np.float32)
        return None if array is None else array.reshape(-1, self._width)


def started(session_id: str, created: float, start: dict[str, Any], text: Vectors | None) -> Change:
    """Log a new session."""
    query = "INSERT INTO sessions (id, created, start, text_features) VALUES (?, ?, ?, ?)"
    values = (session_id, created, json.encode(start).decode(), _content(text))
    return lambda connection: connection.execute(query, values)


def happened(number: int, events: Sequence[Event], key: Key, thumbnails: int) -> Change:
    """Log new events of a session and the key of their request; keep ``thumbnails`` thumbnails."""

    def write(connection: sqlite3.Connection) -> None:
        rows = [_columns(number, event) for event in events]
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        rows = [(number, e.seq, _content(e.features)) for e in events if e.features is not None]
        connection.executemany("INSERT INTO features VALUES (?, ?, ?)", rows)
        if key is not None:
            values = (number, *key, events[0].seq, events[-1].seq)
            connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?)", values)
        shown = [(number, e.detail["step"], e.thumbnail) for e in events if e.thumbnail]
        if shown:
            connection.executemany("INSERT OR REPLACE INTO thumbnails VALUES (?, ?, ?)", shown)
            older = "DELETE FROM thumbnails WHERE session = ? AND step <= ?"
            connection.execute(older, (number, shown[-1][1] - thumbnails))

    return write


def deleted(number: int) -> Change:
    """Delete a session and all that belongs to it."""
    query = "DELETE FROM sessions WHERE number = ?"
    return lambda connection: connection.execute(query, (number,))


def _columns(number: int, event: Event) -> tuple[Any, ...]:
    detail = event.detail
    label = NONE_OF_THESE if detail.get("none_of_these") else detail.get("label")
    kept = [detail.get("step"), label, detail.get("probability"), detail.get("changed")]
    return (number, event.seq, event.kind, detail["at"], *kept, json.encode(detail).decode())


def _content(vectors: Vectors | None) -> bytes | None:
    return None if vectors is None else np.ascontiguousarray(vectors, "<f4").tobytes()


def summarise(log: Log, row: StoredSession) -> dict[str, Any]:
    """A session as ``GET /v1/sessions/{id}`` gives it."""
    number = row.number
    counts = """SELECT ifnull(max(seq), 0), ifnull(sum(changed), 0),
                count(*) FILTER (WHERE kind = 'correction'), ifnull(min(step), 0),
                ifnull(max(step), 0) FROM events WHERE session = ?"""
    [(event, changed, corrections, first, last)] = log.rows(counts, number)
    per_class = """SELECT label, count(*) FROM events WHERE session = ? AND kind = 'answer'
                   GROUP BY label ORDER BY count(*) DESC, label"""
    labels = log.rows(per_class, number)
    return {
        **brief(log, row),
        "model": row.start["model"],
        "options": row.start["options"],
        "decisions": {name: row.start.get(name) for name in ("none_of_these", "sets")},
        "classes": classes_of(log, row),
        "event": event,
        "changed": changed,
        "corrections": corrections,
        "per_class": dict(labels),
        "curves": _curves(log, number, first, last, [name for name, _ in labels[:_CLASSES]]),
    }


def brief(log: Log, row: StoredSession) -> dict[str, Any]:
    """The line of a session in a list."""
    query = """SELECT (SELECT max(step) FROM events WHERE session = ?1),
               (SELECT at FROM events WHERE session = ?1 ORDER BY seq DESC LIMIT 1),
               (SELECT detail FROM events WHERE session = ?1 AND kind = 'renamed'
                ORDER BY seq DESC LIMIT 1)"""
    [(last, at, renamed)] = log.rows(query, row.number)
    return {
        "id": row.id,
        "name": (json.decode(renamed) if renamed else row.start)["name"],
        "created": row.created,
        "last_used": at or row.created,
        "method": row.start["method"],
        "views": row.start["views"],
        "n_classes": len(classes_of(log, row)),
        "images": 0 if last is None else last - row.start["seen"],
    }


def classes_of(log: Log, row: StoredSession) -> list[str]:
    """The classes of a session as they are now."""
    query = """SELECT detail FROM events WHERE session = ?
               AND kind IN ('class_added', 'class_removed') ORDER BY seq DESC LIMIT 1"""
    changes = log.rows(query, row.number)
    names: list[str] = json.decode(changes[0][0])["classes"] if changes else row.start["classes"]
    return names


def _curves(log: Log, number: int, first: int, last: int, names: list[str]) -> dict[str, Any]:
    """At most 100 points: means since the point before, and counts so far."""
    width = max(1, -(-(last - first + 1) // _POINTS))
    query = """SELECT (step - ?) / ?, max(step), avg(probability), avg(changed) FROM events
               WHERE session = ? AND kind = 'answer' GROUP BY 1 ORDER BY 1"""
    points = log.rows(query, first, width, number)
    query = """SELECT (step - ?) / ?, label, count(*) FROM events
               WHERE session = ? AND kind = 'answer' GROUP BY 1, 2"""
    counts = log.rows(query, first, width, number)
    found = {(point, label): count for point, label, count in counts}
    return {
        "step": [step for _, step, _, _ in points],
        "probability": [probability for _, _, probability, _ in points],
        "changed": [changed for _, _, _, changed in points],
        "per_class": {
            name: list(accumulate(found.get((point[0], name), 0) for point in points))
            for name in names
        },
    }
