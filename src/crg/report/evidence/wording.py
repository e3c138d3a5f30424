"""Figures in words: points, intervals, and what may be said of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from crg.report.evidence.study import Contrast, Line, Spread
from crg.results.outline import Row, Source

NOT_TOLD = "no difference can be told"
TUNED = "tuned on labels"
_OWN_TEXT = ("clip", "model", "own")


def number(share: float) -> str:
    """A share or a difference of shares in %, without a minus before zero.

    >>> number(-0.0000001)
    '0.00'
    """
    text = f"{100 * share:.2f}"
    return "0.00" if text == "-0.00" else text


def per_cent(spread: Spread) -> str:
    """Mean and deviation.

    >>> per_cent(Spread(0.5, 0.01, (0.49, 0.51)))
    '50.00 ± 1.00%'
    """
    deviation = "" if spread.std is None else f" ± {number(spread.std)}"
    return f"{number(spread.mean)}{deviation}%"


def points(difference: float) -> str:
    """The size of a difference, whatever its sign."""
    return f"{number(abs(difference))} points"


def signed(difference: float) -> str:
    """In points, always with its sign."""
    text = number(difference)
    return text if text.startswith("-") else f"+{text}"


def bracket(contrast: Contrast, turned: bool = False) -> str:
    """The interval and what follows from it; ``turned`` for a loss told as a positive number."""
    low, high = contrast.interval.low, contrast.interval.high
    ends = (-high, -low) if turned else (low, high)
    text = f"95% interval {number(ends[0])} to {number(ends[1])}"
    return f"({text}{_reservation(contrast)})"


def _reservation(contrast: Contrast) -> str:
    if contrast.verdict:
        return ""
    return f": {too_few(contrast)}" if contrast.excludes_zero else f": {NOT_TOLD}"


def too_few(contrast: Contrast) -> str:
    """Of what there are too few to judge."""
    return f"too few {contrast.lacks or 'orders'} to judge"


def above_or_below(contrast: Contrast) -> str:
    """Such as "1.20 points above tda (95% interval 0.50 to 1.90)"."""
    lower = contrast.interval.mean < 0
    side = "below" if lower else "above"
    size = points(contrast.interval.mean)
    return f"{size} {side} {quoted(contrast.against)} {bracket(contrast, turned=lower)}"


def quoted(label: str) -> str:
    """A label that would not read as one name among others, in quotes.

    >>> quoted("crg"), quoted("+ negative cache"), quoted("Gaussian, text decides")
    ('crg', "'+ negative cache'", "'Gaussian, text decides'")
    """
    is_plain = label[:1].isalnum() and "," not in label and "+" not in label
    return label if is_plain else repr(label)


def counted(contrasts: Sequence[Contrast], place: str = "source") -> str:
    """How often it was judged how: "is better on 2 and worse on 0 of 3 sources, ..."."""
    kinds = Counter(_kind(contrast) for contrast in contrasts)
    total = many(len(contrasts), place)
    said = f"is better on {kinds['better']} and worse on {kinds['worse']} of {total}"
    said += f", on {kinds[NOT_TOLD]} {NOT_TOLD}" if kinds[NOT_TOLD] else ""
    few = [kind for kind in kinds if kind.startswith("too few")]
    return said + "".join(f", on {kinds[kind]} there are {kind}" for kind in few)


def _kind(contrast: Contrast) -> str:
    return contrast.verdict or (too_few(contrast) if contrast.excludes_zero else NOT_TOLD)


def many(count: int, noun: str) -> str:
    """A count with its noun.

    >>> many(1, "source"), many(2, "source")
    ('1 source', '2 sources')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listing(words: Iterable[str]) -> str:
    """Words in a row.

    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    known = list(words)
    return " and ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known)


def shortened(names: Sequence[str], most: int = 3) -> str:
    """The names in a row, of many the first ones and how many more.

    >>> shortened(["a", "b", "c"]), shortened(["a", "b", "c", "d"])
    ('a, b and c', 'a, b and 2 more')
    """
    if len(names) <= most:
        return listing(names)
    return listing([*names[: most - 1], f"{len(names) - most + 1} more"])


def called(row: Row) -> str:
    """The label of a row, with a watermark where its options were chosen with labels."""
    label = quoted(row.label)
    return f"{label} ({TUNED})" if row.tuned else label


def named(source: Source) -> str:
    """The name of a source; text features that are not the model's own are never left unsaid."""
    flag = text_flag(source)
    name = quoted(source.name)
    return f"{name} ({flag})" if flag else name


def text_flag(source: Source) -> str:
    """Such as "simulated text features"; empty where they are the model's own."""
    kind = source.text_kind
    return "" if kind is None or kind.lower() in _OWN_TEXT else f"{kind} text features"


def measured(lines: Iterable[Line]) -> list[Line]:
    """The lines with an accuracy."""
    return [line for line in lines if line.accuracy is not None]


def mean_of(contrasts: Sequence[Contrast]) -> float:
    """The mean difference."""
    return sum(contrast.interval.mean for contrast in contrasts) / len(contrasts)
