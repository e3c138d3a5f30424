"""Server-sent events: each goes to every watcher of its session, and a slow one is dropped."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec import json
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.types import Receive, Scope, Send

from crg.server.event_log import Event

_BEHIND = 256  # events that a watcher may be behind before it is disconnected
_STUCK = 20.0  # seconds that a watcher may take to read what it is sent
Message: TypeAlias = tuple[int, str, str]  # number, kind and detail as JSON of an event
_Queue: TypeAlias = asyncio.Queue[Message | None]  # None: the end


class Hub:
    """The watchers of all sessions."""

    def __init__(self) -> None:
        self.queues: defaultdict[str, set[_Queue]] = defaultdict(set)  # by session

    def publish(self, session_id: str, events: Sequence[Event]) -> None:
        """Send events to the watchers of a session."""
        for event in events:
            detail = json.encode(event.detail).decode()
            self._put(session_id, (event.seq, event.kind, detail))

    def end(self, session_id: str, deleted: bool = False) -> None:
        """Disconnect the watchers of a session; a last event says if it was deleted."""
        if deleted:
            self._put(session_id, (0, "deleted", "{}"))
        for queue in self.queues.pop(session_id, set()):
            _finish(queue)

    def close(self) -> None:
        """Disconnect every watcher."""
        for session_id in list(self.queues):
            self.end(session_id)

    async def watch(
        self,
        session_id: str,
        after: int | None,
        read: Callable[[int], Awaitable[Sequence[Message]]],
    ) -> AsyncGenerator[ServerSentEvent, None]:
        """Frames for one watcher: what ``read`` has after an event, then what is new."""
        queue: _Queue = asyncio.Queue(_BEHIND)
        self.queues[session_id].add(queue)
        try:
            yield ServerSentEvent(comment="welcome")
            while after is not None and (messages := await read(after)):
                for message in messages:
                    yield _frame(message)
                after = messages[-1][0]
            while (new := await queue.get()) is not None:
                if new[0] == 0 or new[0] > (after or 0):
                    yield _frame(new)
        finally:
            self.queues[session_id].discard(queue)
            if not self.queues[session_id]:
                del self.queues[session_id]

    def _put(self, session_id: str, message: Message) -> None:
        for queue in list(self.queues.get(session_id, ())):
            try:
                queue.put_nowait(message)
            except asyncio.QueueFull:
                self.queues[session_id].discard(queue)
                _finish(queue)


def _frame(message: Message) -> ServerSentEvent:
    number, kind, detail = message
    return ServerSentEvent(detail, event=kind, id=str(number))


def _finish(queue: _Queue) -> None:
    """End the watcher after what it has; one that is too far behind ends at once."""
    if queue.full():
        while not queue.empty():
            queue.get_nowait()
    queue.put_nowait(None)


class EventStream(EventSourceResponse):
    """A stream of events; ``on_end`` is called when the watcher leaves or stops reading."""

    def __init__(
        self, frames: AsyncGenerator[ServerSentEvent, None], on_end: Callable[[], None]
    ) -> None:
        super().__init__(frames, send_timeout=_STUCK)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the watcher leaves, is too slow, or the session ends."""
        try:
            with contextlib.suppress(SendTimeoutError):
                await super().__call__(scope, receive, send)
        finally:
            self._on_end()
