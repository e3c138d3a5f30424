"""Jobs on a Ray cluster: one that is there, or one of our own for as long as the jobs take.

Workers are actors: each prepares itself once and then does one job after the other. One that is
lost with its process or its machine is started again elsewhere, and its job is done again.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from crg.extras import library
from crg.threads import processors
from crg.types import InputError

TRIES = 3  # times that a job is started again when its worker is lost
_PATIENCE = 10.0  # seconds to wait for the cluster's address to answer
_PAUSE = 0.25  # seconds between two looks at the board
_ROOM = 200_000_000  # bytes for what is on its way, in a cluster of our own

Tell: TypeAlias = Callable[[int, int], None]  # how far a job is: done, total
JobT = TypeVar("JobT")
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class Needs:
    """What one worker takes of the cluster."""

    processors: int = 1
    gpus: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)  # of its environment
    ahead: int = 1  # jobs that it is given at once; with two it never waits for the next
    remedy: str = "add one"  # where no machine has as much


def work_on_ray(
    make: Callable[[], Callable[[JobT, Tell], AnswerT]],
    jobs: Sequence[JobT],
    needs: Needs,
    workers: int | None = None,
    address: str | None = None,
    on_progress: Callable[[int, int, int], None] | None = None,
) -> Generator[tuple[int, AnswerT | InputError], None, None]:
    """Yield the number of each job with its answer, or with what failed, as soon as it is done.

    Each worker calls ``make`` once; what that returns is called with each job. A failure of
    ``make`` itself is raised. Without a number of ``workers`` there are as many as the cluster
    has room for. ``on_progress`` gets the number of a job and what the job told. To stop early,
    close the iterator: the workers are ended, and the cluster too if it is our own.
    """
    if not jobs:
        return
    ray = library("ray", "ray")
    own = (workers or max(1, processors() // needs.processors)) * needs.processors
    with connected(ray, address, own):
        room = room_for(ray, needs)
        board = _Board(ray, on_progress) if on_progress else None
        pool = _Pool(ray, make, needs, min(workers or room, room, len(jobs)), board)
        with contextlib.closing(pool):
            yield from pool.answers(jobs)


class Worker(Generic[JobT, AnswerT]):
    """The actor: it prepares itself once and does many jobs."""

    def __init__(self, make: Callable[[], Callable[[JobT, Tell], AnswerT]], news: Any) -> None:
        self._make, self._news = make, news

    @functools.cached_property
    def _work(self) -> Callable[[JobT, Tell], AnswerT]:
        return self._make()

    def prepare(self) -> None:
        """Get ready for the first job."""
        self._work  # noqa: B018

    def work(self, number: int, job: JobT) -> AnswerT:
        """The answer to one job."""
        return self._work(job, functools.partial(self._tell, number))

    def _tell(self, number: int, done: int, total: int) -> None:
        if self._news is not None:
            self._news.write.remote(number, done, total)


class News:
    """An actor on which workers write how far they are, and from which the caller reads."""

    def __init__(self) -> None:
        self._news: dict[int, tuple[int, int]] = {}

    def write(self, number: int, done: int, total: int) -> None:
        """Job ``number`` is so far."""
        self._news[number] = (done, total)

    def read(self) -> dict[int, tuple[int, int]]:
        """What has changed since the last time."""
        news, self._news = self._news, {}
        return news


class _Board:
    """The caller's side of the news, read without waiting for them."""

    def __init__(self, ray: Any, on_progress: Callable[[int, int, int], None]) -> None:
        self._ray, self._on_progress = ray, on_progress
        self.actor = ray.remote(num_cpus=0, max_restarts=-1)(News).remote()
        self._asked = self.actor.read.remote()

    def pass_on(self, at_work: set[int]) -> None:
        if not self._ray.wait([self._asked], timeout=0)[0]:
            return
        news: dict[int, tuple[int, int]] = {}
        with contextlib.suppress(self._ray.exceptions.RayActorError):  # it will be back
            news = self._ray.get(self._asked)
        self._asked = self.actor.read.remote()
        for number in news.keys() & at_work:  # others are done by now
            self._on_progress(number, *news[number])


