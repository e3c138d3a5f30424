"""What a figure shows, in a sentence that is computed from the numbers on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from crg.report.evidence.study import Contrast, Curve, Line
from crg.report.evidence.wording import quoted, shortened
from crg.report.wording import listed, percent


def reliability_caption(lines: Sequence[Line]) -> str:
    """Whose confidence is furthest above accuracy, and whose furthest below or nearest to it."""
    surplus = {quoted(line.row.label): _surplus(line) for line in lines}
    ranked = sorted(surplus, key=lambda name: surplus[name], reverse=True)
    ends = listed([f"{name} {100 * surplus[name]:+.1f}" for name in (ranked[0], ranked[-1])])
    said = ends if len(ranked) > 1 else f"{ranked[0]} {100 * surplus[ranked[0]]:+.1f}"
    return (
        f"Confidence over accuracy, in points, the most and the least of "
        f"{len(ranked)}: {said}. A dot's area is its share of the answers; right are those on "
        "the line."
    )


def _surplus(line: Line) -> float:
    total = sum(each.count for each in line.reliability) or 1
    return sum(each.count * (each.confidence - each.accuracy) for each in line.reliability) / total


def learning_caption(curves: Mapping[str, Curve], base: str | None) -> str:
    """Which line ends highest and lowest, and which is above zero-shot for good soonest."""
    ranked = sorted(curves, key=lambda name: curves[name][-1].mean, reverse=True)
    ends = [f"{quoted(name)} at {percent(curves[name][-1].mean)}" for name in ranked]
    words = f"{ends[0]} is highest and {ends[-1]} lowest" if len(ends) > 1 else ends[0]
    said = f"After {next(iter(curves.values()))[-1].x:.0f} images {words}."
    if base is None or base not in curves:
        return said
    others = {name: curve for name, curve in curves.items() if name != base}
    ahead = {name: _ahead_from(curve, curves[base]) for name, curve in others.items()}
    lasting = {name: at for name, at in ahead.items() if at is not None}
    starting = {name: at for name, at in lasting.items() if not _is_level(curves[name])}
    if lasting:
        said += f" Of {len(others)} means {len(lasting)} end above {quoted(base)}"
        said += f"{_soonest(starting)}."
    elif others:
        said += f" None of the others ends above {quoted(base)}."
    return said


def _soonest(since: Mapping[str, float]) -> str:
    if not since:
        return ""
    name = min(since, key=lambda each: since[each])
    return f", {quoted(name)} for good from image {since[name]:.0f} on, the soonest"


def _is_level(curve: Curve) -> bool:
    """Whether it is of a row that was run once, which has no start."""
    return len(curve) > 1 and len({point.mean for point in curve}) == 1


def _ahead_from(curve: Curve, base: Curve) -> float | None:
    """The first place from which a curve stays above another."""
    level = {point.x: point.mean for point in base}
    since: float | None = None
    for point in curve:
        if point.x not in level:
            continue
        if point.mean <= level[point.x]:
            since = None
        elif since is None:
            since = point.x
    return since


def heat_caption(values: Mapping[str, float]) -> str:
    """The best and the worst cell, or all that share that place, and what lies between them."""
    top, bottom = max(values.values()), min(values.values())
    return (
        f"Highest at {_at(values, top)} with {percent(top, 2)}, lowest at {_at(values, bottom)} "
        f"with {percent(bottom, 2)}: {100 * (top - bottom):.2f} points "
        f"between the best and the worst of {len(values)}."
    )


def _at(values: Mapping[str, float], wanted: float) -> str:
    """The cells of a value, up to what adding up in another order makes of it."""
    return shortened([quoted(k) for k, v in values.items() if math.isclose(v, wanted)])


def settings_caption(gains: Sequence[Contrast]) -> str:
    """How many differences to zero-shot can be told from none."""
    better = sum(gain.verdict == "better" for gain in gains)
    worse = sum(gain.verdict == "worse" for gain in gains)
    return (
        f"Points over zero-shot with 95% intervals: of {len(gains)} differences, {better} better "
        f"(▲) and {worse} worse (▼); blue is above, orange below zero-shot."
    )
