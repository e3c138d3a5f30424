"""Options: what a field may be, read from text or given as a value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from crg import option
from crg.methods.options import build_config, nearest
from sentences import refused_in_one_sentence


@dataclass(frozen=True)
class Config:
    """One option of every kind."""

    queue_size: int = option(12, "slots per queue", at_least=1)
    share: float = option(0.1, "share of views kept", above=0, at_most=1)
    negative: bool = option(True, "use the negative cache")
    predict_on: str = option("original", "which view", choices=("original", "confident"))


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("queue_size", "3", 3),
        ("queue_size", 3.0, 3),
        ("queue_size", 3, 3),
        ("share", "0.5", 0.5),
        ("share", "1e-3", 0.001),
        ("share", 1, 1.0),
        ("negative", "false", False),
        ("negative", "No", False),
        ("negative", "on", True),
        ("negative", "1", True),
        ("negative", False, False),
        ("predict_on", "confident", "confident"),
    ],
)
def test_values_are_read_as_the_fields_type(name: str, value: Any, kept: Any) -> None:
    """Text and equal numbers become a value of exactly the default's type."""
    read = getattr(build_config("it", Config, {name: value}), name)
    assert read == kept and type(read) is type(kept)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("queue_size", 0, "at least 1"),
        ("queue_size", "many", "a whole number"),
        ("queue_size", 1.5, "a whole number"),
        ("queue_size", "1.5", "a whole number"),
        ("queue_size", True, "a whole number"),
        ("queue_size", math.inf, "a whole number"),
        ("queue_size", None, "a whole number"),
        ("share", 0, "above 0"),
        ("share", 1.01, "at most 1"),
        ("share", "nan", "number"),
        ("share", math.nan, "number"),
        ("share", "inf", "finite"),
        ("share", [0.1], "a number"),
        ("negative", "perhaps", "true or false"),
        ("negative", 1, "true or false"),
        ("predict_on", "both", "original, confident"),
        ("predict_on", 3, "a word"),
        ("que_size", 3, "'queue_size'"),
        ("zzz", 3, "negative, predict_on, queue_size, share"),
    ],
)
def test_bad_values_are_refused(name: str, value: Any, words: str) -> None:
    """A value that the field does not allow is refused in one sentence that names the option."""
    with refused_in_one_sentence(name, words):
        build_config("it", Config, {name: value})


def test_defaults_stand_where_nothing_is_given() -> None:
    """Without options the configuration is the default one."""
    assert build_config("it", Config, {}) == Config()


def test_nearest_offers_what_comes_close() -> None:
    """The nearest names are offered, or all of them when none is near."""
    assert nearest("shares", ["share", "size"]) == "did you mean 'share'?"
    assert nearest("qqq", ["share", "size"]) == "there is share, size."
    assert nearest("qqq", []) == "it has none."
