"""Common batches: a thread that takes whatever is waiting, and the encoder behind one."""

from __future__ import annotations

import asyncio
import hashlib
import io
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from PIL import Image

from crg.encoders.base import Encoder, Vectors
from crg.images.preprocessing import Pixels
from crg.images.reading import reading
from crg.images.views import Recipe, views_of
from crg.server.metrics import Metrics
from crg.server.problems import refused
from crg.types import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")
ROWS = 32  # views per call of the encoder; more do not make it faster
_MOMENT = 0.01  # seconds that a batch may wait for an image that is being read
THUMBNAIL = 128  # pixels a side


class Workers:
    """Threads that do what they are given, at less cost than those of ``concurrent.futures``."""

    def __init__(self, count: int, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{n}", daemon=True)
            for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], None]) -> None:
        """Have something done that does not fail."""
        self._waiting.put(work)

    def do(self, work: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """Have something done whose result is waited for in the loop."""
        done: asyncio.Future[Result] = self._loop.create_future()

        def run() -> None:
            result: Result | BaseException
            try:
                result = work(*arguments)
            except BaseException as error:
                result = error
            self._loop.call_soon_threadsafe(_resolve, [done], [result])

        self._waiting.put(run)
        return done

    def close(self) -> None:
        """End the threads once all is done."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            work()


class Gatherer(Generic[Item, Result]):
    """A thread that does at once all that waits; while it is busy, more can gather.

    ``works`` get the items and give a result or an exception for each; every one of them has a
    thread. Nobody waits for a batch to fill up, but a moment for those that ``expects`` says are
    about to come.
    """

    def __init__(
        self,
        name: str,
        *works: Callable[[list[Item]], Sequence[Result | BaseException]],
        weigh: Callable[[Item], int] = lambda _: 1,
        most: int = 1_000,
        expects: Callable[[], bool] = lambda: False,
    ) -> None:
        self._weigh, self._most, self._expects = weigh, most, expects
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[tuple[Item, asyncio.Future[Result]] | None]
        self._waiting = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
            for work in works
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, item: Item, future: asyncio.Future[Result]) -> None:
        """Have an item done; the future, of the loop that made this, gets the result."""
        self._waiting.put((item, future))

    def close(self) -> None:
        """End the threads once all that was submitted is done."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[list[Item]], Sequence[Result | BaseException]]) -> None:
        while (first := self._waiting.get()) is not None:
            batch, ended = self._gathered(first)
            try:
                results = work([item for item, _ in batch])
            except Exception as error:
                results = [error] * len(batch)
            futures = [future for _, future in batch]
            self._loop.call_soon_threadsafe(_resolve, futures, results)
            if ended:
                return

    def _gathered(
        self, first: tuple[Item, asyncio.Future[Result]]
    ) -> tuple[list[tuple[Item, asyncio.Future[Result]]], bool]:
        """All that waits by now, up to the weight, and whether the end was among it."""
        batch, weight = [first], self._weigh(first[0])
        while weight < self._most:
            try:
                following = self._waiting.get(timeout=_MOMENT if self._expects() else 0)
            except queue.Empty:
                break
            if following is None:
                return batch, True
            batch.append(following)
            weight += self._weigh(following[0])
        return batch, False


def _resolve(
    futures: Sequence[asyncio.Future[Result]], results: Sequence[Result | BaseException]
) -> None:
    for future, result in zip(futures, results, strict=True):
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


@dataclass(frozen=True)
class Encoded:
    """An image that has been seen: the features of its views, and a small copy to show."""

    features: Vectors  # (V, D)
    thumbnail: bytes | None = None


_Views: TypeAlias = tuple[Pixels, bytes | None]  # and the thumbnail


@dataclass(frozen=True)
class ImageEncoder:
    """Reads images and encodes their views."""

    encoder: Encoder
    max_pixels: int
    thumbnails: bool

    def views(self, content: bytes, recipe: Recipe) -> _Views:
        """What the encoder is to see of an image."""
        name = "" if recipe.views == 1 else hashlib.sha256(content).hexdigest()
        with reading(content, self.max_pixels) as image:
            pixels = views_of(image, self.encoder.preprocessing, recipe, name, 1)
            return pixels, thumbnail_of(image) if self.thumbnails else None

    def encode(self, batch: Sequence[_Views]) -> list[Encoded]:
        """Encode the views of several images at once."""
        pixels = batch[0][0] if len(batch) == 1 else np.concatenate([views for views, _ in batch])
        features = self.encoder.encode_images(pixels)
        ends = np.cumsum([len(views) for views, _ in batch])[:-1]
        rows = np.split(features, ends)
        return [Encoded(each, small) for each, (_, small) in zip(rows, batch, strict=True)]


class Encoding(Protocol):
    """How images of all sessions become features."""

    def encode(self, content: bytes, recipe: Recipe, place: int = 0) -> asyncio.Future[Encoded]:
        """Read one image and encode its views, together with those of others.

        ``place`` is that of the image in its request, for the problem that it may be.
        """

    def close(self) -> None:
        """End once all is encoded."""


class Batcher:
    """Encoding in this process: images are read by a few threads, and encoded by one."""

    def __init__(self, eye: ImageEncoder, workers: int, metrics: Metrics) -> None:
        self._eye, self._metrics = eye, metrics
        self._loop = asyncio.get_running_loop()
        self._readers = Workers(workers, "crg-read")
        self._lock = threading.Lock()
        self._reading = 0  # images
        self._gatherer: Gatherer[_Views, Encoded]
        self._gatherer = Gatherer(
            "crg-encode", self._encode, weigh=lambda item: len(item[0]), most=ROWS,
            expects=lambda: self._reading > 0,
        )  # fmt: skip

    def encode(self, content: bytes, recipe: Recipe, place: int = 0) -> asyncio.Future[Encoded]:
        """Read one image and encode its views, together with those of others."""
        encoded: asyncio.Future[Encoded] = self._loop.create_future()
        with self._lock:
            self._reading += 1
        self._readers.submit(partial(self._read, content, recipe, place, encoded))
        return encoded

    def close(self) -> None:
        """End the threads once all is encoded."""
        self._readers.close()
        self._gatherer.close()

    def _read(
        self, content: bytes, recipe: Recipe, place: int, encoded: asyncio.Future[Encoded]
    ) -> None:
        """Hand the views of an image on to the encoder."""
        result: _Views | BaseException
        try:
            result = self._eye.views(content, recipe)
        except InputError as error:
            result = refused(error, image=place)
        except BaseException as error:
            result = error
        with self._lock:
            self._reading -= 1  # before the encoder looks whether it is to wait for more
        if isinstance(result, BaseException):
            self._loop.call_soon_threadsafe(_resolve, [encoded], [result])
        else:
            self._gatherer.submit(result, encoded)

    def _encode(self, batch: list[_Views]) -> list[Encoded]:
        self._metrics.batch_size.observe(sum(len(views) for views, _ in batch))
        return self._eye.encode(batch)


def thumbnail_of(image: Image.Image) -> bytes:
    """A JPEG of an RGB image, at most ``THUMBNAIL`` pixels a side."""
    longer, written = max(image.size), io.BytesIO()
    whole = -(-longer // THUMBNAIL)  # blocks of so many pixels a side become one each
    if 4 * longer >= 3 * whole * THUMBNAIL:
        small = image.reduce(whole)  # four times as fast as resizing
    else:
        scale = min(1.0, THUMBNAIL / longer)
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        small = image.resize(size, Image.Resampling.BOX)
    small.save(written, "JPEG", quality=75)
    return written.getvalue()
