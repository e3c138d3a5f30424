"""Numbers as people read them: shares in %, differences in points with their interval."""

from __future__ import annotations

from collections.abc import Sequence

from crg.metrics import Interval
from crg.report.evidence.study import Contrast, Spread

NOTHING = "-"


def percent(share: float, digits: int = 1) -> str:
    """A share in %.

    >>> percent(0.6123)
    '61.2%'
    """
    return f"{100 * share:.{digits}f}%"


def spread_text(spread: Spread, factor: float = 100, digits: int = 2) -> str:
    """The mean, with the standard deviation where there are several orders."""
    mean = f"{factor * spread.mean:.{digits}f}"
    return mean if spread.std is None else f"{mean} ± {factor * spread.std:.{digits}f}"


def points(difference: float, digits: int = 1) -> str:
    """A difference of shares in points, with its sign.

    >>> points(-0.0312)
    '-3.1'
    """
    shown = f"{100 * difference:+.{digits}f}"
    return shown[1:] if float(shown) == 0 else shown


def in_points(interval: Interval) -> tuple[float, float, float]:
    """Middle and ends of an interval in points, as they go into a file."""
    middle, low, high = (round(100 * v, 4) for v in (interval.mean, interval.low, interval.high))
    return middle, low, high


def span(interval: Interval, digits: int = 1) -> str:
    """The ends of an interval in points, with a digit more where an end would look like zero.

    >>> span(Interval(0.02, 0.0004, 0.039)), span(Interval(0.02, 0.0104, 0.039))
    ('[+0.04, +3.90]', '[+1.0, +3.9]')
    """
    ends = (interval.low, interval.high)
    if any(end and float(points(end, digits)) == 0 for end in ends):
        digits += 1
    return f"[{', '.join(points(end, digits) for end in ends)}]"


def contrast_text(contrast: Contrast, digits: int = 1) -> str:
    """A difference with its interval."""
    return f"{points(contrast.interval.mean, digits)} {span(contrast.interval, digits)}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> listed(["tda", "dpe", "crg"])
    'tda, dpe and crg'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
