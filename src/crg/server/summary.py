"""Summaries of a session: its line in a list, counts, classes and curves."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from crg.server.event_log import Log, StoredSession

_POINTS = 100  # of a curve
_CLASSES = 12  # that have a curve


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
        **dict(listed(log, number + 1, 1, number - 1)).get(number, {}),
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


_LINE = ("id", "name", "created", "last_used", "method", "views", "n_classes", "images")
_LINES = """SELECT number, id, json_extract(ifnull((SELECT detail FROM events WHERE session = number
        AND kind = 'renamed' AND json_valid(detail) ORDER BY seq DESC LIMIT 1), start), '$.name'),
    created, ifnull((SELECT at FROM events WHERE session = number
        ORDER BY seq DESC LIMIT 1), created),
    json_extract(start, '$.method'), json_extract(start, '$.views'),
    json_array_length(start, '$.classes') + (SELECT ifnull(sum(iif(kind = 'class_added', 1, -1)), 0)
        FROM events WHERE session = number AND kind IN ('class_added', 'class_removed')),
    ifnull((SELECT max(step) FROM events WHERE session = number)
        - json_extract(start, '$.seen'), 0)
    FROM sessions WHERE json_valid(start) AND number > ? AND number < ?
    ORDER BY number DESC LIMIT ?"""


def listed(log: Log, before: int, limit: int, after: int = 0) -> list[tuple[int, dict[str, Any]]]:
    """Number and line of the sessions with numbers between two, newest first."""
    rows = log.rows(_LINES, after, before, limit)
    return [(number, dict(zip(_LINE, line, strict=True))) for number, *line in rows]


def classes_of(log: Log, row: StoredSession) -> list[str]:
    """The classes of a session as they are now."""
    names = dict.fromkeys(row.start["classes"])
    query = """SELECT kind, json_extract(detail, '$.name') FROM events WHERE session = ?
               AND kind IN ('class_added', 'class_removed') ORDER BY seq"""
    for kind, name in log.rows(query, row.number):
        names.pop(name, None)
        names |= {name: None} if kind == "class_added" else {}
    return list(names)


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


def size_of(row: StoredSession, n_classes: int) -> int:
    """About how many bytes a session takes in memory."""
    return int(row.start["size"] * max(1, n_classes / len(row.start["classes"])))
