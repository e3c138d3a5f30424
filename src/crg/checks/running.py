"""Running the laws: one, one after the other, or all with one answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from crg.adapter import Adapter, create
from crg.checks import answers, classes, inputs, lasting, libraries, options, refused, repeatable
from crg.checks.furnishing import furnished
from crg.checks.law import Law, LawBroken, LawSkipped, Make, Verdict
from crg.methods.registry import get_method
from crg.types import Task

LAWS: list[Law] = [
    *options.LAWS,
    *answers.LAWS,
    *repeatable.LAWS,
    *inputs.LAWS,
    *refused.LAWS,
    *lasting.LAWS,
    *classes.LAWS,
    *libraries.LAWS,
]


def check_method(name: str, laws: Iterable[Law] = LAWS, make: Make | None = None) -> list[str]:
    """Hold the method called ``name`` to every law; raises LawBroken if it breaks any.

    Returns one sentence for each law that could not be looked at. A method gets what it
    names in ``needs``; one that needs still more gets it from ``make``, which is called as
    ``make(task, **options)``.
    """
    verdicts = list(iter_laws(name, laws, make))
    broken = [f"{verdict.law}: {verdict.broken}" for verdict in verdicts if verdict.broken]
    if broken:
        raise LawBroken(f"Method {name!r} breaks {len(broken)} of {len(verdicts)} laws. {broken}")
    return [f"{verdict.law}: {verdict.skipped}" for verdict in verdicts if verdict.skipped]


def iter_laws(name: str, laws: Iterable[Law] = LAWS, make: Make | None = None) -> Iterator[Verdict]:
    """What came of each law, as soon as it is known."""
    for law in laws:
        title = getattr(law, "__name__", repr(law))
        try:
            check_law(law, name, make)
            yield Verdict(title)
        except LawBroken as broken:
            yield Verdict(title, broken=str(broken))
        except LawSkipped as skipped:
            yield Verdict(title, skipped=str(skipped))


def _create(name: str, task: Task, /, **options: Any) -> Adapter:
    return create(name, furnished(task, get_method(name).needs), **options)


def check_law(law: Law, name: str, make: Make | None = None) -> None:
    """Hold a method to one law; whatever else goes wrong in the method breaks it too."""
    maker: Make = make or partial(_create, name)
    try:
        law(maker)
    except (LawBroken, LawSkipped):
        raise
    except Exception as error:
        raise LawBroken(f"The method raised {type(error).__name__}: {error}") from error
