"""Options of a method: a frozen dataclass whose fields say what they mean and allow.

A field reads ``queue_size: int = option(12, "slots per queue", at_least=1)``.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from reprlib import repr as short
from typing import Any

from crg.presets import PRESET, with_preset
from crg.suggest import nearest
from crg.types import InputError

_WORDS = {"true": True, "yes": True, "on": True, "1": True} | {
    "false": False, "no": False, "off": False, "0": False
}  # fmt: skip
_RULES = {
    "at_least": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "at_most": ("at most", operator.le),
}


def option(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    or_zero: bool = False,
    choices: Sequence[str] = (),
    **shown: Any,
) -> Any:
    """A dataclass field with its default, one line of help and the values it may take.

    ``or_zero`` allows 0 beside what the limits allow; ``shown`` is for a command line.
    """
    rules = {"at_least": at_least, "above": above, "at_most": at_most, "choices": tuple(choices)}
    facts = {"help": help, "or_zero": or_zero, **rules, **shown}
    return dataclasses.field(default=default, metadata=facts)


def parse_options(pairs: Iterable[str]) -> dict[str, str]:
    """``key=value`` pairs as a dictionary; the values are still text."""
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (equals and key.strip()):
            raise InputError(f"{pair!r} is not an option: write key=value.")
        options[key.strip()] = value.strip()
    return options


def build_config(method: str, config_type: type[Any], options: Mapping[str, Any]) -> Any:
    """The configuration with ``options`` in place; text values are read as the field's type."""
    fields = {field.name: field for field in dataclasses.fields(config_type)}
    if PRESET not in fields:
        options = with_preset(method, options)
    for name in options:
        if name not in fields:
            raise InputError(f"Method {method!r} has no option {name!r}: {nearest(name, fields)}")
    return config_type(**{name: _checked(fields[name], value) for name, value in options.items()})


def limits_of(rules: Mapping[str, Any]) -> str:
    """The limits of an option in words, such as ``0 or at least 1, at most 100``."""
    named = [f"{words} {rules[rule]}" for rule, (words, _) in _RULES.items() if rule in rules]
    return ("0 or " if rules.get("or_zero") else "") + ", ".join(named)


def _checked(field: dataclasses.Field[Any], value: Any) -> Any:
    kind = type(field.default)
    value = _converted(field.name, kind, value)
    rules = field.metadata
    if kind is float and not math.isfinite(value):
        raise InputError(f"Option {field.name!r} is {value}: give a finite number.")
    if rules.get("choices") and value not in rules["choices"]:
        raise InputError(
            f"Option {field.name!r} is {value!r}: choose one of {', '.join(rules['choices'])}."
        )
    for rule, (words, holds) in _RULES.items():
        limit, zero = rules.get(rule), rules.get("or_zero", False)
        if limit is not None and not holds(value, limit) and not (zero and value == 0):
            words = "0 or " * zero + words
            raise InputError(f"Option {field.name!r} is {value}: it must be {words} {limit}.")
    return value


def _converted(name: str, kind: type, value: Any) -> Any:
    if getattr(value, "ndim", None) == 0:
        value = value.item()  # a number of NumPy's or torch's
    if kind is bool:
        value = _WORDS.get(value.lower(), value) if isinstance(value, str) else value
    elif kind in (int, float) and type(value) in (str, int, float):
        try:
            number = kind(value)
            value = number if float(number) == float(value) else value  # 1.5 is no integer
        except (ValueError, OverflowError):
            pass
    if isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value):
        raise InputError(f"Option {name!r} holds half a character: give text in UTF-8.")
    if type(value) is not kind:
        wanted = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
        raise InputError(
            f"Option {name!r} is {short(value)}: it must be {wanted.get(kind, kind.__name__)}."
        )
    return value
