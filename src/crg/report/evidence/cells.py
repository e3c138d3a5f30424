"""Figures as the text of a cell: shares in %, differences in points."""

from __future__ import annotations

import re
from collections.abc import Iterable

from crg.report.evidence.sentences import watermark
from crg.report.evidence.study import Contrast, Line, Spread
from crg.report.evidence.wording import TUNED, listing, number, quoted, signed
from crg.results.outline import Row, Setting

NOTHING = "-"
RUN_ONCE = "run once"
TIMES = (
    "Milliseconds are those of the machine as it was, perhaps with several runs at a time: "
    "compare them within a table only."
)
_LABELS = "labels"
_MEGABYTE = 1_000_000
_ROUNDING = 0.01  # by which the fraction of wrong labels may differ from the one that was asked for


def name_of(line: Line, once: str | None = None) -> str:
    """The label with all that must not be overlooked; ``once`` reports several settings."""
    flags = [watermark(line)] if watermark(line) else []
    flags += ["uses labelled images"] if line.row.uses_labels and not line.row.tuned else []
    flags += ["incomplete"] if line.status == "incomplete" else []
    known = once_mark([line]) if once is None else once
    flags += [known] if known else []
    return f"{line.row.label} ({', '.join(flags)})" if flags else line.row.label


def row_mark(row: Row) -> str:
    """What must stand below the name of a row that heads a column; empty if no labels went in."""
    return TUNED if row.tuned else _LABELS if row.uses_labels else ""


def once_mark(lines: Iterable[Line]) -> str:
    """Whether a row was run once, in all of some settings or in part of them."""
    known = [line.run_once for line in lines if line.traces]
    if not any(known):
        return ""
    return RUN_ONCE if all(known) else f"{RUN_ONCE} in some settings"


def spread_text(spread: Spread | None) -> str:
    """Mean and deviation in %."""
    if spread is None:
        return NOTHING
    return number(spread.mean) + ("" if spread.std is None else f" ± {number(spread.std)}")


def contrast_text(contrast: Contrast | None) -> str:
    """Difference, interval, and the word if it was judged."""
    if contrast is None:
        return NOTHING
    ends = (contrast.interval.mean, contrast.interval.low, contrast.interval.high)
    mean, low, high = map(signed, ends)
    return f"{mean} [{low}, {high}] {contrast.verdict}".rstrip()


def short_contrast_text(contrast: Contrast) -> str:
    """Difference and the word if it was judged, without the interval."""
    return f"{signed(contrast.interval.mean)} {contrast.verdict}".rstrip()


def rival_text(contrast: Contrast | None) -> str:
    """The same with the name of the rival."""
    return NOTHING if contrast is None else f"{contrast_text(contrast)} ({contrast.against})"


def scored_text(scored: Spread | None) -> str:
    """How many images were scored: one number, or the mean of several.

    >>> scored_text(Spread(42, 0.0, (42, 42))), scored_text(Spread(41.5, 0.7, (41, 42)))
    ('42', '41.5')
    """
    if scored is None:
        return NOTHING
    return f"{scored.mean:.1f}".removesuffix(".0")


def short_reason(line: Line) -> str:
    """Why nothing was measured, without the method's name and what would mend it.

    >>> from crg.results.outline import Row
    >>> short_reason(Line(Row("tpt", "tpt"), "not run", "Method 'tpt' needs a text: give one."))
    'needs a text'
    """
    return re.sub(r"^Method '\S+' ", "", line.reason.partition(": ")[0]).rstrip(".")


def reasons_in_short(lines: Iterable[Line]) -> list[str]:
    """Such as "Not run: coop and gda (needs labelled images).", each reason once."""
    rows: dict[tuple[str, str], dict[str, None]] = {}
    for line in lines:
        if line.accuracy is None and line.reason:
            rows.setdefault((line.status, short_reason(line)), {})[quoted(line.row.label)] = None
    return [
        f"{status.capitalize()}: {listing(labels)} ({reason})."
        for (status, reason), labels in rows.items()
    ]


def lines_text(line: Line) -> str:
    """The lines of the results file, neighbours drawn together.

    >>> from crg.report.evidence.study import Trace
    >>> from crg.results.outline import Row
    >>> traces = [Trace("f", n, "k", 0) for n in (3, 4, 5, 9)]
    >>> lines_text(Line(Row("a", "b"), "measured", traces=tuple(traces)))
    '3-5, 9'
    """
    runs: list[list[int]] = []
    for place in sorted({trace.line for trace in line.traces}):
        if runs and runs[-1][1] == place - 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or NOTHING


def plain_text(spread: Spread | None, digits: int) -> str:
    """The mean alone, of what is no share."""
    return NOTHING if spread is None else f"{spread.mean:.{digits}f}"


def share_text(share: float | None) -> str:
    """A share in %."""
    return NOTHING if share is None else number(share)


def realised_text(line: Line, setting: Setting) -> str:
    """Such as "18.2% mislabelled", where that is not the share that was asked for."""
    share = line.mislabelled
    if share is None or abs(share - setting.scenario.mislabelled) <= _ROUNDING:
        return ""
    return f"{100 * share:.1f}% mislabelled"


def memory_text(line: Line) -> str:
    """Peak memory in megabytes of a million bytes."""
    return NOTHING if line.peak_bytes is None else f"{line.peak_bytes / _MEGABYTE:.1f}"
