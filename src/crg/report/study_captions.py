"""What a figure shows, in a sentence that is computed from the numbers on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crg.evidence.study import Contrast, Curve, Line
from crg.report.wording import listed, percent, points, span


def reliability_caption(lines: Sequence[Line]) -> str:
    """Who is surer than right, and by how much."""
    surplus = {line.row.label: _surplus(line) for line in lines}
    sure = [f"{name} by {100 * by:.1f}" for name, by in surplus.items() if by >= 0.005]
    modest = [f"{name} by {-100 * by:.1f}" for name, by in surplus.items() if by <= -0.005]
    close = [name for name, by in surplus.items() if abs(by) < 0.005]
    said = []
    if sure:
        said.append(f"Surer than right, in points of confidence over accuracy: {listed(sure)}.")
    if modest:
        said.append(f"Less sure than right: {listed(modest)}.")
    if close:
        said.append(f"Within half a point: {listed(close)}.")
    return " ".join(
        [*said, "A dot's area is its share of the answers; right are those on the line."]
    )


def _surplus(line: Line) -> float:
    total = sum(each.count for each in line.reliability) or 1
    return sum(each.count * (each.confidence - each.accuracy) for each in line.reliability) / total


def learning_caption(curves: Mapping[str, Curve], base: str | None) -> str:
    """Where each line ends, and from where on it stays above zero-shot."""
    ends = [f"{name} at {percent(curve[-1].mean)}" for name, curve in curves.items()]
    said = f"After {next(iter(curves.values()))[-1].x:.0f} pictures: {listed(ends)}."
    if base is None or base not in curves:
        return said
    others = {name: curve for name, curve in curves.items() if name != base}
    ahead = {name: _ahead_from(curve, curves[base]) for name, curve in others.items()}
    lasting = [f"{name} from {at:.0f}" for name, at in ahead.items() if at is not None]
    never = [name for name, at in ahead.items() if at is None]
    if lasting:
        said += f" The mean stays above {base} for good, in pictures seen: {listed(lasting)}."
    if never:
        said += f" At the end it is not above {base}: {listed(never)}."
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


def loss_caption(last: Mapping[str, tuple[Contrast, float]]) -> str:
    """What each row loses at the strongest setting; the values are (change, share)."""
    share = max(share for _, share in last.values())
    ordered = sorted(last.items(), key=lambda item: item[1][0].interval.mean, reverse=True)
    parts = [
        f"{name} {points(change.interval.mean)} {span(change.interval)}"
        for name, (change, _) in ordered
    ]
    return (
        f"Change in points from no mislabelling to {percent(share, 0)}, with its 95% interval, "
        f"the steadiest first: {listed(parts)}."
    )


def heat_caption(values: Mapping[str, float]) -> str:
    """The best and the worst cell and what lies between them."""
    best, worst = max(values, key=values.__getitem__), min(values, key=values.__getitem__)
    return (
        f"Highest at {best} with {percent(values[best], 2)}, lowest at {worst} with "
        f"{percent(values[worst], 2)}: {100 * (values[best] - values[worst]):.2f} points "
        f"between the best and the worst of {len(values)}."
    )


def settings_caption(gains: Sequence[Contrast]) -> str:
    """How many differences to zero-shot can be told from none."""
    better = sum(gain.verdict == "better" for gain in gains)
    worse = sum(gain.verdict == "worse" for gain in gains)
    return (
        f"Points over zero-shot with 95% intervals: of {len(gains)} differences {better} are "
        f"better and {worse} worse (bold); blue is above, orange below zero-shot."
    )
