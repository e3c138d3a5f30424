"""Sentences about streams: where rows fall below zero-shot, and how they start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from crg.evidence.study import Contrast, Line, Study, Table
from crg.evidence.wording import TOO_FEW, bracket, called, listing, many, measured, named, points

Tables = Sequence[Table]
_Placed = tuple[Table, Contrast]


def streams_on_source(study: Study, tables: Tables) -> list[str]:
    """In how many streams each row falls below zero-shot, and by how much at its worst."""
    return _falls(study, tables, f"On {named(tables[0].source)}", names_source=False)


def streams_overall(study: Study) -> list[str]:
    """The same over all sources."""
    return _falls(study, study.tables, "Over all sources", names_source=True)


def _falls(study: Study, tables: Tables, where: str, names_source: bool) -> list[str]:
    said: list[str] = []
    never: dict[int, list[str]] = {}
    for row in study.outline.rows:
        placed = _gains(tables, row.label)
        below = [each for each in placed if each[1].interval.mean < 0]
        if below:
            said.append(f"{called(row)} {_fall(below, len(placed), names_source)}.")
        elif placed:
            never.setdefault(len(placed), []).append(called(row))
    for count, labels in never.items():
        verb = "falls" if len(labels) == 1 else "fall"
        total = many(count, "stream")
        said.append(f"{listing(labels)} {verb} below zero-shot in none of {total}.")
    return [f"{where}: {said[0]}", *said[1:]] if said else []


def _gains(tables: Tables, label: str) -> list[_Placed]:
    found = ((table, table.line(label).to_zero_shot) for table in tables)
    return [(table, contrast) for table, contrast in found if contrast is not None]


def _fall(below: Sequence[_Placed], total: int, names_source: bool) -> str:
    table, worst = min(below, key=lambda each: each[1].interval.mean)
    judged = sum(contrast.verdict == "worse" for _, contrast in below)
    place = f"{named(table.source)}, {table.setting.label}" if names_source else table.setting.label
    return (
        f"falls below zero-shot in {len(below)} of {many(total, 'stream')} "
        f"(judged worse in {judged}), at worst by {points(worst.interval.mean)} "
        f"{bracket(worst, turned=True)}: {place}"
    )


def start_on_source(study: Study, tables: Tables) -> list[str]:
    """From which number of pictures on each row is better than zero-shot."""
    said: list[str] = []
    for table in tables:
        words = [_start(line) for line in measured(table.lines) if line.first_gain]
        if words:
            said.append(f"On {named(table.source)}, against zero-shot: {'; '.join(words)}.")
    return said or [f"On {named(tables[0].source)} the stream is too short to tell of its start."]


def _start(line: Line) -> str:
    gains = line.first_gain
    sizes = sorted(gains)
    from_on = better_from(line)
    if any(gain.excludes_zero and not gain.verdict for gain in gains.values()):
        return f"for {called(line.row)} there are {TOO_FEW}"
    if from_on is None:
        sentence = f"{called(line.row)} is not better over the first {listing(map(str, sizes))}"
    else:
        sentence = (
            f"{called(line.row)} is better from the first {from_on} pictures on, "
            f"there by {points(gains[from_on].interval.mean)} {bracket(gains[from_on])}"
        )
    worse = [n for n in sizes if gains[n].verdict == "worse"]
    return sentence + (f", and worse over the first {listing(map(str, worse))}" if worse else "")


def better_from(line: Line) -> int | None:
    """The smallest of the numbers from which on it is better at every one."""
    found: int | None = None
    for n in sorted(line.first_gain, reverse=True):
        if line.first_gain[n].verdict != "better":
            break
        found = n
    return found


def start_overall(study: Study) -> list[str]:
    """On how many sources each row is better over the first n pictures, and on how many worse."""
    words: list[str] = []
    for row in study.outline.rows:
        lines = [table.line(row.label) for table in study.tables]
        told = [
            _judged_at(n, lines) for n in sorted({n for line in lines for n in line.first_gain})
        ]
        if told:
            words.append(f"{called(row)} {listing(told)}")
    return [f"Against zero-shot over the first pictures: {'; '.join(words)}."] if words else []


def _judged_at(n: int, lines: Sequence[Line]) -> str:
    known = [line.first_gain[n] for line in lines if n in line.first_gain]
    kinds = Counter(contrast.verdict for contrast in known)
    worse = f" and worse on {kinds['worse']}" if kinds["worse"] else ""
    return f"is better on {kinds['better']}{worse} of {many(len(known), 'source')} after {n}"
