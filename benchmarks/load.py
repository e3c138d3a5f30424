"""Clients of a service: as many connections as asked for, each with a session of its own.

``python benchmarks/load.py PORT CLIENTS IMAGES_PER_REQUEST SECONDS FOLDER`` sends the files of a
folder and prints what came of it as JSON. It writes to the sockets itself: a library for HTTP
would take more of the processors that the service needs.
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


async def answer_to(
    request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bytes:
    """Send a request and read its answer, which must be a success with a known length."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(None, 1)[0])
    body = await reader.readexactly(length)
    if head[9:10] != b"2":
        raise RuntimeError((head + body).decode())
    return body


async def client(
    port: int, images: Sequence[bytes], per_request: int, until: float
) -> list[tuple[float, float]]:
    """One client that sends a request when the one before it is answered: starts and ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    names = json.dumps({"classes": [thing.name for thing in class_things()]}).encode()
    start = _head("/v1/sessions", b"application/json", len(names)) + names
    session = json.loads(await answer_to(start, reader, writer))["id"]
    groups = [images[n : n + per_request] for n in range(0, len(images), per_request)]
    requests = itertools.cycle([request_of(session, group) for group in groups])
    times = []
    while (begun := time.perf_counter()) < until:
        await answer_to(next(requests), reader, writer)
        times.append((begun, time.perf_counter()))
    writer.close()
    return times


async def load(port: int, clients: int, per_request: int, seconds: float, folder: Path) -> str:
    """All clients at once; requests per second, latencies and our own use of the processor."""
    images = [path.read_bytes() for path in sorted(folder.iterdir())]
    images = images[: len(images) // per_request * per_request]
    begun = time.perf_counter() + _WARM
    until = begun + seconds
    each = [client(port, images, per_request, until) for _ in range(clients)]
    warm = asyncio.create_task(_processor_at(begun))
    times = [time for one in await asyncio.gather(*each) for time in one]
    used = _processor() - await warm
    taken = sorted(end - start for start, end in times if start >= begun)
    done = sum(begun <= end < until for _, end in times)
    return json.dumps(
        {
            "per_second": done / seconds,
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
    port, clients, per_request = map(int, sys.argv[1:4])
    print(asyncio.run(load(port, clients, per_request, float(sys.argv[4]), Path(sys.argv[5]))))
