"""Suggest known names for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NEAR = 0.66  # similarity from which a name is offered: two letters swapped in three are 0.67


def near(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that ``name`` may be a misspelling of, the nearest first."""
    by_key = {_key(each): each for each in sorted(known)}
    word = _key(str(name)[:200])  # it takes as long as the square of its length
    close = difflib.get_close_matches(word, by_key, n=3, cutoff=NEAR)
    return [by_key[key] for key in close]


def _key(name: str) -> str:
    return name.lower().lstrip("-")  # which would make all options alike


def nearest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The end of a sentence: names that are near, or else ``otherwise``, or else all names.

    >>> nearest("nigth", ["night", "fog"]), nearest("rain", ["night", "fog"])
    ("did you mean 'night'?", 'there is fog, night.')
    """
    names = sorted(known)
    if close := near(name, names):
        return "did you mean " + " or ".join(repr(word) for word in close) + "?"
    if otherwise is not None:
        return otherwise
    return "there is " + ", ".join(names) + "." if names else "it has none."
