"""The service without HTTP: which sessions there are, which are in memory, and their turns.

A session in memory learns one request after the other, and learning continues while the log is
written. If that fails, the session is broken: it leaves memory, and comes back as the log has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import shutil
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from msgspec import Raw
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from crg.atomic import locked, make_folder
from crg.encoders.base import Encoder, Vectors
from crg.prompts import encode_classes
from crg.server import event_log
from crg.server.batching import WAIT, Batcher, Budget, Encode, Gatherer
from crg.server.event_log import (
    Change,
    Event,
    Key,
    Learner,
    Log,
    StoredSession,
    deleted,
    happened,
    ran,
)
from crg.server.limits import ServerConfig
from crg.server.schema import ProblemError
from crg.server.states import States
from crg.server.summary import classes_of, size_of
from crg.threads import one_blas_thread, processors
from crg.types import InputError

T = TypeVar("T")
Apply: TypeAlias = Callable[[Learner, Any], list[Event]]  # with what the request waited for
Outcome: TypeAlias = tuple[list[Raw], bool]  # details of events as JSON; is it a repetition?
_LOGGER = logging.getLogger("crg.server")
_ID = re.compile(r"[0-9a-f]{32}")
_WORTH_SAVING = 32  # events; fewer are replayed as fast as a snapshot is written
_SWEEP = 15.0  # seconds between two looks for expired sessions
_PATIENCE = 500  # times 10 ms that a session waits for others to leave memory
_RESERVE = 16_000_000  # bytes kept on the disk, so that something can be deleted when it is full


class Counters:
    """Prometheus metrics of one service, in a separate registry."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        counter = partial(Counter, registry=own)
        labels = ["method", "route", "status"]
        self.requests = counter("crg_requests", "Requests by route and status.", labels)
        time_taken = "crg_request_seconds", "Time to the end of an answer.", ["route"]
        self.seconds = Histogram(*time_taken, registry=own)
        self.images = counter("crg_images", "Images answered.")
        self.changed = counter("crg_changed", "Answers that adaptation changed.")
        self.corrections = counter("crg_corrections", "Corrections learnt.")
        self.replay_differences = counter("crg_replay_differences", "Replayed answers that differ.")


class Session:
    """One session in memory. Everything belongs to the event loop, except learning."""

    def __init__(self, service: Service, row: StoredSession, learner: Learner, saved: int) -> None:
        self.row, self.learner, self._saved, self._service = row, learner, saved, service
        self.broken = False
        self.requests: set[asyncio.Task[list[Event]]] = set()  # that are not answered yet
        self._turn = asyncio.Lock()  # first come, first served
        self._written: asyncio.Future[Any] | None = None  # when the log has the last event

    @property
    def unsaved(self) -> int:
        """How many events came after the last snapshot."""
        return self.learner.seq - self._saved

    async def submit(self, apply: Apply, ready: Awaitable[Any] | None, key: Key) -> list[Event]:
        """Learn after the requests that came before, with what ``ready`` gives; then log it."""
        request = asyncio.create_task(self._answer(apply, ready, key))
        self.requests.add(request)
        request.add_done_callback(self.requests.discard)
        return await asyncio.shield(request)  # whatever becomes of the caller

    async def finish(self) -> None:
        """Wait until every request is answered."""
        while self.requests:
            await asyncio.wait(self.requests)

    async def save(self, least: int = 1) -> None:
        """Write a snapshot once the log has every event; the caller lets no request learn."""
        if self._written is not None:
            await asyncio.wait([self._written])
        if self.broken or self.unsaved < least:
            return
        try:
            await self._service.run(self._service.states.save, self.row.id, self.learner)
        except Exception as error:  # nothing is lost: the log has it
            _LOGGER.warning("no snapshot of session %s was saved: %s", self.row.id, error)
        self._saved = self.learner.seq

    async def _answer(self, apply: Apply, ready: Awaitable[Any] | None, key: Key) -> list[Event]:
        async with self._turn:
            events = await self._learn(apply, None if ready is None else await ready)
            if not events:
                return events
            thumbnails, now = self._service.config.thumbnails, self._service.now
            write = happened(self.row.number, events, key, thumbnails, now)
            # Once it is broken, the log lacks what the events build on.
            written = self._service.writer.submit(lambda log: not self.broken and write(log))
            written.add_done_callback(self._on_written)
            self._written = written
            if self.unsaved >= self._service.config.snapshot_every:
                await self.save()
        if not await written:
            raise _not_kept()
        self._service.on_events(self.row.id, events)
        return events

    async def _learn(self, apply: Apply, given: Any) -> list[Event]:
        """The events that a request makes; a failure halfway breaks the session."""
        if self.broken:
            raise _not_kept()
        before = self.learner.seq
        try:
            return await self._service.run(apply, self.learner, given)
        except Exception as error:
            if not isinstance(error, (InputError, ProblemError)) or self.learner.seq != before:
                self._break()
            raise

    def _on_written(self, written: asyncio.Future[Any]) -> None:
        if written.exception() is not None:
            self._break()

    def _break(self) -> None:
        self.broken = True
        self._service.on_broken(self)


