"""Batches: whatever waits is done at once, so that images of all sessions share the encoder."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from PIL import Image

from crg.encoders.base import Encoder, Vectors
from crg.engine.ray import actors_on_ray, encoder_needs, loading_the_same
from crg.images.preprocessing import Pixels, Preprocessing
from crg.images.reading import reading
from crg.images.views import Recipe, views_of
from crg.server.limits import ServerConfig
from crg.server.schema import ProblemError
from crg.threads import processors
from crg.types import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")
Encode: TypeAlias = Callable[[Pixels], Vectors]  # views (n, H, W, 3) -> features (n, D)
Encoded: TypeAlias = tuple[Vectors, bytes | None]  # features (V, D) of an image, its thumbnail
ROWS = 32  # views per call of the encoder; more do not make it faster
WAIT = "wait a moment and send it again."
_THUMBNAIL = (128, 128)  # pixels, at the most


@dataclass
class Budget:
    """An amount that may be in use at once; a user gives back what it took."""

    most: int
    sentence: str  # for those who ask for more
    used: int = 0

    def take(self, amount: int) -> None:
        """Use so much more; refuse with 429 where that is too much."""
        if self.used + amount > self.most:
            raise ProblemError(429, self.sentence)
        self.used += amount

    def give_back(self, amount: int) -> None:
        """Use so much less."""
        self.used -= amount


class Gatherer(Generic[Item, Result]):
    """Hands everything that waits to an idle worker at once; while all are busy, more gathers.

    ``works`` take a list of items and return the result of each; every one of them has a thread.
    All methods belong to the event loop in which the object was made.
    """

    def __init__(
        self,
        name: str,
        *works: Callable[[list[Item]], Sequence[Result]],
        weigh: Callable[[Item], int] = lambda _: 1,
        most: int = 1_000,
    ) -> None:
        self._weigh, self._most = weigh, most
        self._waiting: asyncio.Queue[tuple[Item, asyncio.Future[Result]]] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(len(works), name)
        self._workers = [asyncio.create_task(self._run(work)) for work in works]

    def submit(self, item: Item) -> asyncio.Future[Result]:
        """Add an item to the next batch; the future gets its result."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((item, future))
        return future

    def close(self) -> None:
        """Wait for the batches that have begun, and end the threads."""
        for worker in self._workers:
            worker.cancel()
        self._threads.shutdown()

    async def _run(self, work: Callable[[list[Item]], Sequence[Result]]) -> None:
        while True:
            batch = [await self._waiting.get()]
            weight = self._weigh(batch[0][0])
            while weight < self._most and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
                weight += self._weigh(batch[-1][0])
            items, waiting = [item for item, _ in batch], [each for _, each in batch]
            running = asyncio.get_running_loop().run_in_executor(self._threads, work, items)
            await asyncio.wait([running])
            error = running.exception()
            for place, future in enumerate(waiting):
                if future.done():  # its request was cancelled
                    continue
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(running.result()[place])
            await asyncio.sleep(0)  # the callbacks of the futures come before the next batch


class Batcher:
    """Reads images with a thread per processor, and encodes their views in common batches."""

    def __init__(
        self, preprocessing: Preprocessing, encoders: Sequence[Encode], config: ServerConfig
    ) -> None:
        self._preprocessing, self._config = preprocessing, config
        self.queue = Budget(config.max_queue, f"Too many images are waiting: {WAIT}")
        self._readers = ThreadPoolExecutor(processors(), "crg-read")
        works = [partial(_encode_batch, encode) for encode in encoders]
        self._gatherer: Gatherer[Pixels, Vectors]
        self._gatherer = Gatherer("crg-encode", *works, weigh=len, most=ROWS)

    def encode(self, contents: Sequence[bytes], n_views: int) -> asyncio.Future[list[Encoded]]:
        """Start to read images and to encode their views; refuse them with 429 if too many wait."""
        count = len(contents)
        self.queue.take(count)
        numbered = enumerate(contents, 1)
        encoding = asyncio.gather(*[self._encode(each, n_views, n) for n, each in numbered])
        encoding.add_done_callback(lambda _: self.queue.give_back(count))
        return encoding

    async def _encode(self, content: bytes, n_views: int, place: int) -> Encoded:
        if len(content) > (most := self._config.max_bytes):
            sentence = f"The image has more than {most:,} bytes: scale it down."
            raise ProblemError(413, sentence, image=place)
        loop = asyncio.get_running_loop()
        try:
            views, small = await loop.run_in_executor(self._readers, self._read, content, n_views)
        except InputError as error:
            raise ProblemError(422, str(error), image=place) from None
        return await self._gatherer.submit(views), small

    def close(self) -> None:
        """Wait for what has begun, and end the threads."""
        self._readers.shutdown(cancel_futures=True)
        self._gatherer.close()

    def _read(self, content: bytes, n_views: int) -> tuple[Pixels, bytes | None]:
        """The views of an image, and its thumbnail: a JPEG, if thumbnails are kept."""
        name = "" if n_views == 1 else hashlib.sha256(content).hexdigest()
        with reading(content, self._config.max_pixels) as image:
            pixels = views_of(image, self._preprocessing, Recipe(views=n_views), name, 1)
            if not self._config.thumbnails:
                return pixels, None
            image.thumbnail(_THUMBNAIL, Image.Resampling.BOX, reducing_gap=1.0)
            image.save(written := io.BytesIO(), "JPEG", quality=75)
            return pixels, written.getvalue()


def _encode_batch(encode: Encode, batch: Sequence[Pixels]) -> list[Vectors]:
    features = encode(batch[0] if len(batch) == 1 else np.concatenate(batch))
    return np.split(features, np.cumsum([len(views) for views in batch])[:-1])


@contextlib.contextmanager
def encoders_on_ray(
    encoder: Encoder, load: Callable[[], Encoder], replicas: int, address: str | None
) -> Iterator[list[Encode]]:
    """Replicas of ``encoder`` on the Ray cluster at ``address``, or on one of this machine.

    Ray restarts a replica that is lost, and gives it again what it was encoding.
    """
    there, needs = loading_the_same(encoder, load), encoder_needs(encoder)

    def make() -> Encode:
        return there().encode_images

    with actors_on_ray(make, needs, replicas, address, replicas) as (ray, actors):
        for preparing in [actor.prepare.remote() for actor in actors]:
            _collect(ray, preparing)
        yield [partial(_encode_on, ray, actor) for actor in actors]


def _encode_on(ray: Any, actor: Any, pixels: Pixels) -> Vectors:
    features: Vectors = _collect(ray, actor.work.remote(pixels))
    return features


def _collect(ray: Any, waiting: Any) -> Any:
    try:
        return ray.get(waiting)
    except ray.exceptions.RayActorError:
        raise ProblemError(503, "No encoder answers: wait until there is one again.") from None
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
