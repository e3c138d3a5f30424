"""Runs as tasks of a Ray cluster, with the results that they have here.

A run whose worker is lost, with its process or with its machine, is begun anew elsewhere.
Files and plug-ins must be found under the same path on every machine.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crg.encoding.ray_cluster import connected, ray_library, room_for
from crg.engine.spec import Failure, OnProgress, Outcome, RunSpec
from crg.engine.worker import attempt
from crg.plugins import resolved
from crg.threads import ONE_THREAD, processors

_TRIES = 3  # times that a run is begun anew when its worker is lost
_PAUSE = 0.25  # seconds between two looks at the board
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
    if not specs:
        return
    ray = ray_library()
    with connected(ray, address, workers or processors()):
        room = room_for(ray, {"CPU": 1})
        job = _Job(ray, specs, tuple(resolved(each) for each in plugins), on_progress)
        with contextlib.closing(job):
            yield from job.outcomes(min(workers or room, room))


@dataclass(frozen=True)
class _Place:
    """What the process that asks has about it, and the one that runs needs."""

    folder: str
    plugins: tuple[str, ...]
    versions: dict[str, str]


class Board:
    """An actor on which runs write how far they are, and from which the asking process reads."""

    def __init__(self) -> None:
        self._news: dict[int, tuple[int, int]] = {}

    def write(self, number: int, done: int, total: int) -> None:
        """Run ``number`` is so far."""
        self._news[number] = (done, total)

    def read(self) -> dict[int, tuple[int, int]]:
        """What has changed since the last time."""
        news, self._news = self._news, {}
        return news


def run_there(number: int, spec: RunSpec, place: _Place, board: Any) -> Outcome:
    """Life of a task."""
    own = _versions()
    if own != place.versions:
        name = next(each for each in _DECIDING if own[each] != place.versions[each])
        return Failure(
            f"{platform.node()} of the Ray cluster has {name} {own[name]} rather than "
            f"{place.versions[name]}: install the same there."
        )
    with contextlib.suppress(OSError):  # for options that name a file
        os.chdir(place.folder)
    tell = functools.partial(_write, board, number)
    return attempt(spec, place.plugins, tell)


class _Job:
    """The runs of one call: those that wait, and those that the cluster is at work on."""

    def __init__(
        self,
        ray: Any,
        specs: Sequence[RunSpec],
        plugins: tuple[str, ...],
        on_progress: OnProgress | None,
    ) -> None:
        self._ray, self._specs, self._on_progress = ray, specs, on_progress
        self._place = _Place(os.getcwd(), plugins, _versions())
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        surroundings = {"env_vars": {**ONE_THREAD, **passed_on}}
        self._remote = ray.remote(num_cpus=1, max_retries=_TRIES, runtime_env=surroundings)(
            run_there
        )
        self._board = self._asked = None
        if on_progress is not None:
            self._board = ray.remote(num_cpus=0, max_restarts=-1)(Board).remote()
            self._asked = self._board.read.remote()
        self._at_work: dict[Any, int] = {}  # numbers of the specs

    def outcomes(self, count: int) -> Generator[tuple[RunSpec, Outcome], None, None]:
        """What came of each run, with at most ``count`` of them at work."""
        waiting = list(reversed(range(len(self._specs))))
        while waiting or self._at_work:
            while waiting and len(self._at_work) < count:
                self._begin(waiting.pop())
            ready, _ = self._ray.wait(list(self._at_work), num_returns=1, timeout=_PAUSE)
            self._pass_news_on()
            for reference in ready:
                spec = self._specs[self._at_work.pop(reference)]
                yield spec, self._collected(reference)

    def close(self) -> None:
        """Cancel what is at work, on a cluster that may be used by others."""
        for reference in self._at_work:
            self._ray.cancel(reference, force=True)
        if self._board is not None:
            self._ray.kill(self._board)

    def _begin(self, number: int) -> None:
        spec = _anywhere(self._specs[number])
        reference = self._remote.remote(number, spec, self._place, self._board)
        self._at_work[reference] = number

    def _collected(self, reference: Any) -> Outcome:
        errors = self._ray.exceptions
        try:
            outcome: Outcome = self._ray.get(reference)
        except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError):
            return Failure(
                f"Ray lost the worker {_TRIES + 1} times at this run, which too little memory or "
                "the method itself may cause: try fewer workers or mend the method."
            )
        except errors.RayError as error:
            return Failure(f"Ray could not do this run ({type(error).__name__}).", str(error))
        return outcome

    def _pass_news_on(self) -> None:
        """Without waiting for the board, which may be slow to come into being."""
        if self._on_progress is None or not self._ray.wait([self._asked], timeout=0)[0]:
            return
        assert self._board is not None
        news: dict[int, tuple[int, int]] = {}
        with contextlib.suppress(self._ray.exceptions.RayActorError):  # it will be back
            news = self._ray.get(self._asked)
        self._asked = self._board.read.remote()
        numbers = set(self._at_work.values())
        for number in news.keys() & numbers:  # others are done by now
            self._on_progress(self._specs[number], *news[number])


def _write(board: Any, number: int, done: int, total: int) -> None:
    if board is not None:
        board.write.remote(number, done, total)


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
