"""Figures: a session's counts and curves for its page, and the service's counters."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Any

from msgspec import json
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from crg.server.event_log import Log, StoredSession

_POINTS = 100
_CLASSES = 12  # that have a curve
_METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH")
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


def summarise(log: Log, row: StoredSession) -> dict[str, Any]:
    """A session as ``GET /v1/sessions/{id}`` gives it."""
    number, classes = row.number, classes_of(log, row)
    [(event, changed, corrections, first, last)] = log.rows(
        """SELECT ifnull(max(seq), 0), ifnull(sum(changed), 0),
           count(*) FILTER (WHERE kind = 'correction'), ifnull(min(step), 0), ifnull(max(step), 0)
           FROM events WHERE session = ?""",
        number,
    )
    labels = log.rows(
        """SELECT label, count(*) FROM events WHERE session = ? AND kind = 'answer'
           GROUP BY label ORDER BY count(*) DESC, label""",
        number,
    )
    return {
        **brief(log, row, classes),
        "model": row.start["model"],
        "options": row.start["options"],
        "classes": classes,
        "event": event,
        "changed": changed,
        "corrections": corrections,
        "per_class": dict(labels),
        "curves": _curves(log, number, first, last, [name for name, _ in labels[:_CLASSES]]),
    }


def brief(log: Log, row: StoredSession, classes: list[str] | None = None) -> dict[str, Any]:
    """The line of a session in a list."""
    [(last, at)] = log.rows(
        """SELECT (SELECT max(step) FROM events WHERE session = ?1),
           (SELECT at FROM events WHERE session = ?1 ORDER BY seq DESC LIMIT 1)""",
        row.number,
    )
    return {
        "id": row.id,
        "created": row.created,
        "last_used": at or row.created,
        "method": row.start["method"],
        "views": row.start["views"],
        "n_classes": len(classes or classes_of(log, row)),
        "images": 0 if last is None else last - row.start["seen"],
    }


def classes_of(log: Log, row: StoredSession) -> list[str]:
    """The classes of a session as they are now."""
    changes = log.rows(
        """SELECT detail FROM events WHERE session = ?
           AND kind IN ('class_added', 'class_removed') ORDER BY seq DESC LIMIT 1""",
        row.number,
    )
    names: list[str] = json.decode(changes[0][0])["classes"] if changes else row.start["classes"]
    return names


def _curves(log: Log, number: int, first: int, last: int, names: list[str]) -> dict[str, Any]:
    """At most 100 points: means since the point before, and counts so far."""
    width = max(1, -(-(last - first + 1) // _POINTS))
    points = log.rows(
        """SELECT (step - ?) / ?, max(step), avg(probability), avg(changed) FROM events
           WHERE session = ? AND kind = 'answer' GROUP BY 1 ORDER BY 1""",
        *(first, width, number),
    )
    counts = log.rows(
        """SELECT (step - ?) / ?, label, count(*) FROM events
           WHERE session = ? AND kind = 'answer' GROUP BY 1, 2""",
        *(first, width, number),
    )
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


class Counters:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = own = CollectorRegistry()
        counter, gauge = partial(Counter, registry=own), partial(Gauge, registry=own)
        histogram = partial(Histogram, registry=own)
        self.requests = counter(
            "crg_requests", "Requests by route and status.", ["method", "route", "status"]
        )
        self.seconds = histogram(
            "crg_request_seconds", "Time to the end of an answer.", ["route"], buckets=_SECONDS
        )
        self.images = counter("crg_images", "Images answered.")
        self.changed = counter("crg_changed", "Answers that adaptation changed.")
        self.corrections = counter("crg_corrections", "Corrections learnt.")
        self.batch_size = histogram(
            "crg_batch_size", "Views per call of the encoder.", buckets=_SIZES
        )
        self.commit_size = histogram("crg_commit_size", "Changes per commit.", buckets=_SIZES)
        self.waiting = gauge("crg_waiting_images", "Images that wait.")
        self.waiting_bytes = gauge("crg_waiting_bytes", "Bytes of requests.")
        self.loaded = gauge("crg_loaded_sessions", "Sessions in memory.")
        self.watchers = gauge("crg_watchers", "Open streams of events.")
        self.replay_differences = counter("crg_replay_differences", "Replayed answers that differ.")

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        known = method if method in _METHODS else "other"
        self.requests.labels(known, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)
