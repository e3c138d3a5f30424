"""A session in memory: its requests take turns, learn, and are answered once the log has them.

Learning continues while the log is written. If that fails, the session is broken: it leaves memory,
and comes back as the log has it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from crg.server.event_log import Event, StoredSession, happened
from crg.server.learner import Learner
from crg.server.schema import ProblemError
from crg.types import InputError

if TYPE_CHECKING:
    from crg.server.service import Service

_LOGGER = logging.getLogger("crg.server")
Apply: TypeAlias = Callable[[Learner, Any], list[Event]]  # with what the request waited for


class Session:
    """One session in memory. Everything belongs to the event loop, except learning."""

    def __init__(self, service: Service, row: StoredSession, learner: Learner, saved: int) -> None:
        self.row, self.learner, self._saved, self._service = row, learner, saved, service
        self.broken = False
        self._turn = asyncio.Lock()  # first come, first served
        self._requests: set[asyncio.Task[list[Event]]] = set()
        self._unwritten: set[asyncio.Future[None]] = set()

    @property
    def busy(self) -> bool:
        """Whether a request is not answered yet."""
        return bool(self._requests)

    @property
    def unsaved(self) -> int:
        """How many events came after the last snapshot."""
        return self.learner.seq - self._saved

    async def submit(
        self,
        apply: Apply,
        ready: Awaitable[Any] | None = None,
        key: tuple[str, bytes] | None = None,
    ) -> list[Event]:
        """Learn after the requests that came before, with what ``ready`` gives; then log it.

        ``key`` is an idempotency key with the digest of its request, to be logged too.
        """
        request = asyncio.create_task(self._answer(apply, ready, key))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        return await asyncio.shield(request)  # whatever becomes of the caller

    async def finish(self) -> None:
        """Wait until every request is answered."""
        while self._requests:
            await asyncio.wait(self._requests)

    async def save(self) -> None:
        """Write a snapshot, once the log has all that it knows."""
        async with self._turn:
            await self._save()

    async def _answer(
        self, apply: Apply, ready: Awaitable[Any] | None, key: tuple[str, bytes] | None
    ) -> list[Event]:
        async with self._turn:
            given = None if ready is None else await ready
            events = await self._learn(apply, given)
            if not events:
                return events
            write = happened(self.row.number, events, key, self._service.config.thumbnails)
            kept = False

            def write_unless_broken(connection: sqlite3.Connection) -> None:
                nonlocal kept
                kept = not self.broken  # else the log lacks what the events build on
                if kept:
                    write(connection)

            written = self._service.writer.submit(write_unless_broken)
            self._unwritten.add(written)
            written.add_done_callback(self._on_written)
            if self.unsaved >= self._service.config.snapshot_every:
                await self._save()
        try:
            await written
        except Exception as error:
            raise not_kept(error) from None
        if not kept:
            raise not_kept("an answer before it was not kept")
        self._service.on_events(self, events)
        return events

    async def _learn(self, apply: Apply, given: Any) -> list[Event]:
        """The events that a request makes; a failure halfway breaks the session."""
        if self.broken:
            raise not_kept("an answer before it was not kept")
        before = self.learner.seq
        try:
            return await self._service.run(apply, self.learner, given)
        except Exception as error:
            if not isinstance(error, (InputError, ProblemError)) or self.learner.seq != before:
                self._break()
            raise

    def _on_written(self, written: asyncio.Future[None]) -> None:
        self._unwritten.discard(written)
        if written.exception() is not None:
            self._break()

    def _break(self) -> None:
        self.broken = True
        self._service.on_broken(self)

    async def _save(self) -> None:
        if self._unwritten:
            await asyncio.wait(self._unwritten)
        if self.broken:
            return
        seq = self.learner.seq
        try:
            await self._service.run(self._service.states.save, self.row.id, self.learner)
        except Exception as error:  # nothing is lost: the log has it
            _LOGGER.warning("no snapshot of session %s was saved: %s", self.row.id, error)
        self._saved = seq


def not_kept(reason: object) -> ProblemError:
    """The problem of an answer that is not on the disk."""
    return ProblemError(
        503, f"The answer could not be kept ({reason}): make room, and repeat.", retry_after=5
    )
