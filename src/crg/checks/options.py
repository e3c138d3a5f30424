"""Checks of options: a method can be set up from its declared options, and only from those."""

from __future__ import annotations

import dataclasses
from typing import Any

from crg.checks.base import Check, CheckFailed, Make, require
from crg.checks.fixtures import make_task
from crg.types import InputError


def options_are_documented(make: Make) -> None:
    """The Config is a frozen dataclass and every option has one line of help."""
    config = make(make_task()).config
    require(dataclasses.is_dataclass(config), "Config is not a dataclass")
    require(type(config).__dataclass_params__.frozen, "Config is not frozen")
    for field in dataclasses.fields(config):
        text = str(field.metadata.get("help", "")).strip()
        require(bool(text), f"Option {field.name!r} has no help: declare it with crg.option")
        require("\n" not in text, f"The help of option {field.name!r} has more than one line")


def options_may_be_given_as_text(make: Make) -> None:
    """The default options, written out as text as on a command line, build the same Config."""
    task = make_task()
    config = make(task).config
    as_text = {name: str(value) for name, value in dataclasses.asdict(config).items()}
    require(make(task, **as_text).config == config, "Options given as text built another Config")


def unknown_options_are_refused(make: Make) -> None:
    """An option that the method does not have raises InputError."""
    try:
        make(make_task(), no_such_option=1)
    except InputError:
        return
    raise CheckFailed("An unknown option was accepted in silence")


def small_queues(config: Any) -> dict[str, int]:
    """Options that give every queue a single place, going by names that end in ``_size``."""
    sizes = [field for field in dataclasses.fields(config) if field.name.endswith("_size")]
    return {field.name: 1 for field in sizes if field.metadata.get("at_least") == 1}


CHECKS: list[Check] = [
    options_are_documented,
    options_may_be_given_as_text,
    unknown_options_are_refused,
]
