"""Sentences about streams: how rows start, and where they fall below zero-shot or themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crg.report.evidence.study import Contrast, Line, Study, Table
from crg.report.evidence.wording import (
    bracket,
    called,
    listing,
    many,
    measured,
    named,
    points,
    quoted,
    too_few,
)
from crg.results.outline import ENOUGH_IMAGES

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


_Placed = tuple[Table, Contrast]


def streams_on_source(study: Study, tables: Tables) -> list[str]:
    """In how many streams each row falls below zero-shot or below its own gain in the first."""
    falls = _falls(study, tables, f"On {named(tables[0].source)}", names_source=False)
    return [*falls, *_shifts(study, tables, names_source=False)]


def streams_overall(study: Study) -> list[str]:
    """The same over all sources."""
    falls = _falls(study, study.tables, "Over all sources", names_source=True)
    return [*falls, *_shifts(study, study.tables, names_source=True)]


def _falls(study: Study, tables: Tables, where: str, names_source: bool) -> list[str]:
    said: list[str] = []
    never: dict[int, list[str]] = {}
    for row in study.outline.rows:
        placed = placed_gains(tables, row.label)
        below = [each for each in placed if each[1].interval.mean < 0]
        if below:
            said.append(f"{called(row)} {_fall(below, len(placed), names_source)}.")
        elif placed:
            never.setdefault(len(placed), []).append(called(row))
    for count, labels in never.items():
        verb = "falls" if len(labels) == 1 else "fall"
        total = many(count, "stream")
        said.append(f"{listing(labels)} {verb} below zero-shot in none of {total}.")
    said += left_out(tables, names_source)
    return [f"{where}: {said[0]}", *said[1:]] if said else []


def left_out(tables: Tables, names_source: bool) -> list[str]:
    """A sentence about the streams that are too short to be a worst case, if there are any."""
    small = [_place(table, names_source) for table in tables if not table.has_enough_images]
    why = f"fewer than {ENOUGH_IMAGES} images were scored in an order"
    return [f"Not counted for the worst case, because {why}: {listing(small)}."] if small else []


def _place(table: Table, names_source: bool) -> str:
    """A setting, with the source where there are several."""
    setting = table.setting.label
    return f"{named(table.source)} ({setting})" if names_source else quoted(setting)


def placed_gains(tables: Tables, label: str) -> list[_Placed]:
    """Where a row stands against zero-shot, in the streams that are long enough to tell."""
    return _long_enough((table, table.line(label).to_zero_shot) for table in tables)


def _fall(below: Sequence[_Placed], total: int, names_source: bool) -> str:
    table, worst = min(below, key=lambda each: each[1].interval.mean)
    judged = sum(contrast.verdict == "worse" for _, contrast in below)
    return (
        f"falls below zero-shot in {len(below)} of {many(total, 'stream')} "
        f"(judged worse in {judged}), at worst by {points(worst.interval.mean)} "
        f"{bracket(worst, turned=True)}: {_place(table, names_source)}"
    )


def placed_shifts(tables: Tables, label: str) -> list[_Placed]:
    """The gain of a row against its own in the first setting, where it has been there, too."""
    return _long_enough((table, table.line(label).to_first_setting) for table in tables)


def _long_enough(found: Iterable[tuple[Table, Contrast | None]]) -> list[_Placed]:
    return [
        (table, contrast)
        for table, contrast in found
        if contrast is not None and table.has_enough_images
    ]


def _shifts(study: Study, tables: Tables, names_source: bool) -> list[str]:
    """In how many streams the gain of a row is judged another than in the first, and the worst."""
    said: list[str] = []
    neither: list[str] = []
    before = f"gain over zero-shot in {quoted(study.outline.settings[0].label)}"
    for row in study.outline.rows:
        placed = placed_shifts(tables, row.label)
        if any(contrast.verdict for _, contrast in placed):
            said.append(f"Against its own {before}, {called(row)} {_shift(placed, names_source)}.")
        elif placed:
            neither.append(called(row))
    if neither:
        whose, verb = ("its", "is") if len(neither) == 1 else ("their", "are")
        said.append(
            f"Against {whose} own {before}, {listing(neither)} {verb} judged neither worse nor "
            "better in any stream."
        )
    return said


def _shift(placed: Sequence[_Placed], names_source: bool) -> str:
    worse, better = (
        [each for each in placed if each[1].verdict == verdict] for verdict in ("worse", "better")
    )
    total = many(len(placed), "stream")
    said = f"is judged worse in {len(worse)} and better in {len(better)} of {total}"
    if not worse:
        return said
    table, worst = min(worse, key=lambda each: each[1].interval.mean)
    size = f"{points(worst.interval.mean)} {bracket(worst, turned=True)}"
    return f"{said}, at worst by {size}: {_place(table, names_source)}"
