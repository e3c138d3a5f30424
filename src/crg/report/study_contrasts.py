"""Figures of differences: against zero-shot, step by step, at the worst; and calibration."""

from __future__ import annotations

from crg.metrics import Interval
from crg.report.charts.axes import pens_of
from crg.report.charts.lines import Bar, interval_chart, reliability_diagram, waterfall_chart
from crg.report.evidence.captions import caption
from crg.report.evidence.study import Contrast, Line, Study
from crg.report.markup import Figure
from crg.report.study_captions import reliability_caption
from crg.report.wording import contrast_text, in_points, points

_HEADER = ("row", "difference", "low", "high", "against", "verdict")


def forest_figure(study: Study, source: str) -> list[Figure]:
    """The gain of every row over zero-shot, with its interval."""
    lines = [each for each in study.tables_of(source)[0].lines if each.to_zero_shot is not None]
    bars = [
        Bar(line.row.label, _in_points(gain.interval), verdict=gain.verdict,
            remark=contrast_text(gain))
        for line in lines if (gain := line.to_zero_shot) is not None
    ]  # fmt: skip
    if not bars:
        return []
    image = interval_chart(bars, "points of accuracy over zero-shot")
    data = tuple(_numbers(line.row.label, line.to_zero_shot) for line in lines)
    name = f"{study.outline.name} {source} gains"
    return [Figure(name, (image,), caption(study, source), _HEADER, data)]


def reliability_figure(study: Study, source: str) -> list[Figure]:
    """How often answers of a confidence are right, a small image per row."""
    lines = [line for line in study.tables_of(source)[0].lines if line.reliability]
    if not lines:
        return []
    pens = pens_of(study.outline.rows)
    images = tuple(
        reliability_diagram(line.row.label, line.reliability, pens[line.row.label], _error(line))
        for line in lines
    )
    data = tuple(
        (line.row.label, b.count, round(100 * b.confidence, 4), round(100 * b.accuracy, 4))
        for line in lines
        for b in line.reliability
    )
    header = ("row", "answers", "confidence", "accuracy")
    name = f"{study.outline.name} {source} reliability"
    return [Figure(name, images, reliability_caption(lines), header, data, css="small")]


def waterfall_figure(study: Study, source: str) -> list[Figure]:
    """What each part brings, as steps from zero-shot on; rows that do not start with + stand."""
    lines = [each for each in study.tables_of(source)[0].lines if each.to_zero_shot is not None]
    ends: dict[str, float] = {}
    bars = []
    for number, line in enumerate(lines):
        gain = line.to_zero_shot
        assert gain is not None
        is_step = number > 0 and line.row.label.startswith("+")
        before = _row_before(line, lines[number - 1].row.label) if is_step else ""
        start = ends.get(before, 0.0)
        bars.append(
            Bar(line.row.label, _in_points(gain.interval), 100 * start, is_step,
                remark=_step_remark(line, gain, start, is_step))
        )  # fmt: skip
        ends[line.row.label] = gain.interval.mean
    if not bars:
        return []
    data = tuple(
        (*_numbers(line.row.label, line.to_zero_shot), round(bar.start, 4))
        for line, bar in zip(lines, bars, strict=True)
    )
    image = waterfall_chart(bars, "points of accuracy over zero-shot")
    name = f"{study.outline.name} {source} steps"
    said = f"{caption(study, source)} Whiskers are 95% intervals against zero-shot."
    return [Figure(name, (image,), said, (*_HEADER, "starts at"), data)]


def worst_figure(study: Study, source: str) -> list[Figure]:
    """For every row the stream on which it fares worst against zero-shot."""
    worst: dict[str, tuple[Contrast, str]] = {}
    for table in study.tables_of(source):
        for line in table.lines:
            gain, label = line.to_zero_shot, line.row.label
            if gain is None or not table.has_enough_images:
                continue
            if label not in worst or gain.interval.mean < worst[label][0].interval.mean:
                worst[label] = (gain, table.setting.label)
    if not worst:
        return []
    bars = [
        Bar(label, _in_points(gain.interval), verdict=gain.verdict,
            remark=f"{points(gain.interval.mean)} {where}")
        for label, (gain, where) in worst.items()
    ]  # fmt: skip
    data = tuple((*_numbers(label, gain), where) for label, (gain, where) in worst.items())
    image = interval_chart(bars, "points below or above zero-shot, at the worst")
    name = f"{study.outline.name} {source} worst"
    return [Figure(name, (image,), caption(study, source), (*_HEADER, "stream"), data)]


def _row_before(line: Line, above: str) -> str:
    """The row that a step continues from: the one most like it, else the one above."""
    return line.to_like.against if line.to_like is not None else above


def _step_remark(line: Line, gain: Contrast, start: float, is_step: bool) -> str:
    if not is_step:
        return points(gain.interval.mean)
    step = line.to_like.interval.mean if line.to_like else gain.interval.mean - start
    return f"step {points(step)}"


def _error(line: Line) -> str:
    return "" if line.ece is None else f"error {100 * line.ece.mean:.1f}%"


def _in_points(interval: Interval) -> Interval:
    return Interval(*in_points(interval))


def _numbers(label: str, gain: Contrast | None) -> tuple[str | float, ...]:
    assert gain is not None
    return (label, *in_points(gain.interval), gain.against, gain.verdict)
