"""Runs and encoding on a Ray cluster: one that is running, or one started here.

Workers are actors: each prepares itself once and then does one job after the other. A worker that
is lost with its process or its machine is started again elsewhere, and its job is done again.
Image files, feature files and plug-ins must have the same path on every machine.

Results are those of this machine, to the byte. The number of threads changes how sums are
rounded, so a worker that encodes computes with as many threads as this process would, and takes as
many processors of the cluster; OMP_NUM_THREADS sets how many.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import logging
import os
import platform
import re
import socket
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from msgspec.structs import replace

from crg.encoders import load_encoder
from crg.encoders.base import Encoder
from crg.encoding.job import BlockOptions, EncodedBlock, encode_blocks
from crg.engine.worker import OnProgress, Outcome, Report, attempt
from crg.extras import library
from crg.images.image_set import ImageSet
from crg.plugins import resolved
from crg.results.provenance import failed_run
from crg.results.schema import Data, RunSpec
from crg.threads import ONE_THREAD, processors
from crg.types import InputError

TRIES = 3  # times that a job is started again when its worker is lost
_PATIENCE = 10.0  # seconds to wait for the cluster's address to answer
_PAUSE = 0.25  # seconds between two readings of the news
_ROOM = 200_000_000  # bytes for jobs and answers in transit, in a cluster started here
_DECIDING = ("crg-tta", "numpy", "numba")  # libraries whose version may change a result
_PASSED_ON = ("CRG_COMPILED",)  # variables that may

JobT = TypeVar("JobT")
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class Needs:
    """The resources that one worker takes of the cluster."""

    processors: int = 1
    gpus: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)  # of its environment
    ahead: int = 1  # jobs that it is given at once; with two it never waits for the next
    remedy: str = "add one"  # where no machine has as much


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
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    needs = Needs(variables={**ONE_THREAD, **passed_on})
    make = functools.partial(_runner, os.getcwd(), _versions())

    def report(number: int, done: int, total: int) -> None:
        assert on_progress is not None
        on_progress(specs[number], done, total)

    jobs, heard = [_anywhere(spec) for spec in specs], report if on_progress else None
    with contextlib.closing(work_on_ray(make, jobs, needs, workers, address, heard)) as answers:
        for number, answer in answers:
            spec, lost = specs[number], isinstance(answer, InputError)
            yield spec, failed_run(spec.key, str(answer)) if lost else cast(Outcome, answer)


def _runner(folder: str, versions: Mapping[str, str]) -> Callable[[RunSpec, Report], Outcome]:
    """Make the function that does each run; called by a worker, once."""
    with contextlib.suppress(OSError):  # for options that name a file
        os.chdir(folder)
    own = _versions()
    for name in _DECIDING:
        if own[name] != versions[name]:
            reason = (
                f"{platform.node()} of the Ray cluster has {name} {own[name]} rather than "
                f"{versions[name]}: install the same there."
            )
            return lambda spec, report: failed_run(spec.key, reason)
    return attempt


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


def encode_on_ray(
    blocks: Sequence[ImageSet],
    encoder: Encoder,
    options: BlockOptions,
    advance: Callable[[int], None] = lambda images: None,
    workers: int | None = None,
    address: str | None = None,
    load: Callable[[], Encoder] | None = None,
) -> Generator[EncodedBlock, None, None]:
    """Yield each block as soon as one of the cluster's ``workers`` has encoded it.

    Each worker loads the encoder once, with ``load``: by default ``load_encoder(encoder.name)``.
    """
    load = loading_the_same(encoder, load or functools.partial(load_encoder, encoder.name))
    make = functools.partial(_block_encoder, load, options)
    needs = encoder_needs(encoder)
    with contextlib.closing(work_on_ray(make, blocks, needs, workers, address)) as answers:
        for number, answer in answers:
            if isinstance(answer, InputError):
                raise answer
            _, images, unreadable = answer
            advance(len(images))
            yield number, images, unreadable


def encoder_needs(encoder: Encoder) -> Needs:
    """The resources of a worker with such an encoder."""
    on_gpu = str(getattr(encoder, "device", "cpu")) != "cpu"
    given = os.environ.get("OMP_NUM_THREADS", "")  # array libraries use one per processor without
    threads = int(given) if given.isdecimal() and int(given) else processors()
    return Needs(
        processors=1 if on_gpu else threads,
        gpus=1 if on_gpu else 0,
        ahead=2,
        remedy="add one, or set OMP_NUM_THREADS to a smaller number",
    )


def loading_the_same(encoder: Encoder, load: Callable[[], Encoder]) -> Callable[[], Encoder]:
    """A function that loads this very encoder on another machine, with as many threads as here."""
    torch_threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    return functools.partial(_load_the_same, load, encoder.fingerprint, torch_threads)


def _load_the_same(
    load: Callable[[], Encoder], fingerprint: str, torch_threads: int | None
) -> Encoder:
    encoder = load()
    if encoder.fingerprint != fingerprint:
        raise InputError(
            f"The weights of {encoder.name} on a machine of the cluster are not those on this "
            "one: put the same file on each."
        )
    if torch_threads is not None and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(torch_threads)
    return encoder


def _block_encoder(
    load: Callable[[], Encoder], options: BlockOptions
) -> Callable[[ImageSet, Report], EncodedBlock]:
    encoder = load()

    def work(block: ImageSet, report: Report) -> EncodedBlock:
        [encoded] = encode_blocks([block], encoder, options, workers=0)
        return encoded

    return work


def work_on_ray(
    make: Callable[[], Callable[[JobT, Report], AnswerT]],
    jobs: Sequence[JobT],
    needs: Needs,
    workers: int | None = None,
    address: str | None = None,
    on_progress: Callable[[int, int, int], None] | None = None,
) -> Generator[tuple[int, AnswerT | InputError], None, None]:
    """Yield the number of each job with its answer, or with its failure, as soon as it is done.

    Each worker calls ``make`` once, and the result of that with each job. A failure of ``make``
    itself is raised. Without ``workers`` there are as many as the cluster has room for.
    ``on_progress`` gets the number of a job and how far it is: done, total. To stop early, close
    the iterator: the workers are ended, and so is a cluster started here.
    """
    if not jobs:
        return
    ray = library("ray", "ray")
    own = (workers or max(1, processors() // needs.processors)) * needs.processors
    with connected(ray, address, own), contextlib.ExitStack() as actors:
        room = room_for(ray, needs)
        news = ray.remote(num_cpus=0, max_restarts=-1)(News).remote() if on_progress else None
        remote = ray.remote(
            num_cpus=needs.processors,
            num_gpus=needs.gpus,
            max_restarts=-1,
            max_task_retries=TRIES,
            runtime_env={"env_vars": dict(needs.variables)},
        )(Worker)
        count = min(workers or room, room, len(jobs))
        pool = [remote.remote(make, news) for _ in range(count)]
        for actor in (*pool, *([news] if news else [])):
            actors.callback(ray.kill, actor)  # others may use the cluster
        board = None if on_progress is None else functools.partial(_pass_on, ray, news, on_progress)
        yield from _answers(ray, pool, jobs, needs.ahead, board)


class Worker(Generic[JobT, AnswerT]):
    """The actor: it prepares itself once and does many jobs."""

    def __init__(self, make: Callable[[], Callable[[JobT, Report], AnswerT]], news: Any) -> None:
        self._make, self._news = make, news

    @functools.cached_property
    def _work(self) -> Callable[[JobT, Report], AnswerT]:
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
        """Note how far job ``number`` is."""
        self._news[number] = (done, total)

    def read(self) -> dict[int, tuple[int, int]]:
        """The jobs that advanced since the last reading."""
        news, self._news = self._news, {}
        return news


def _pass_on(
    ray: Any, news: Any, on_progress: Callable[[int, int, int], None], at_work: set[int]
) -> None:
    """Report the jobs ``at_work`` that advanced; others are done by now."""
    with contextlib.suppress(ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        for number, far in ray.get(news.read.remote(), timeout=_PAUSE).items():
            if number in at_work:
                on_progress(number, *far)


def _answers(
    ray: Any,
    pool: Sequence[Any],
    jobs: Sequence[Any],
    ahead: int,
    pass_on: Callable[[set[int]], None] | None,
) -> Generator[tuple[int, Any], None, None]:
    """A worker gets jobs once it is there: on a busy cluster some may have to wait."""
    awaited: dict[Any, tuple[Any, int | None]] = {
        worker.prepare.remote(): (worker, None) for worker in pool
    }  # of which worker, and for which job
    waiting, left = list(reversed(range(len(jobs)))), len(jobs)
    pause = None if pass_on is None else _PAUSE
    while left:
        ready = ray.wait(list(awaited), num_returns=1, timeout=pause)[0]
        if pass_on is not None:
            pass_on({number for _, number in awaited.values() if number is not None})
        for reference in ready:
            worker, number = awaited.pop(reference)
            answer = _collected(ray, reference)
            free = 1 if number is not None else ahead
            for new in [waiting.pop() for _ in range(min(free, len(waiting)))]:
                awaited[worker.work.remote(new, jobs[new])] = (worker, new)
            if number is not None:
                left -= 1
                yield number, answer
            elif isinstance(answer, InputError):
                raise answer


def _collected(ray: Any, reference: Any) -> Any:
    """The answer, or the failure as one sentence."""
    errors = ray.exceptions
    try:
        return ray.get(reference)
    except (errors.RayActorError, errors.WorkerCrashedError, errors.OutOfMemoryError):
        return InputError(
            f"Ray lost the worker {TRIES + 1} times at the same job, perhaps for lack of "
            "memory: try fewer --workers or smaller jobs."
        )
    except errors.RayTaskError as error:
        if not isinstance(error.cause, InputError):
            raise
        return InputError(str(error.cause))


@contextlib.contextmanager
def connected(ray: Any, address: str | None, processors: int) -> Iterator[None]:
    """Use the cluster at ``address``, the one in use, or a new one that ends with the jobs."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send nothing to anybody
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
    """Connect once first: Ray itself tries for minutes before it gives up."""
    if place := re.fullmatch(r"([^/]+):(\d+)", address):
        with socket.create_connection((place[1], int(place[2])), timeout=_PATIENCE):
            pass


def room_for(ray: Any, needs: Needs) -> int:
    """How many workers the machines have room for."""
    wanted = {"CPU": needs.processors} | ({"GPU": needs.gpus} if needs.gpus else {})
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(min(int(has.get(kind, 0)) // n for kind, n in wanted.items()) for has in machines)
    if room < 1:
        listed = " and ".join(f"{n} {kind}" for kind, n in wanted.items())
        raise InputError(
            f"No machine of the Ray cluster has {listed} for a worker: {needs.remedy}."
        )
    return room
