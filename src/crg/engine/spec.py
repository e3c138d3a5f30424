"""What the engine is given and what it gives back, all of it ready for another process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from crg.streams.scenario import Scenario
from crg.types import InputError, Result


@dataclass(frozen=True)
class RunSpec:
    """One run: a method with its options on one file in one stream order."""

    path: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    few: str | None = None  # a file or store of labelled images
    then: tuple[str, ...] = ()  # files whose images come after those of ``path``
    scenario: Scenario = field(default_factory=Scenario)
    measure_memory: bool = False  # in a process of its own, over the first images
    key: str = ""  # what the run is found by among results; the engine hands it back


@dataclass(frozen=True)
class Failure:
    """Why a run came to nothing: a sentence, and the traceback where it was no bad input."""

    reason: str
    trace: str = ""


Outcome = Result | Failure

# A run, how many of its images are done, and how many it has: (0, 0) when it begins.
OnProgress = Callable[[RunSpec, int, int], None]

# The same, told by the run itself.
Tell = Callable[[int, int], None]


def ignore_progress(spec: RunSpec, done: int, total: int) -> None:
    """For those who do not want to know."""


def results_only(
    outcomes: Generator[tuple[RunSpec, Outcome], None, None],
) -> Generator[tuple[RunSpec, Result], None, None]:
    """The same runs, but the first one that failed ends them all and is raised."""
    with contextlib.closing(outcomes):
        for spec, outcome in outcomes:
            if isinstance(outcome, Result):
                yield spec, outcome
            elif outcome.trace:
                raise RuntimeError(f"A run of {spec.method} failed:\n{outcome.trace}")
            else:
                raise InputError(outcome.reason)
