"""A session in figures, for its page: counts, answers per class and curves."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from msgspec import json

from crg.server.event_log import Log, StoredSession

_POINTS = 100
_CLASSES = 12  # that have a curve


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
