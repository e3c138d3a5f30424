"""Runs on a Ray cluster, with the same results as on this machine.

A run whose worker is lost, with its process or its machine, is started again elsewhere. Files and
plug-ins must have the same path on every machine.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import cast

from msgspec.structs import replace

from crg.encoding.ray_cluster import Needs, work_on_ray
from crg.engine.worker import OnProgress, Outcome, Report, attempt
from crg.plugins import resolved
from crg.results.provenance import failed_run
from crg.results.schema import Data, RunSpec
from crg.threads import ONE_THREAD
from crg.types import InputError

_DECIDING = ("crg-tta", "numpy", "numba")  # libraries whose version may change a result
_PASSED_ON = ("CRG_COMPILED",)  # variables that may


def run_all_on_ray(
    specs: Sequence[RunSpec],
    workers: int | None = None,
    address: str | None = None,
    on_progress: OnProgress | None = None,
) -> Generator[tuple[RunSpec, Outcome], None, None]:
    """Run all specs and yield each with its result, or its failure, as soon as it is done.

    Without ``workers`` there are as many as the cluster has processors; without an ``address`` the
    cluster is the one in use, or a new one on this machine. To stop early, close the iterator:
    runs at work are cancelled.
    """
    needs = Needs(variables=variables())
    make = functools.partial(_runner, WorkerEnvironment.here())

    def report(number: int, done: int, total: int) -> None:
        assert on_progress is not None
        on_progress(specs[number], done, total)

    jobs, heard = [_anywhere(spec) for spec in specs], report if on_progress else None
    with contextlib.closing(work_on_ray(make, jobs, needs, workers, address, heard)) as answers:
        for number, answer in answers:
            spec, lost = specs[number], isinstance(answer, InputError)
            yield spec, failed_run(spec.key, str(answer)) if lost else cast(Outcome, answer)


def variables() -> dict[str, str]:
    """The environment in which a method gives the results that it has here."""
    return {**ONE_THREAD, **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}}


@dataclass(frozen=True)
class WorkerEnvironment:
    """Facts that a worker on another machine must share with the process that asks."""

    folder: str
    plugins: tuple[str, ...]
    versions: dict[str, str]

    @classmethod
    def here(cls, plugins: Sequence[str] = ()) -> WorkerEnvironment:
        """The environment of this process."""
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


def _runner(asking: WorkerEnvironment) -> Callable[[RunSpec, Report], Outcome]:
    """Make the function that does each run; called by a worker, once."""
    with contextlib.suppress(OSError):  # for options that name a file
        os.chdir(asking.folder)
    return functools.partial(_run_there, asking)


def _run_there(asking: WorkerEnvironment, spec: RunSpec, report: Report) -> Outcome:
    try:
        asking.check()
    except InputError as error:
        return failed_run(spec.key, str(error))
    return attempt(spec, report)


def _anywhere(spec: RunSpec) -> RunSpec:
    """The spec with paths that hold in any folder."""

    def whole(data: Data) -> Data:
        return replace(data, path=os.path.abspath(data.path))

    return replace(
        spec,
        data=whole(spec.data),
        few=None if spec.few is None else whole(spec.few),
        then=tuple(os.path.abspath(each) for each in spec.then),
        plugins=tuple(resolved(each) for each in spec.plugins),
    )


def _versions() -> dict[str, str]:
    versions = dict.fromkeys(_DECIDING, "none")
    for name in _DECIDING:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
