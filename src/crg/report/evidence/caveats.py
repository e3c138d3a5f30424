"""What a reader must know of the intervals: over what they are, and that there are many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crg.report.evidence.study import Contrast, Line, Study, Table
from crg.report.evidence.wording import called, listing, measured
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
