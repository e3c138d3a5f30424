"""How answers, predictions and classifiers show themselves in a notebook.

Plain HTML with inline styles, in the notebook's own colours, light or dark. All text is escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape

_SHOWN = 5  # classes, the most probable ones
_ROW = (
    "display:grid;grid-template-columns:fit-content(18em) 9em 4em auto;gap:0 .8em"
    ";align-items:center;white-space:nowrap"
)
_BAR = "height:.5em;margin:1px 0;background:currentColor"
_NAME = "overflow:hidden;text-overflow:ellipsis"


def card(title: str, lines: Iterable[str], body: str, jpeg: bytes | None = None) -> str:
    """A title, lines of text and HTML below it, with an image to the left if there is one."""
    image = ""
    if jpeg is not None:
        source = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
        image = f'<img src="{source}" alt="" style="width:96px;height:96px;border-radius:4px">'
    said = "".join(f'<div style="opacity:.75">{escape(line)}</div>' for line in lines)
    return (
        '<div style="display:flex;gap:1em;align-items:flex-start;line-height:1.5">'
        f"{image}<div><div><b>{escape(title)}</b></div>{said}{body}</div></div>"
    )


def bars(
    names: Sequence[str], probs: Sequence[float], zero_shot: Sequence[float] | None = None
) -> str:
    """A bar for each of the likeliest classes, over a fainter one for zero-shot if it is given.

    Without names the classes are numbered.
    """
    names = names or [f"class {k}" for k in range(len(probs))]
    best = sorted(range(len(probs)), key=lambda k: -probs[k])[:_SHOWN]
    if zero_shot is not None:
        best += {max(range(len(zero_shot)), key=lambda k: zero_shot[k])} - set(best)
    rows = [(names[k], probs[k], None if zero_shot is None else zero_shot[k]) for k in best]
    return f'<div style="{_ROW}">{"".join(_row(*row) for row in rows)}</div>'


def counts(numbers: Mapping[str, int]) -> str:
    """A bar for each name, the largest number first."""
    largest = max(numbers.values(), default=1)
    ordered = sorted(numbers.items(), key=lambda pair: -pair[1])
    rows = [_cells(name, _bar(n / largest), str(n), "") for name, n in ordered]
    return f'<div style="{_ROW}">{"".join(rows)}</div>'


def _row(name: str, prob: float, zero_shot: float | None) -> str:
    if zero_shot is None:
        return _cells(name, _bar(prob), f"{prob:.1%}", "")
    both = _bar(prob) + _bar(zero_shot, ";opacity:.35")
    return _cells(name, both, f"{prob:.1%}", f"zero-shot {zero_shot:.1%}")


def _cells(name: str, bar: str, number: str, beside: str) -> str:
    return (
        f'<div style="{_NAME}" title="{escape(name)}">{escape(name)}</div><div>{bar}</div>'
        f'<div style="text-align:right">{number}</div><div style="opacity:.6">{beside}</div>'
    )


def _bar(fraction: float, more: str = "") -> str:
    return f'<div style="{_BAR};width:{max(fraction, 0.003):.1%}{more}"></div>'
