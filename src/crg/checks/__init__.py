"""The checks that every method passes. Check your own method with ``check_method("its_name")``.

Each check is a small function that states its claim in its docstring, builds its own seeded
samples and raises ``CheckFailed`` with a sentence. Nothing here needs a test framework.

>>> check_method("zero_shot", checks=[same_stream_gives_same_logits])
[]
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from crg.adapter import Adapter, create
from crg.checks import answers, state
from crg.checks.answers import same_stream_gives_same_logits
from crg.checks.base import Check, CheckFailed, CheckSkipped, Make, Verdict, furnished
from crg.methods.registry import get_method
from crg.plugins import last_line
from crg.types import InputError, Task

__all__ = [
    "CHECKS",
    "Check",
    "CheckFailed",
    "CheckSkipped",
    "Make",
    "Verdict",
    "check_method",
    "iter_checks",
    "run_check",
    "same_stream_gives_same_logits",
]

CHECKS: list[Check] = [  # every function of these modules that takes ``make`` alone
    function
    for module in (answers, state)
    for function in vars(module).values()
    if inspect.isfunction(function)
    and function.__module__ == module.__name__
    and list(inspect.signature(function).parameters) == ["make"]
]


def check_method(
    name: str, checks: Iterable[Check] = CHECKS, make: Make | None = None
) -> list[str]:
    """Run every check on the method called ``name``; raises CheckFailed if any fails.

    Returns one sentence for each check that could not be run. A method gets what it
    names in ``needs``; one that needs still more gets it from ``make``, which is called as
    ``make(task, **options)``.
    """
    verdicts = list(iter_checks(name, checks, make))
    failed = [f"{verdict.check}: {verdict.failed}" for verdict in verdicts if verdict.failed]
    if failed:
        raise CheckFailed(
            f"Method {name!r} fails {len(failed)} of {len(verdicts)} checks. {failed}"
        )
    return [f"{verdict.check}: {verdict.skipped}" for verdict in verdicts if verdict.skipped]


def iter_checks(
    name: str, checks: Iterable[Check] = CHECKS, make: Make | None = None
) -> Iterator[Verdict]:
    """The outcome of each check, as soon as it is known."""
    for check in checks:
        title = getattr(check, "__name__", repr(check))
        try:
            run_check(check, name, make)
            yield Verdict(title)
        except CheckFailed as failed:
            yield Verdict(title, failed=str(failed), line=_line(name, failed))
        except CheckSkipped as skipped:
            yield Verdict(title, skipped=str(skipped))


def _line(name: str, failed: CheckFailed) -> int:
    """The line of the method's own file that has to do with a failure; 0 if there is no file."""
    try:
        kind = get_method(name)
        file, (_, first) = inspect.getfile(kind), inspect.getsourcelines(kind)
    except (InputError, OSError, TypeError):
        return 0
    return last_line(failed.__cause__ or failed, file) or first


def run_check(check: Check, name: str, make: Make | None = None) -> None:
    """Run one check on a method; any other error in the method fails it too."""

    def created(task: Task, /, **options: Any) -> Adapter:
        return create(name, furnished(task, get_method(name).needs), **options)

    try:
        check(make or created)
    except (CheckFailed, CheckSkipped):
        raise
    except Exception as error:
        raise CheckFailed(f"The method raised {type(error).__name__}: {error}") from error