def _not_kept() -> ProblemError:
    return ProblemError(503, "An answer before it could not be kept: repeat the request.")


class Service:
    """The sessions of one folder. ``open`` and ``close`` belong to one event loop.

    ``encoders`` encode the images; without any, ``encoder`` does, in this process.
    """

    def __init__(
        self, data: Path, config: ServerConfig, encoder: Encoder, encoders: Sequence[Encode] = ()
    ) -> None:
        self.data, self.config, self.encoder = data, config, encoder
        self._encoders = encoders or (encoder.encode_images,)
        self.metrics = Counters()
        # By watched session a flag for each watcher, set where there is news.
        self.flags: WeakValueDictionary[str, set[asyncio.Event]] = WeakValueDictionary()
        self.bytes = Budget(config.max_queue_bytes, f"Too many bytes are waiting: {WAIT}")
        self.watchers = Budget(
            config.max_watchers, "Too many streams of events: close one or wait."
        )
        self.texts = asyncio.Lock()  # the text encoder is used once at a time
        self.ready = False
        self._live: OrderedDict[str, Session] = OrderedDict()  # in memory, last used last
        self._moving: dict[str, asyncio.Task[None]] = {}  # sessions being loaded or unloaded
        self._sizes: dict[str, int] = {}  # bytes of the sessions in memory, or coming
        self._verified: set[str] = set()  # sessions whose checksums were seen to fit
        self._beats: dict[int, float] = {}  # by thread at work: when it made progress last
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._held = contextlib.ExitStack()
        gauge = partial(Gauge, registry=self.metrics.registry)
        gauge("crg_waiting_images", "Images that wait.").set_function(
            lambda: self.batcher.queue.used
        )
        gauge("crg_waiting_bytes", "Bytes of requests.").set_function(lambda: self.bytes.used)
        gauge("crg_loaded_sessions", "Sessions in memory.").set_function(lambda: len(self._live))
        gauge("crg_session_bytes", "Their bytes.").set_function(lambda: sum(self._sizes.values()))
        gauge("crg_watchers", "Open streams of events.").set_function(lambda: self.watchers.used)

    def open(self) -> None:
        """Lock the folder and start the threads."""
        with contextlib.ExitStack() as held:
            data = self.data
            make_folder(data / "states", "--data")
            held.enter_context(locked(data / "sessions.sqlite"))
            held.enter_context(one_blas_thread())  # threads would change the last bits
            self._set_reserve(False)
            self.log = Log(data / "sessions.sqlite", self.encoder.width)
            held.callback(self.log.close)
            self._set_reserve(True)
            self.states = States(data / "states", self.encoder, self.log)
            self.states.clear()
            [(seconds,)] = self.log.rows("SELECT seconds FROM clock")
            self._born: float = time.monotonic() - seconds
            self._threads = held.enter_context(ThreadPoolExecutor(processors() + 1, "crg-learn"))
            self.batcher = Batcher(self.encoder.preprocessing, self._encoders, self.config)
            held.callback(self.batcher.close)
            self.writer: Gatherer[Change, Any] = Gatherer("crg-write", self.log.commit)
            held.callback(self.writer.close)
            self._held = held.pop_all()
        self._sweeper = asyncio.create_task(self._sweep())
        self.ready = True

    async def close(self) -> None:
        """Finish what was accepted, save snapshots, and unlock the folder."""
        self.ready = False
        self._sweeper.cancel()
        for session in list(self._live.values()):
            await session.finish()
            await session.save()
        await asyncio.gather(*self._moving.values(), return_exceptions=True)
        with contextlib.suppress(sqlite3.Error):
            await self.writer.submit(ran(self.now))
        self._held.close()

    @property
    def now(self) -> float:
        """Seconds for which servers have run on this log; no change of the time of day moves it."""
        return time.monotonic() - self._born

    @property
    def stalled(self) -> bool:
        """Whether a thread has made no progress for too long."""
        return min(self._beats.copy().values(), default=math.inf) < self.now - self.config.stall

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that learns, encodes texts or reads from the disk, in a thread."""

        def work() -> T:
            self._beat()
            try:
                return function(*arguments)
            finally:
                del self._beats[threading.get_ident()]

        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _beat(self) -> None:
        self._beats[threading.get_ident()] = self.now

    def _set_reserve(self, wanted: bool) -> None:
        """Keep some room on the disk, if there is enough for others too, or free it."""
        reserve = self.data / "reserve"
        if not wanted:
            reserve.unlink(missing_ok=True)
        elif not reserve.exists() and shutil.disk_usage(self.data).free > 2 * _RESERVE:
            with contextlib.suppress(OSError):  # beyond a quota
                reserve.write_bytes(bytes(_RESERVE))

    async def encode_names(self, names: Sequence[str], template: str | None = None) -> Vectors:
        """The text features of class names, (K, D), by the server's templates or another one."""
        templates = self.config.templates if template is None else (template,)
        async with self.texts:
            return await self.run(encode_classes, self.encoder, names, templates)

    async def row(self, session_id: str, verify: bool = True) -> StoredSession:
        """A session as it was started; 404 if there is none, 500 if the log does not ``verify``."""
        if session_id in self._live:
            return self._live[session_id].row
        if _ID.fullmatch(session_id):
            row = await self.run(self.log.find, session_id)
            if row is not None:
                if verify and session_id not in self._verified:
                    await self.run(self.log.verify, row.number, self._beat)
                    self._verified.add(session_id)
                return row
        raise ProblemError(404, "There is no such session: check its id or start a new one.")

    async def session(self, session_id: str) -> Session:
        """A session in memory, loaded if need be."""
        while session_id not in self._live:
            if session_id not in self._moving:
                self._move(session_id, self._load(session_id))
            task = self._moving[session_id]
            await asyncio.wait([task])
            if error := task.exception():
                raise error
        self._live.move_to_end(session_id)
        return self._live[session_id]

    async def learn(
        self,
        session_id: str,
        apply: Apply,
        contents: Sequence[bytes] = (),
        key: str | None = None,
        prepare: Callable[[], Awaitable[Any]] | None = None,
    ) -> Outcome:
        """Learn, unless a request with the same key and contents was: then repeat its answer."""
        row, keyed = await self.row(session_id), None
        turn = self._turns.setdefault((session_id, key), asyncio.Lock()) if key else None
        async with turn or contextlib.nullcontext():
            if key is not None:
                keyed = key, await self.run(event_log.checksum, *contents)
                known = await self.run(self.log.known, row.number, *keyed)
                if known == []:
                    raise ProblemError(409, "This Idempotency-Key was used for another request: "
                                            "choose a new one.")  # fmt: skip
                if known is not None:
                    return [Raw(text) for text in known], True
            session = await self.session(session_id)
            events = await session.submit(apply, prepare and prepare(), keyed)
        return [Raw(event.text) for event in events], False

    async def delete(self, session_id: str) -> None:
        """Delete a session with all that belongs to it."""
        row = await self.row(session_id, verify=False)
        while session_id in self._moving:
            await asyncio.wait([self._moving[session_id]])
            row = await self.row(session_id, verify=False)
        self._move(session_id, self._delete(row, self._live.pop(session_id, None)))
        await asyncio.shield(self._moving[session_id])  # whatever becomes of the caller

    def on_broken(self, session: Session) -> None:
        """Unload a session that has learnt what the log lacks."""
        if self._live.get(session.row.id) is session:
            del self._live[session.row.id]
            self._move(session.row.id, session.finish())

    def on_events(self, session_id: str, events: Sequence[Event]) -> None:
        """Count events that are on the disk, and wake the watchers."""
        self.metrics.images.inc(sum(event.kind == "answer" for event in events))
        self.metrics.changed.inc(sum(event.detail.get("changed", False) for event in events))
        self.metrics.corrections.inc(sum(event.kind == "correction" for event in events))
        for news in self.flags.get(session_id, ()):
            news.set()

    async def _load(self, session_id: str) -> None:
        row = await self.row(session_id)
        size = size_of(row, len(await self.run(classes_of, self.log, row)))
        for _ in range(_PATIENCE):
            if sum(self._sizes.values()) + size <= self.config.max_memory:
                break
            there = [id for id in self._live if id not in self._moving]  # which may just have come
            if unused := [id for id in there if not self._live[id].requests]:
                self._move(unused[0], self._live.pop(unused[0]).save(_WORTH_SAVING))
            await asyncio.sleep(0.01)
        else:
            raise ProblemError(503, "The memory for sessions is in use: try again in a moment.")
        self._sizes[session_id] = size
        learner, known, differences = await self.run(self.states.load, row, self._beat)
        self.metrics.replay_differences.inc(differences)
        self._live[session_id] = Session(self, row, learner, known)

    async def _delete(self, row: StoredSession, session: Session | None) -> None:
        if session is not None:
            await session.finish()
        try:
            await self.writer.submit(deleted(row.number))
        except sqlite3.Error:  # the disk is full: make room
            await self.run(self._set_reserve, False)
            await self.run(self.states.delete, row.id)
            await self.writer.submit(deleted(row.number))
        self.on_events(row.id, ())
        self._verified.discard(row.id)
        await self.run(self.states.delete, row.id)
        await self.run(self._set_reserve, True)

    def _move(self, session_id: str, coming: Coroutine[Any, Any, None]) -> None:
        """Load, unload or delete in the background; requests for this session wait."""
        assert session_id not in self._moving  # else it could be in memory twice
        task = self._moving[session_id] = asyncio.create_task(coming)
        task.add_done_callback(lambda _: self._on_moved(session_id))

    def _on_moved(self, session_id: str) -> None:
        del self._moving[session_id]
        if session_id not in self._live:
            self._sizes.pop(session_id, None)

    async def _sweep(self) -> None:
        """Delete the sessions that have expired."""
        while expire := self.config.expire:
            await asyncio.sleep(min(_SWEEP, expire / 2))
            try:
                await self.writer.submit(ran(self.now))
                for session_id in await self.run(self.log.unused_since, self.now - expire):
                    with contextlib.suppress(ProblemError):  # it was just deleted
                        await self.delete(session_id)
            except Exception:
                _LOGGER.exception("expired sessions could not be deleted")
