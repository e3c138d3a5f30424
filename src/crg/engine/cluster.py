"""Runs as jobs of a Ray cluster, with the results that they have here.

A run whose worker is lost, with its process or with its machine, is begun anew elsewhere.
Files and plug-ins must be found under the same path on every machine.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from crg.engine.ray_encoding import Needs, work_on_ray
from crg.engine.worker import Failure, OnProgress, Outcome, RunSpec, Tell, attempt
from crg.plugins import resolved
from crg.threads import ONE_THREAD
from crg.types import InputError

_DECIDING = ("crg-tta", "numpy", "numba")  # libraries whose version may change a result
_PASSED_ON = ("CRG_COMPILED",)  # variables that may


def run_all_on_ray(
    specs: Sequence[RunSpec],
    workers: int | None = None,
    address: str | None = None,
    plugins: Sequence[str] = (),
    on_progress: OnProgress | None = None,
) -> Generator[tuple[RunSpec, Outcome], None, None]:
    """Run all specs and yield each with its result, or its failure, as soon as it is done.

    Without a number of ``workers`` there are as many as the cluster has processors; without an
    ``address`` the cluster is the one in use, or one of our own on this machine. To stop early,
    close the iterator: what is at work is cancelled.
    """
    needs = Needs(variables=variables())
    make = functools.partial(_runner, WorkerEnvironment.here(plugins))

    def tell(number: int, done: int, total: int) -> None:
        assert on_progress is not None
        on_progress(specs[number], done, total)

    jobs, told = [_anywhere(spec) for spec in specs], tell if on_progress else None
    with contextlib.closing(work_on_ray(make, jobs, needs, workers, address, told)) as answers:
        for number, answer in answers:
            lost = isinstance(answer, InputError)
            yield specs[number], Failure(str(answer)) if lost else cast(Outcome, answer)


def variables() -> dict[str, str]:
    """The environment in which a method gives the results that it has here."""
    return {**ONE_THREAD, **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}}


@dataclass(frozen=True)
class WorkerEnvironment:
    """What the process that asks has about it, and the one that runs needs."""

    folder: str
    plugins: tuple[str, ...]
    versions: dict[str, str]

    @classmethod
    def here(cls, plugins: Sequence[str]) -> WorkerEnvironment:
        """What this process has."""
        return cls(os.getcwd(), tuple(resolved(each) for each in plugins), _versions())

    def check(self) -> None:
        """Refuse a machine whose libraries may give other results."""
        own = _versions()
        if own != self.versions:
            name = next(each for each in _DECIDING if own[each] != self.versions[each])
            raise InputError(
                f"{platform.node()} of the Ray cluster has {name} {own[name]} rather than "
                f"{self.versions[name]}: install the same there."
            )


def _runner(place: WorkerEnvironment) -> Callable[[RunSpec, Tell], Outcome]:
    """What a worker does with each run; called there, once."""
    with contextlib.suppress(OSError):  # for options that name a file
        os.chdir(place.folder)
    return functools.partial(_run_there, place)


def _run_there(place: WorkerEnvironment, spec: RunSpec, tell: Tell) -> Outcome:
    try:
        place.check()
    except InputError as error:
        return Failure(str(error))
    return attempt(spec, place.plugins, tell)


def _anywhere(spec: RunSpec) -> RunSpec:
    """The spec with paths that hold in any folder."""
    few = None if spec.few is None else os.path.abspath(spec.few)
    then = tuple(os.path.abspath(each) for each in spec.then)
    return replace(spec, path=os.path.abspath(spec.path), few=few, then=then)


def _versions() -> dict[str, str]:
    versions = dict.fromkeys(_DECIDING, "none")
    for name in _DECIDING:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
