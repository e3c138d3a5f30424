"""Clients of a service: as many connections as asked for, each with a session of its own.

``python benchmarks/load.py PORT CLIENTS IMAGES_PER_REQUEST VIEWS SECONDS FOLDER`` sends the files
of a folder and prints requests per second and latencies as JSON. It writes to the sockets itself: a
library for HTTP would take more of the processors that the service needs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from crg.shapes import class_things

_BOUNDARY = b"crg-load"
_WARM = 1.0  # seconds that are not counted


def request_of(session: str, images: Sequence[bytes]) -> bytes:
    """A request with one image as its body, or with several as a form."""
    kind, body = b"image/jpeg", images[0]
    if len(images) > 1:
        kind = b"multipart/form-data; boundary=" + _BOUNDARY
        head = b'--%b\r\nContent-Disposition: form-data; name="image"; filename="%d.jpg"\r\n\r\n'
        parts = [head % (_BOUNDARY, n) + image + b"\r\n" for n, image in enumerate(images)]
        body = b"".join(parts) + b"--%b--\r\n" % _BOUNDARY
    return _head(f"/v1/sessions/{session}/images", kind, len(body)) + body


def _head(path: str, kind: bytes, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind.decode()}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


class Client:
    """One client, with a session of its own."""

    async def start(self, port: int, groups: Sequence[Sequence[bytes]], views: int) -> None:
        """Start the session, and send one request that is not counted."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        new = {"classes": [thing.name for thing in class_things()], "views": views}
        body = json.dumps(new).encode()
        head = _head("/v1/sessions", b"application/json", len(body))
        session = json.loads(await self._answer(head + body))["id"]
        self._requests = itertools.cycle([request_of(session, group) for group in groups])
        await self._answer(next(self._requests))

    async def send(self, until: float) -> list[tuple[float, float]]:
        """Send a request whenever the one before it is answered: starts and ends."""
        times = []
        while (begun := time.perf_counter()) < until:
            await self._answer(next(self._requests))
            times.append((begun, time.perf_counter()))
        self._writer.close()
        return times

    async def _answer(self, request: bytes) -> bytes:
        """Send a request and read its answer, which must be a success with a known length."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(None, 1)[0])
        body = await self._reader.readexactly(length)
        if head[9:10] != b"2":
            raise RuntimeError((head + body).decode())
        return body


async def load(
    port: int, n_clients: int, per_request: int, views: int, seconds: float, folder: Path
) -> str:
    """All clients at once; requests per second, latencies and our own use of the processor."""
    images = [path.read_bytes() for path in sorted(folder.iterdir())]
    last = len(images) - per_request + 1
    groups = [images[n : n + per_request] for n in range(0, last, per_request)]
    clients = [Client() for _ in range(n_clients)]
    await asyncio.gather(*(each.start(port, groups, views) for each in clients))
    begun = time.perf_counter() + _WARM
    until = begun + seconds
    warm = asyncio.create_task(_processor_at(begun))
    times = [
        time for one in await asyncio.gather(*(c.send(until) for c in clients)) for time in one
    ]
    used = _processor() - await warm
    taken = sorted(end - start for start, end in times if end >= begun)
    return json.dumps(
        {
            "per_second": sum(begun <= end < until for _, end in times) / seconds,
            "p50": taken[len(taken) // 2],
            "p99": taken[int(len(taken) * 0.99)],
            "client_processors": used / seconds,
        }
    )


async def _processor_at(moment: float) -> float:
    await asyncio.sleep(moment - time.perf_counter())
    return _processor()


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    port, n_clients, per_request, views = map(int, sys.argv[1:5])
    seconds, folder = float(sys.argv[5]), Path(sys.argv[6])
    print(asyncio.run(load(port, n_clients, per_request, views, seconds, folder)))
