"""Sentences that say what an experiment shows, made of its figures and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from crg.report.evidence import (
    comparing,
    stepping,
    streaming,
)
from crg.report.evidence.study import Contrast, Line, Study, Table
from crg.report.evidence.wording import TUNED, called, listing, many, measured
from crg.results.outline import LABELLED_IMAGES


def once_note(study: Study) -> str:
    """Which rows were run once, and which luck is in no interval; empty where there is none."""
    lines = [line for table in study.tables for line in measured(table.lines)]
    once = _names(line for line in lines if line.run_once)
    few = _names(line for line in lines if LABELLED_IMAGES in line.row.needs)
    said = [_run_once(once, lines)] if once else []
    said += [_one_draw(few, named_before=few == once)] if few else []
    return " ".join(said)


def _run_once(names: Sequence[str], lines: Sequence[Line]) -> str:
    """With zero-shot they share the one order, so that the bootstrap draws images only."""
    in_part = any(called(line.row) in names for line in lines if not line.run_once)
    where = " wherever all orders have the same images" if in_part else ""
    verb, their = ("was", "its") if len(names) == 1 else ("were", "their")
    return (
        f"{listing(names)} {verb} run once{where}, because the order changes none of {their} "
        "answers: no spread over orders is shown, and the interval against zero-shot is over "
        "images only."
    )


def _one_draw(names: Sequence[str], named_before: bool) -> str:
    who, verb = ("It", "learns") if len(names) == 1 else ("They", "learn")
    return (
        f"{who if named_before else listing(names)} {verb} from labelled images, the same ones "
        "in every run: the luck of that one draw is in no interval."
    )


def _names(lines: Iterable[Line]) -> list[str]:
    return list(dict.fromkeys(called(line.row) for line in lines))


def verdicts_note(studies: Sequence[Study]) -> str:
    """How many intervals there are, how many give a verdict, and what chance makes of so many."""
    found = [each for study in studies for table in study.tables for each in _intervals(table)]
    if not found:
        return ""
    judged = sum(bool(contrast.verdict) for contrast in found)
    return (
        f"There are {len(found):,} intervals against zero-shot and best rivals here, and "
        f"{judged:,} of them carry a verdict, better or worse. Of intervals between rows that "
        "truly differ in nothing, about one in twenty would exclude zero by chance."
    )


def _intervals(table: Table) -> list[Contrast]:
    """Each pair of rows once: two that are each other's best rival share one interval."""
    found: dict[frozenset[str], Contrast] = {}
    for line in table.lines:
        for contrast in (line.to_zero_shot, line.to_best_rival):
            if contrast is not None:
                found.setdefault(frozenset((line.row.label, contrast.against)), contrast)
    return list(found.values())


__all__ = ["TUNED", "findings_on", "once_note", "sentences_of", "verdicts_note", "watermark"]

_ON_SOURCE = {
    "purity": comparing.error_on_source,
    "waterfall": stepping.steps_on_source,
    "sweep": comparing.range_on_source,
    "heat": comparing.range_on_source,
    "noise": stepping.noise_on_source,
    "streams": streaming.streams_on_source,
    "cold_start": streaming.start_on_source,
    "shots": comparing.labels_on_source,
}
_OVERALL = {
    "purity": comparing.error_overall,
    "waterfall": stepping.steps_overall,
    "sweep": comparing.range_overall,
    "heat": comparing.range_overall,
    "noise": stepping.noise_overall,
    "streams": streaming.streams_overall,
    "cold_start": streaming.start_overall,
    "shots": comparing.labels_overall,
}


def watermark(line: Line) -> str:
    """What must stand beside a row whose options were chosen with labels; empty for others."""
    return TUNED if line.row.tuned else ""


def sentences_of(study: Study) -> tuple[str, ...]:
    """What the experiment shows as a whole, for the head of its section; plain text."""
    names = list(dict.fromkeys(table.source.name for table in study.tables))
    if len(names) > 1:
        said = _OVERALL.get(study.outline.figure, comparing.table_overall)(study)
    else:
        said = [sentence for name in names for sentence in findings_on(study, name)]
    return (*said, *_what_is_missing(study))


def findings_on(study: Study, source_name: str) -> list[str]:
    """All that is found on one source, row by row; plain text."""
    tables = study.tables_of(source_name)
    if not any(line.accuracy is not None for table in tables for line in table.lines):
        return [f"On {source_name} no accuracy was measured."]
    return _ON_SOURCE.get(study.outline.figure, comparing.table_on_source)(study, tables)


def _what_is_missing(study: Study) -> list[str]:
    """Rows that failed and images that were not there."""
    said: list[str] = []
    kinds = Counter(line.status for table in study.tables for line in table.lines)
    words = [f"{kinds[kind]} {kind}" for kind in ("failed", "incomplete", "not run") if kinds[kind]]
    if words:
        total = many(sum(kinds.values()), "row")
        said.append(f"Of {total} in all tables: {listing(words)}; the tables say why.")
    if study.missing:
        total = many(len(study.outline.sources), "source")
        verb = "was" if len(study.missing) == 1 else "were"
        said.append(f"Of {total} {len(study.missing)} {verb} not there to be measured.")
    return said
