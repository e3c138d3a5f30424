"""What a figure shows, in a sentence that is computed from the numbers on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crg.evidence.study import Contrast, Curve, Line
from crg.evidence.wording import quoted
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
    said = f"After {next(iter(curves.values()))[-1].x:.0f} pictures {words}."
    if base is None or base not in curves:
        return said
    others = {name: curve for name, curve in curves.items() if name != base}
    ahead = {name: _ahead_from(curve, curves[base]) for name, curve in others.items()}
    lasting = {name: at for name, at in ahead.items() if at is not None}
    if lasting:
        soonest = min(lasting, key=lambda name: lasting[name])
        said += f" Of {len(others)} means {len(lasting)} end above {quoted(base)}, "
        said += f"{quoted(soonest)} for good from picture {lasting[soonest]:.0f} on, the soonest."
    elif others:
        said += f" None of the others ends above {quoted(base)}."
    return said


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
    """The best and the worst cell and what lies between them."""
    best, worst = max(values, key=values.__getitem__), min(values, key=values.__getitem__)
    return (
        f"Highest at {quoted(best)} with {percent(values[best], 2)}, lowest at {quoted(worst)} "
        f"with {percent(values[worst], 2)}: {100 * (values[best] - values[worst]):.2f} points "
        f"between the best and the worst of {len(values)}."
    )


def settings_caption(gains: Sequence[Contrast]) -> str:
    """How many differences to zero-shot can be told from none."""
    better = sum(gain.verdict == "better" for gain in gains)
    worse = sum(gain.verdict == "worse" for gain in gains)
    return (
        f"Points over zero-shot with 95% intervals: of {len(gains)} differences {better} are "
        f"better (▲) and {worse} worse (▼); blue is above, orange below zero-shot."
    )
