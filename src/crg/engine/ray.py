"""Runs and encoding on a Ray cluster: one that is running, or one started here.

Workers are actors: each prepares itself once and then does one job after the other. A lost worker
is started again elsewhere, and its job is done again. Image files, feature files and plug-ins must
have the same path on every machine.

Results are those of this machine, to the byte. The number of threads changes how sums are
rounded, so a worker that encodes has as many threads as this process would, OMP_NUM_THREADS or one
per processor, and takes as many processors of the cluster.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import platform
import re
import socket
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from crg.encoders import load_encoder
from crg.encoders.base import Encoder
from crg.encoding.job import BlockOptions, EncodedBlock, encode_blocks
from crg.engine.worker import OnProgress, Outcome, attempt
from crg.extras import library
from crg.images.image_set import ImageSet
from crg.results.provenance import failed_run, surroundings
from crg.results.schema import RunSpec
from crg.threads import ONE_THREAD, processors
from crg.types import InputError

TRIES = 3  # times that a job is started again when its worker is lost
_PATIENCE = 10.0  # seconds to wait for the cluster's address to answer
_ROOM = 200_000_000  # bytes for jobs and answers in transit, in a cluster started here

Make: TypeAlias = Callable[[], Callable[[Any], Any]]  # called once by a worker, then with each job
Needs: TypeAlias = Mapping[str, Any]  # what a worker takes of the cluster: options of ray.remote


def run_all_on_ray(
    specs: Sequence[RunSpec],
    workers: int | None = None,
    address: str | None = None,
    on_progress: OnProgress = lambda spec, done, total: None,
) -> Generator[tuple[RunSpec, Outcome], None, None]:
    """Run all specs and yield each with its result, or its failure, as soon as it is done.

    Without ``workers`` there are as many as the cluster has processors; without an ``address`` the
    cluster is the one in use, or a new one on this machine. ``on_progress`` is called only at the
    start of each run. To stop early, close the iterator: runs at work are cancelled.
    """
    compiled = {"CRG_COMPILED": os.environ.get("CRG_COMPILED", "1")}
    needs = {"num_cpus": 1, "runtime_env": {"env_vars": {**ONE_THREAD, **compiled}}}
    make = functools.partial(_runner, os.getcwd(), _versions())
    given = (make, specs, needs, workers, address, lambda spec: on_progress(spec, 0, 0))
    with contextlib.closing(work_on_ray(*given)) as answers:
        for number, answer in answers:
            if isinstance(answer, InputError):
                answer = failed_run(specs[number].key, str(answer))
            yield specs[number], answer


def _runner(folder: str, versions: Mapping[str, str]) -> Callable[[RunSpec], Outcome]:
    """Make the function that does each run; called by a worker, once."""
    with contextlib.suppress(OSError):  # for options that name a file
        os.chdir(folder)
    for name, own in _versions().items():
        if own != versions[name]:
            raise InputError(
                f"{platform.node()} of the Ray cluster has {name} {own} rather than "
                f"{versions[name]}: install the same there."
            )
    return attempt


def _versions() -> dict[str, str]:
    """The versions that may change a result."""
    return {name: surroundings()["versions"][name] for name in ("crg", "numpy", "numba")}


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
    there = loading_the_same(encoder, load or functools.partial(load_encoder, encoder.name))
    needs = encoder_needs(encoder)

    def make() -> Callable[[ImageSet], EncodedBlock]:
        loaded = there()
        return lambda block: next(encode_blocks([block], loaded, options, workers=0))

    with contextlib.closing(work_on_ray(make, blocks, needs, workers, address)) as answers:
        for number, answer in answers:
            if isinstance(answer, InputError):
                raise answer
            _, images, unreadable = answer
            advance(len(images))
            yield number, images, unreadable


def encoder_needs(encoder: Encoder) -> Needs:
    """The resources of a worker with such an encoder."""
    if str(getattr(encoder, "device", "cpu")) != "cpu":
        return {"num_cpus": 1, "num_gpus": 1}
    given = os.environ.get("OMP_NUM_THREADS", "")  # array libraries use one per processor without
    return {"num_cpus": int(given) if given.isdecimal() and int(given) else processors()}


def loading_the_same(encoder: Encoder, load: Callable[[], Encoder]) -> Callable[[], Encoder]:
    """A function that loads this very encoder on another machine, with as many threads as here."""
    fingerprint = encoder.fingerprint
    threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None

    def load_the_same() -> Encoder:
        loaded = load()
        if loaded.fingerprint != fingerprint:
            raise InputError(
                f"The weights of {loaded.name} on a machine of the cluster are not those on this "
                "one: put the same file on each."
            )
        if threads is not None and "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(threads)
        return loaded

    return load_the_same


def work_on_ray(
    make: Make,
    jobs: Sequence[Any],
    needs: Needs,
    workers: int | None = None,
    address: str | None = None,
    on_start: Callable[[Any], None] = lambda job: None,
) -> Generator[tuple[int, Any], None, None]:
    """Yield each job's number with its answer, or with an ``InputError``, as soon as it is done.

    Each worker calls ``make`` once, and the result of that with each job. A failure of ``make``
    itself is raised. Without ``workers`` there are as many as the cluster has room for. To stop
    early, close the iterator: the workers are ended, and so is a cluster started here.
    """
    if not jobs:
        return
    with actors_on_ray(make, needs, workers, address, len(jobs)) as (ray, pool):
        awaited: dict[Any, tuple[Any, int | None]] = {
            worker.prepare.remote(): (worker, None) for worker in pool
        }  # of which worker, and for which job; on a busy cluster some workers may have to wait
        numbers, left = iter(range(len(jobs))), len(jobs)
        while left:
            [reference], _ = ray.wait(list(awaited))
            worker, number = awaited.pop(reference)
            answer = _collected(ray, reference)
            if (new := next(numbers, None)) is not None:
                on_start(jobs[new])
                awaited[worker.work.remote(jobs[new])] = (worker, new)
            if number is not None:
                left -= 1
                yield number, answer
            elif isinstance(answer, InputError):
                raise answer


@contextlib.contextmanager
def actors_on_ray(
    make: Make, needs: Needs, workers: int | None, address: str | None, most: int
) -> Iterator[tuple[Any, list[Any]]]:
    """Ray and its actors: ``workers``, or as many as there is room for, but at most ``most``."""
    ray = library("ray", "ray")
    own = (workers or max(1, processors() // needs["num_cpus"])) * needs["num_cpus"]
    with _connected(ray, address, own), contextlib.ExitStack() as ending:
        count = min(workers or most, most, _room_for(ray, needs))
        restarted = {"max_restarts": -1, "max_task_retries": TRIES, "scheduling_strategy": "SPREAD"}
        remote = ray.remote(**needs, **restarted)(Worker)
        pool = [remote.remote(make) for _ in range(count)]
        for actor in pool:
            ending.callback(ray.kill, actor)  # others may use the cluster
        yield ray, pool


class Worker:
    """The actor: it prepares itself once and does many jobs."""

    def __init__(self, make: Make) -> None:
        self._made = functools.cache(make)

    def prepare(self) -> None:
        """Get ready for the first job."""
        self._made()

    def work(self, job: Any) -> Any:
        """The answer to one job."""
        return self._made()(job)


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
def _connected(ray: Any, address: str | None, processors: int) -> Iterator[None]:
    """Use the cluster at ``address``, the one in use, or a new one that ends with the jobs."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send nothing to anybody
    own = {"num_cpus": processors, "include_dashboard": False, "object_store_memory": _ROOM}
    try:
        if place := re.fullmatch(r"([^/]+):(\d+)", address or ""):  # Ray itself tries for minutes
            socket.create_connection((place[1], int(place[2])), timeout=_PATIENCE).close()
        # "local" rather than a cluster that somebody else has started here
        options = {"address": address} if address else {"address": "local", **own}
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


def _room_for(ray: Any, needs: Needs) -> int:
    """How many workers the machines have room for."""
    kinds = (("CPU", needs["num_cpus"]), ("GPU", needs.get("num_gpus", 0)))
    wanted = {kind: count for kind, count in kinds if count}
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(min(int(has.get(kind, 0) // n) for kind, n in wanted.items()) for has in machines)
    if room < 1:
        listed = " and ".join(f"{n} {kind}" for kind, n in wanted.items())
        raise InputError(
            f"No machine of the Ray cluster has {listed} for a worker: add one, or set "
            "OMP_NUM_THREADS to a smaller number."
        )
    return room
