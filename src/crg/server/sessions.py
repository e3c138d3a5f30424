"""A session in memory: one owner takes its jobs in order, learns, and has the log written.

A job is answered when its events are on the disk. Learning goes on meanwhile; if the log cannot
be written, the session is broken: it leaves the memory, and comes back as the log has it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from crg.server.batching import Gatherer, Workers
from crg.server.event_log import Change, Event, Key, Log, Row, happened
from crg.server.learner import Learner, LostError, States
from crg.server.problems import Problem
from crg.types import InputError

_LOGGER = logging.getLogger("crg.server")


@dataclass(frozen=True)
class Job:
    """Something to be done once ``ready`` is: ``apply`` gets its result and learns."""

    ready: asyncio.Future[Any]
    apply: Callable[[Learner, Any], list[Event]]
    key: Key | None
    done: asyncio.Future[list[Event]]


@dataclass(frozen=True)
class SessionContext:
    """What all sessions share."""

    learners: Workers  # threads that learn
    writer: Gatherer[Change, None]
    log: Log
    states: States
    thumbnails: int
    snapshot_every: int
    on_events: Callable[[Session, Sequence[Event]], None]  # they are on the disk
    on_broken: Callable[[Session], None]


class Session:
    """One session in memory. All of it belongs to the event loop but ``_learn``."""

    def __init__(self, row: Row, learner: Learner, saved: int, tools: SessionContext) -> None:
        self.row, self.learner, self._saved, self._tools = row, learner, saved, tools
        self.broken = False
        self._jobs: deque[Job] = deque()
        self._owner: asyncio.Task[None] | None = None
        self._unwritten: set[asyncio.Future[None]] = set()

    @property
    def busy(self) -> bool:
        """Whether there is something left to do."""
        return self._owner is not None or bool(self._unwritten)

    @property
    def unsaved(self) -> int:
        """How many events came after the last snapshot."""
        return self.learner.seq - self._saved

    def submit(
        self,
        ready: asyncio.Future[Any],
        apply: Callable[[Learner, Any], list[Event]],
        key: Key | None = None,
    ) -> asyncio.Future[list[Event]]:
        """Accept a job: after those before it, with whatever ``ready`` gives by then."""
        done: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()
        self._jobs.append(Job(ready, apply, key, done))
        if self._owner is None:
            self._owner = asyncio.create_task(self._work())
        return done

    async def finish(self) -> None:
        """Wait until all jobs are done and written."""
        while self.busy:
            await asyncio.wait([*self._unwritten, *([self._owner] if self._owner else [])])

    async def save(self) -> None:
        """Write a snapshot of what is written to the log."""
        if self._unwritten:
            await asyncio.wait(self._unwritten)
        if self.broken:
            return
        seq = self.learner.seq
        try:
            await self._tools.learners.do(self._tools.states.save, self.row.id, self.learner)
        except Exception as error:  # nothing is lost: the log has it
            _LOGGER.warning("no snapshot of session %s was saved: %s", self.row.id, error)
        self._saved = seq

    async def _work(self) -> None:
        try:
            while self._jobs:
                if not self._jobs[0].ready.done():
                    await _settled(self._jobs[0].ready)
                jobs = []
                while self._jobs and self._jobs[0].ready.done():
                    jobs.append(self._jobs.popleft())
                outcomes = await self._tools.learners.do(self._learn, jobs)
                lost = []
                for job, outcome in zip(jobs, outcomes, strict=True):
                    if isinstance(outcome, LostError):
                        lost.append(job)
                    else:
                        self._settle(job, outcome)
                if lost:
                    self._jobs.extendleft(reversed(lost))
                    await self._restore()
                if self.unsaved >= self._tools.snapshot_every:
                    await self.save()
        finally:
            self._owner = None

    async def _restore(self) -> None:
        """Come back as the log has it, with what is on its way to the disk."""
        if self._unwritten:
            await asyncio.wait(self._unwritten)
        tools = self._tools
        try:
            self.learner, self._saved, _ = await tools.learners.do(
                tools.states.load, self.row, tools.log
            )
        except Exception as error:
            _LOGGER.error("session %s could not be restored", self.row.id, exc_info=error)
            self.broken = True

    def _learn(self, jobs: Sequence[Job]) -> list[list[Event] | BaseException]:
        return [self._learnt(job) for job in jobs]

    def _learnt(self, job: Job) -> list[Event] | BaseException:
        """The events that a job makes; a failure halfway breaks the session."""
        if error := job.ready.exception():
            return error
        if self.broken:
            return _not_kept("an answer before it was not kept")
        before = self.learner.seq
        try:
            return job.apply(self.learner, job.ready.result())
        except LostError as lost:
            return lost
        except Exception as error:
            refused = isinstance(error, (InputError, Problem)) and self.learner.seq == before
            self.broken = not refused
            return error

    def _settle(self, job: Job, outcome: list[Event] | BaseException) -> None:
        if isinstance(outcome, BaseException):
            job.done.set_exception(outcome)
            if self.broken:
                self._tools.on_broken(self)
            return
        change = happened(self.row.number, outcome, job.key, self._tools.thumbnails, self)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unwritten.add(written)
        written.add_done_callback(partial(self._written, job, outcome))
        self._tools.writer.submit(change, written)

    def _written(self, job: Job, events: list[Event], written: asyncio.Future[None]) -> None:
        self._unwritten.discard(written)
        if error := written.exception():
            self._tools.on_broken(self)
            job.done.set_exception(_not_kept(str(error)))
            return
        self._tools.on_events(self, events)
        job.done.set_result(events)


async def _settled(future: asyncio.Future[Any]) -> None:
    """Wait until a future is done, whatever it is: ``asyncio.wait`` with less ado."""
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_: object) -> None:
        if not waiting.done():
            waiting.set_result(None)

    future.add_done_callback(wake)
    await waiting


def _not_kept(reason: str) -> Problem:
    return Problem(
        503, f"The answer could not be kept ({reason}): make room, and repeat.", retry_after=5
    )


def storage_problem(error: BaseException) -> BaseException:
    """A failure of the disk as a problem; others as they are."""
    return _not_kept(str(error)) if isinstance(error, sqlite3.Error) else error
