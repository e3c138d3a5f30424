"""Sentences about how rows start: over the first images of a stream, against zero-shot."""

from __future__ import annotations

from collections.abc import Sequence

from crg.report.evidence.study import Line, Study, Table
from crg.report.evidence.wording import (
    bracket,
    called,
    listing,
    measured,
    named,
    points,
    too_few,
)

Tables = Sequence[Table]
_OVER_THE_FIRST = {
    "better": "is better",
    "worse": "is worse",
    "": "cannot be told from it",
}


def start_on_source(study: Study, tables: Tables) -> list[str]:
    """From which number of images on each row is better than zero-shot."""
    said: list[str] = []
    for table in tables:
        words = [_start(line) for line in measured(table.lines) if line.first_gain]
        if words:
            said.append(f"On {named(table.source)}, against zero-shot: {'; '.join(words)}.")
    return said or [nothing_told(tables[0])]


def nothing_told(table: Table) -> str:
    """Why nothing is said of the start: it is too short, or the same for every row."""
    where = f"On {named(table.source)}"
    if any(line.run_once for line in measured(table.lines)):
        return f"{where} no row has a start: the order changes none of their answers."
    return f"{where} the stream is too short to tell of its start."


def _start(line: Line) -> str:
    gains, from_on = line.first_gain, better_from(line)
    doubtful = [gain for gain in gains.values() if gain.excludes_zero and not gain.verdict]
    if doubtful:
        return f"for {called(line.row)} there are {too_few(doubtful[0])}"
    words = []
    if from_on is not None:
        words.append(
            f"is better from the first {from_on} images on, "
            f"there by {points(gains[from_on].interval.mean)} {bracket(gains[from_on])}"
        )
    before = [n for n in sorted(gains) if from_on is None or n < from_on]
    for verdict, words_of_it in _OVER_THE_FIRST.items():
        sizes = [str(n) for n in before if gains[n].verdict == verdict]
        words += [f"{words_of_it} over the first {listing(sizes)} images"] if sizes else []
    words += ["is better over the whole stream"] if from_on is None and is_better(line) else []
    return f"{called(line.row)} {listing(words)}"


def better_from(line: Line) -> int | None:
    """The smallest of the numbers from which on it is better at every one, up to the whole."""
    found: int | None = None
    for n in sorted(line.first_gain, reverse=True):
        if not is_better(line) or line.first_gain[n].verdict != "better":
            break
        found = n
    return found


def is_better(line: Line) -> bool:
    """Whether it is judged better than zero-shot over the whole stream."""
    return line.to_zero_shot is not None and line.to_zero_shot.verdict == "better"


def start_overall(study: Study) -> list[str]:
    """On how many sources each row is better over the first n images, and on how many worse."""
    words: list[str] = []
    for row in study.outline.rows:
        lines = [table.line(row.label) for table in study.tables]
        told = [told for verdict in ("better", "worse") if (told := _judged_so(verdict, lines))]
        if told:
            words.append(f"{called(row)} is {' and '.join(told)}")
        elif any(line.first_gain for line in lines):
            words.append(f"{called(row)} is neither better nor worse on any source")
    return [f"Against zero-shot over the first images: {'; '.join(words)}."] if words else []


def _judged_so(verdict: str, lines: Sequence[Line]) -> str:
    """Such as "better over the first 100 on 1 of 3 and 200 on 3 of 3 sources"."""
    counts: list[str] = []
    for n in sorted({n for line in lines for n in line.first_gain}):
        known = [line.first_gain[n].verdict for line in lines if n in line.first_gain]
        found = known.count(verdict)
        counts += [f"{n} on {found} of {len(known)}"] if found else []
    return f"{verdict} over the first {listing(counts)} sources" if counts else ""
