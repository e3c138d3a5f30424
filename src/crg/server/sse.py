"""Who watches sessions: each event goes to every watcher, and nobody is waited for."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

from msgspec import json
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from crg.server.event_log import Event
from crg.server.limits import Budget

_BEHIND = 256  # events that a watcher may be behind before it is disconnected
HEARTBEAT = 15.0  # seconds
_STUCK = 20.0  # seconds that a watcher may take to read what it is sent
_END = b""


def frame(number: int, kind: str, detail: bytes | str) -> bytes:
    """One server-sent event."""
    data = detail if isinstance(detail, bytes) else detail.encode()
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, kind.encode(), data)


class Hub:
    """The watchers of all sessions."""

    def __init__(self, most: int) -> None:
        self._queues: defaultdict[str, set[asyncio.Queue[tuple[int, bytes]]]] = defaultdict(set)
        self.budget = Budget(most, "Too many streams of events are open", "close one or wait")

    def publish(self, session_id: str, events: Sequence[Event]) -> None:
        """Send events to whoever watches the session."""
        if session_id in self._queues:
            for event in events:
                data = frame(event.seq, event.kind, json.encode(event.detail))
                self._put(session_id, event.seq, data)

    def end(self, session_id: str, last: bytes = _END) -> None:
        """Disconnect the watchers of a session, perhaps with a last event."""
        if last:
            self._put(session_id, 0, last)
        for queue in self._queues.pop(session_id, set()):
            _finish(queue)

    def close(self) -> None:
        """Disconnect every watcher."""
        for session_id in list(self._queues):
            self.end(session_id)

    async def watch(
        self,
        session_id: str,
        after: int | None,
        read: Callable[[int], Awaitable[Sequence[tuple[int, str, str]]]],
    ) -> AsyncGenerator[bytes, None]:
        """Frames for one watcher: what ``read`` has after an event, then what is new."""
        queue: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(_BEHIND)
        self._queues[session_id].add(queue)
        try:
            yield b": welcome\n\n"
            while after is not None and (rows := await read(after)):
                after = rows[-1][0]
                yield b"".join(frame(*row) for row in rows)
            async for number, data in _live(queue):
                if number == 0 or number > (after or 0):
                    yield data
        finally:
            self._queues[session_id].discard(queue)
            if not self._queues[session_id]:
                del self._queues[session_id]

    def _put(self, session_id: str, number: int, data: bytes) -> None:
        for queue in list(self._queues.get(session_id, ())):
            try:
                queue.put_nowait((number, data))
            except asyncio.QueueFull:
                self._queues[session_id].discard(queue)
                _finish(queue)


def _finish(queue: asyncio.Queue[tuple[int, bytes]]) -> None:
    """Let the watcher end after what it has; one that is too far behind ends at once."""
    if queue.full():
        while not queue.empty():
            queue.get_nowait()
    queue.put_nowait((0, _END))


async def _live(queue: asyncio.Queue[tuple[int, bytes]]) -> AsyncIterator[tuple[int, bytes]]:
    while True:
        try:
            number, data = await asyncio.wait_for(queue.get(), HEARTBEAT)
        except TimeoutError:
            yield 0, b": still here\n\n"
            continue
        if data == _END:
            return
        yield number, data


class EventStream(Response):
    """Frames as they come; whoever does not read them is disconnected."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[bytes, None], budget: Budget) -> None:
        super().__init__(None, 200, {"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames, self._budget = frames, budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the watcher leaves, is too slow, or the session ends."""
        try:
            sending = asyncio.create_task(self._send(send))
            leaving = asyncio.create_task(_left(receive))
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
        finally:
            self._budget.give_back(1)

    async def _send(self, send: Send) -> None:
        try:
            start: Message = {"type": "http.response.start", "status": 200}
            await send({**start, "headers": self.raw_headers})
            async for data in self._frames:
                async with asyncio.timeout(_STUCK):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await self._frames.aclose()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
