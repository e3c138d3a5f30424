"""Sentences that say what an experiment shows, made of its figures and nothing else."""

from __future__ import annotations

from collections import Counter

from crg.report.evidence import comparing, starting, stepping, streaming, sweeping
from crg.report.evidence.caveats import once_note, verdicts_note
from crg.report.evidence.study import Line, Study
from crg.report.evidence.wording import TUNED, listing, many

__all__ = ["TUNED", "findings_on", "once_note", "sentences_of", "verdicts_note", "watermark"]

_ON_SOURCE = {
    "purity": sweeping.error_on_source,
    "waterfall": stepping.steps_on_source,
    "sweep": sweeping.range_on_source,
    "heat": sweeping.range_on_source,
    "noise": stepping.noise_on_source,
    "streams": streaming.streams_on_source,
    "cold_start": starting.start_on_source,
    "shots": comparing.labels_on_source,
}
_OVERALL = {
    "purity": sweeping.error_overall,
    "waterfall": stepping.steps_overall,
    "sweep": sweeping.range_overall,
    "heat": sweeping.range_overall,
    "noise": stepping.noise_overall,
    "streams": streaming.streams_overall,
    "cold_start": starting.start_overall,
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
