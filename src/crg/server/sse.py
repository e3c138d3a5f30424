"""Server-sent events: a watcher is woken when its session has news, and reads it from the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias

from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.types import Receive, Scope, Send

from crg.server.schema import ProblemError

_STUCK = 20.0  # seconds that a watcher may take to read what it is sent
Message: TypeAlias = tuple[int, str, str]  # number, kind and detail as JSON of an event
Frames: TypeAlias = AsyncGenerator[ServerSentEvent, None]


async def watch(
    flags: set[asyncio.Event], after: int, read: Callable[[int], Awaitable[Sequence[Message]]]
) -> Frames:
    """Frames for one watcher: whatever ``read`` has after an event, now and at news.

    While it runs, ``flags`` holds the watcher's flag: set it to report news. The stream ends with
    an event ``deleted`` when ``read`` finds no session.
    """
    news = asyncio.Event()
    flags.add(news)
    try:
        yield ServerSentEvent(comment="welcome")
        while True:
            news.clear()
            while messages := await read(after):
                for after, kind, detail in messages:
                    yield ServerSentEvent(detail, event=kind, id=str(after))
            await news.wait()
    except ProblemError:
        yield ServerSentEvent("{}", event="deleted", id="0")
    finally:
        flags.discard(news)


class EventStream(EventSourceResponse):
    """A stream of events; ``on_end`` is called when the watcher leaves or stops reading."""

    def __init__(self, frames: Frames, on_end: Callable[[], None]) -> None:
        super().__init__(frames, send_timeout=_STUCK)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the watcher leaves, is stuck, or the session is deleted."""
        try:
            with contextlib.suppress(SendTimeoutError):
                await super().__call__(scope, receive, send)
        finally:
            self._on_end()
