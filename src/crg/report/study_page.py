"""The report of experiments: one page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from crg.report.evidence.cells import TIMES
from crg.report.evidence.leading import BOLD
from crg.report.evidence.sentences import verdicts_note
from crg.report.evidence.study import Study
from crg.report.markup import paragraph, slug
from crg.report.study_section import study_section
from crg.report.style import SCRIPT, STUDY_STYLE, STYLE
from crg.report.writing import GENERATOR
from crg.results.outline import ENOUGH_IMAGES, ENOUGH_ORDERS

_WHEN = "measured"
TITLE = "Test-time adaptation: what was measured"


def study_page(studies: Sequence[Study]) -> str:
    """The page of ``crg report``."""
    body = "".join(study_section(study) for study in studies)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"{GENERATOR}<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(TITLE)}</title><style>{STYLE}{STUDY_STYLE}</style></head>"
        f"<body><main class='studies'><h1>{escape(TITLE)}</h1>{_head(studies)}"
        f"{_contents(studies)}{body}</main><script>{SCRIPT}</script></body></html>\n"
    )


def _head(studies: Sequence[Study]) -> str:
    """What was run, how much of it, on what."""
    facts = {"runs": _runs(studies), **_when(studies)}
    for study in studies:
        for name, value in study.machine.items():
            if name != _WHEN:
                facts[name] = _joined(facts.get(name), value)
    rows = "".join(
        f"<dt>{escape(k.replace('_', ' '))}</dt><dd>{escape(v)}</dd>" for k, v in facts.items()
    )
    caveats = paragraph(" ".join(filter(None, (verdicts_note(studies), TIMES))), "lead")
    return f"{_reading()}{caveats}<dl>{rows}</dl>"


def _reading() -> str:
    return (
        "<p class='lead'>Differences are in points of accuracy, on the same images in the same "
        "order, with a paired 95% interval over images and orders. “Better” (▲) and “worse” "
        "(▼) stand only where that interval leaves out zero, and only with at least "
        f"{ENOUGH_ORDERS} orders of at least {ENOUGH_IMAGES} scored images each. "
        f"{escape(BOLD)} Bands are one standard deviation over stream orders unless the caption "
        "says otherwise.</p>"
    )


def _runs(studies: Sequence[Study]) -> str:
    lines = [line for study in studies for table in study.tables for line in table.lines]
    runs = len({(trace.file, trace.line) for line in lines for trace in line.traces})
    states = [line.status for line in lines]
    parts = [f"{runs} runs of {len(studies)} experiment{'s' if len(studies) > 1 else ''}"]
    for status in ("failed", "incomplete", "not run"):
        count = states.count(status)
        parts += [f"{count} row{'s' if count > 1 else ''} {status}"] if count else []
    missing = len({source.name for study in studies for source in study.missing})
    parts += [f"{missing} source{'s' if missing > 1 else ''} missing"] if missing else []
    return ", ".join(parts)


def _when(studies: Sequence[Study]) -> dict[str, str]:
    """From the first run of all to the last."""
    spans = [study.machine[_WHEN].split(" to ") for study in studies if _WHEN in study.machine]
    if not spans:
        return {}
    first, last = min(span[0] for span in spans), max(span[-1] for span in spans)
    text = first if first == last else f"{first} to {last}"
    return {_WHEN: text.replace("T", " ").replace("+00:00", " UTC")}


def _joined(before: str | None, value: str) -> str:
    """All distinct values of a fact."""
    known = before.split("; ") if before else []
    return "; ".join(known if value in known else [*known, value])


def _contents(studies: Sequence[Study]) -> str:
    if len(studies) < 2:
        return ""
    items = "".join(
        f"<li><a href='#{slug(study.outline.name)}'>{escape(study.outline.title)}</a></li>"
        for study in studies
    )
    return f"<nav aria-label='Contents'><ol>{items}</ol></nav>"