class _Pool:
    """Workers on the cluster, and the jobs that they are at."""

    def __init__(self, ray: Any, make: Any, needs: Needs, count: int, board: _Board | None) -> None:
        self._ray, self._ahead, self._board = ray, needs.ahead, board
        remote = ray.remote(
            num_cpus=needs.processors,
            num_gpus=needs.gpus,
            max_restarts=-1,
            max_task_retries=TRIES,
            runtime_env={"env_vars": dict(needs.variables)},
        )(Worker)
        news = board.actor if board else None
        self._workers = [remote.remote(make, news) for _ in range(count)]
        self._at_work: dict[Any, tuple[Any, int | None]] = {
            worker.prepare.remote(): (worker, None) for worker in self._workers
        }  # what is awaited: of which worker, and for which job

    def answers(self, jobs: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """A worker gets jobs once it is there: on a busy cluster some may have to wait."""
        waiting, left = list(reversed(range(len(jobs)))), len(jobs)
        while left:
            for reference in self._ready():
                worker, number = self._at_work.pop(reference)
                answer = self._collected(reference)
                free = 1 if number is not None else self._ahead
                for new in [waiting.pop() for _ in range(min(free, len(waiting)))]:
                    self._at_work[worker.work.remote(new, jobs[new])] = (worker, new)
                if number is not None:
                    left -= 1
                    yield number, answer
                elif isinstance(answer, InputError):
                    raise answer

    def close(self) -> None:
        """End the workers, on a cluster that others may use."""
        for actor in (*self._workers, *([self._board.actor] if self._board else [])):
            self._ray.kill(actor)

    def _ready(self) -> list[Any]:
        pause = _PAUSE if self._board else None
        ready: list[Any] = self._ray.wait(list(self._at_work), num_returns=1, timeout=pause)[0]
        if self._board:
            numbers = {number for _, number in self._at_work.values() if number is not None}
            self._board.pass_on(numbers)
        return ready

    def _collected(self, reference: Any) -> Any:
        """The answer, or the failure as one sentence."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except (errors.RayActorError, errors.WorkerCrashedError, errors.OutOfMemoryError):
            return InputError(
                f"Ray lost the worker {TRIES + 1} times at the same job, for which too little "
                "memory may be the reason: try fewer --workers or smaller jobs."
            )
        except errors.RayTaskError as error:
            if not isinstance(error.cause, InputError):
                raise
            return InputError(str(error.cause))


@contextlib.contextmanager
def connected(ray: Any, address: str | None, processors: int) -> Iterator[None]:
    """The cluster at ``address``, the one in use, or one of our own that ends with the jobs."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told what runs here
    own = {  # rather than one that somebody else has started here
        "address": "local",
        "num_cpus": processors,
        "include_dashboard": False,
        "object_store_memory": _ROOM,
    }
    try:
        _check_reachable(address or "")
        options = {"address": address} if address else own
        ray.init(**options, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, ImportError, OSError) as error:
        reason = re.split(r"\.\s|\n", str(error).strip())[0].rstrip(".:")
        raise InputError(
            f"The Ray cluster at {address or 'this machine'} cannot be used "
            f"({reason or type(error).__name__}): start it with ray start or check --address."
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Knock first: Ray itself tries for minutes before it gives up."""
    if place := re.fullmatch(r"([^/]+):(\d+)", address):
        with socket.create_connection((place[1], int(place[2])), timeout=_PATIENCE):
            pass


def room_for(ray: Any, needs: Needs) -> int:
    """For how many workers the machines have room."""
    wanted = {"CPU": needs.processors} | ({"GPU": needs.gpus} if needs.gpus else {})
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(min(int(has.get(kind, 0)) // n for kind, n in wanted.items()) for has in machines)
    if room < 1:
        listed = " and ".join(f"{n} {kind}" for kind, n in wanted.items())
        raise InputError(
            f"No machine of the Ray cluster has {listed} for a worker: {needs.remedy}."
        )
    return room
