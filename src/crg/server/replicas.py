"""Encoders apart from the service: replicas that read and encode, in processes or elsewhere.

HTTP, learning and the log share one interpreter; images that are read and encoded in processes of
their own do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, Protocol

from crg.encoders.base import Encoder
from crg.engine.ray_encoding import TRIES
from crg.images.views import Recipe
from crg.server.batching import ROWS, Encoded, Encoding, Gatherer, ImageEncoder
from crg.server.learner import LostError
from crg.server.metrics import Metrics
from crg.server.problems import Problem, refused
from crg.server.service import Service, Settings
from crg.threads import one_blas_thread, processors
from crg.types import InputError

_PAUSE = 1.0  # seconds between two rounds in search of a replica that answers
_HEAVY = 1_000_000  # bytes of an image that weigh as much as one view
_Image = tuple[bytes, Recipe]


class Replica:
    """Reads and encodes images, in a process of its own."""

    def __init__(
        self,
        load: Callable[[], Encoder],
        max_pixels: int,
        thumbnails: bool,
        threads: int | None = None,
    ) -> None:
        self._load, self._max_pixels, self._thumbnails = load, max_pixels, thumbnails
        self._held = contextlib.ExitStack()  # as long as the replica: setting it per batch is slow
        self._held.enter_context(one_blas_thread())
        threads = threads or processors()
        self._map = map if threads == 1 else ThreadPoolExecutor(threads).map

    @functools.cached_property
    def _eye(self) -> ImageEncoder:
        return ImageEncoder(self._load(), self._max_pixels, self._thumbnails)

    def prepare(self) -> None:
        """Get ready for the first image."""
        self._eye  # noqa: B018

    def encode(self, batch: Sequence[tuple[bytes, Recipe]]) -> list[Encoded | InputError]:
        """Encode what can be read; for the others, what is wrong with them."""
        seen = list(self._map(self._views, batch))
        readable = [each for each in seen if not isinstance(each, InputError)]
        encoded = iter(self._eye.encode(readable) if readable else ())
        return [each if isinstance(each, InputError) else next(encoded) for each in seen]

    def _views(self, image: tuple[bytes, Recipe]) -> Any:
        try:
            return self._eye.views(*image)
        except InputError as error:
            return error


class Replicas(Protocol):
    """Some replicas, and how one is asked."""

    @property
    def replicas(self) -> Sequence[Any]:
        """The replicas."""

    def answer(self, actor: Any, verb: str, *arguments: Any) -> Any:
        """What one answers; ``LostError`` if it is gone."""


class ReplicaBatcher:
    """Encoding by replicas: each takes what waits."""

    def __init__(self, cluster: Replicas, metrics: Metrics) -> None:
        self._cluster, self._metrics = cluster, metrics
        works = [functools.partial(self._encode, n) for n in range(len(cluster.replicas))]
        self._gatherer: Gatherer[tuple[bytes, Recipe, int], Encoded]
        self._gatherer = Gatherer("crg-encode", *works, weigh=_weight, most=ROWS)

    def encode(self, content: bytes, recipe: Recipe, place: int = 0) -> asyncio.Future[Encoded]:
        """Read one image and encode its views, together with those of others."""
        encoded: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()
        self._gatherer.submit((content, recipe, place), encoded)
        return encoded

    def close(self) -> None:
        """End the threads once all is encoded."""
        self._gatherer.close()

    def _encode(
        self, first: int, batch: list[tuple[bytes, Recipe, int]]
    ) -> list[Encoded | BaseException]:
        """Ask one replica, and if it is lost the next."""
        replicas = self._cluster.replicas
        self._metrics.batch_size.observe(sum(recipe.views for _, recipe, _ in batch))
        images = [(content, recipe) for content, recipe, _ in batch]
        for turn in turns(len(replicas)):
            replica = replicas[(first + turn) % len(replicas)]
            with contextlib.suppress(LostError):
                seen = self._cluster.answer(replica, "encode", images)
                return [
                    refused(each, image=place) if isinstance(each, InputError) else each
                    for each, (_, _, place) in zip(seen, batch, strict=True)
                ]
        raise nobody("encoder")


def turns(actors: int) -> Iterator[int]:
    """Ask one actor after the other, some times, with a pause after each round."""
    for turn in range(TRIES * actors):
        yield turn
        if (turn + 1) % actors == 0:
            time.sleep(_PAUSE)


def _weight(item: tuple[bytes, Recipe, int]) -> int:
    content, recipe, _ = item
    return recipe.views + len(content) // _HEAVY


def nobody(kind: str) -> Problem:
    """The problem that none of a kind answers."""
    return Problem(503, f"No {kind} answers: wait until there is one again.",
                   retry_after=5)  # fmt: skip


def _live(pipe: Connection, *eye: Any) -> None:
    """Life of a process: it encodes what comes, until the service closes the pipe or is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    replica = Replica(*eye)
    with contextlib.suppress(EOFError, OSError):
        pipe.send(_tried(replica.prepare))
        while True:
            pipe.send(_tried(replica.encode, pipe.recv()))


def _tried(work: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return work(*arguments)
    except Exception as error:
        return error


class _Process:
    """A replica behind a pipe; one thread at a time asks it."""

    def __init__(self, *eye: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_live, args=(theirs, *eye), daemon=True)
        self._process.start()
        theirs.close()
        self._lock, self._ready = threading.Lock(), False

    def answer(self, images: Sequence[_Image]) -> Any:
        """What it makes of images; ``EOFError`` or ``OSError`` if it is gone."""
        with self._lock:
            self.wait()
            self._pipe.send(images)
            return self._received()

    def wait(self) -> None:
        """Wait until it is ready, and raise what keeps it from that."""
        if not self._ready:
            self._received()
            self._ready = True

    def close(self) -> None:
        """End it."""
        self._pipe.close()
        self._process.join()

    def _received(self) -> Any:
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Processes:
    """Replicas as processes of this machine; one that dies is started again."""

    def __init__(self, count: int, *eye: Any) -> None:
        self.replicas = range(count)
        self._start = functools.partial(_Process, *eye, max(1, processors() // count))
        self._processes = [self._start() for _ in self.replicas]
        for process in self._processes:
            process.wait()  # so that what is wrong is known at the start

    def answer(self, actor: int, verb: str, *arguments: Any) -> Any:
        """What a process answers; ``LostError`` if it is gone."""
        process = self._processes[actor]
        try:
            return process.answer(*arguments)
        except (EOFError, OSError):
            if self._processes[actor] is process:
                self._processes[actor] = self._start()
            raise LostError from None

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.close()


@contextlib.contextmanager
def open_processes(
    settings: Settings, load: Callable[[], Encoder], count: int
) -> Iterator[Processes]:
    """Replicas for a service, until the end of the block."""
    limits = settings.limits
    processes = Processes(count, load, limits.max_pixels, limits.thumbnails > 0)
    try:
        yield processes
    finally:
        processes.close()


class ReplicaService(Service):
    """The service whose images are encoded by replicas."""

    def __init__(self, settings: Settings, encoder: Encoder, replicas: Replicas) -> None:
        super().__init__(settings, encoder)
        self._replicas = replicas

    def make_batcher(self) -> Encoding:
        """Where images are encoded: by the replicas."""
        return ReplicaBatcher(self._replicas, self.metrics)
