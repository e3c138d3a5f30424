"""The service without HTTP: which sessions there are, and which of them are in memory."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import re
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from crg.atomic import locked, make_folder
from crg.encoders.base import Encoder
from crg.prompts import PHOTO
from crg.server.batching import Batcher, Encoding, Gatherer, ImageEncoder, Workers
from crg.server.event_log import Change, Event, Log, Row, deleted
from crg.server.learner import States
from crg.server.limits import Budget, Limits
from crg.server.metrics import Metrics
from crg.server.problems import Problem
from crg.server.sessions import Session, SessionContext, storage_problem
from crg.server.sse import Hub, frame
from crg.threads import one_blas_thread, processors

T = TypeVar("T")
_LOGGER = logging.getLogger("crg.server")
_ID = re.compile(r"[0-9a-f]{32}")
_WORTH_SAVING = 32  # events; fewer are replayed as fast as a snapshot is written
_SWEEP = 15.0  # seconds between two looks for sessions that nobody uses


@dataclass(frozen=True)
class Settings:
    """All that decides how the service behaves."""

    data: Path
    limits: Limits = field(default_factory=Limits)
    templates: tuple[str, ...] = (PHOTO,)
    keep_images: bool = False
    token: str | None = None
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()


class Service:
    """Sessions of one folder. ``open`` and ``close`` belong to one event loop."""

    log: Log
    states: States
    batcher: Encoding
    writer: Gatherer[Change, None]
    tools: SessionContext
    learner_threads = processors()

    def __init__(self, settings: Settings, encoder: Encoder) -> None:
        self.settings, self.encoder, self.limits = settings, encoder, settings.limits
        self.metrics = Metrics()
        self.hub = Hub(self.limits.max_watchers)
        wait = "wait a moment and send it again"
        self.queue = Budget(self.limits.max_queue, "Too many images are waiting", wait)
        self.bytes = Budget(self.limits.max_queue_bytes, "Too many bytes are waiting", wait)
        self.n_sessions = 0
        self.ready = False
        self._live: OrderedDict[str, tuple[Session, float]] = OrderedDict()  # and last use
        self._moving: dict[str, asyncio.Task[None]] = {}  # sessions on their way in or out
        self._held = contextlib.ExitStack()
        self.metrics.waiting.set_function(lambda: self.queue.used)
        self.metrics.waiting_bytes.set_function(lambda: self.bytes.used)
        self.metrics.loaded.set_function(lambda: len(self._live))
        self.metrics.watchers.set_function(lambda: self.hub.budget.used)

    def open(self) -> None:
        """Take the folder into possession and start the threads."""
        try:
            self._open()
        except BaseException:
            self._held.close()
            raise

    def _open(self) -> None:
        data, limits = self.settings.data, self.limits
        for folder in (data, data / "states", data / "images"):
            make_folder(folder, "--data")
        self._held.enter_context(locked(data / "sessions.sqlite"))
        self._held.enter_context(one_blas_thread())  # threads would change the last bits
        self.log = Log(data / "sessions.sqlite", self.encoder.width)
        self._held.callback(self.log.close)
        self.states = self.make_states(data / "states")
        self.states.clear(self.log)
        self.n_sessions = self.log.count()
        self.readers = self._pool(2, "crg-log")
        self.texts = self._pool(1, "crg-text")
        learners = self._pool(self.learner_threads, "crg-learn")
        self.batcher = self.make_batcher()
        self._held.callback(self.batcher.close)
        self.writer = Gatherer("crg-write", self._commit)
        self._held.callback(self.writer.close)
        self.tools = SessionContext(learners, self.writer, self.log, self.states, limits.thumbnails,
                           limits.snapshot_every, self._on_events, self._on_broken)  # fmt: skip
        self._sweeper = asyncio.create_task(self._sweep())
        self.ready = True

    def make_states(self, folder: Path) -> States:
        """Where sessions learn: in this process."""
        return States(folder, lambda: self.encoder)

    def make_batcher(self) -> Encoding:
        """Where images are encoded: in this process."""
        limits = self.limits
        eye = ImageEncoder(self.encoder, limits.max_pixels, limits.thumbnails > 0)
        return Batcher(eye, processors(), self.metrics)

    async def close(self) -> None:
        """Finish what was accepted, save snapshots, and give the folder back."""
        self.stop_watching()
        self._sweeper.cancel()
        for session, _ in list(self._live.values()):
            await session.finish()
            if session.unsaved and not session.broken:
                await session.save()
        await asyncio.gather(*self._moving.values(), return_exceptions=True)
        self._held.close()

    def stop_watching(self) -> None:
        """Take no more requests, and disconnect whoever watches."""
        self.ready = False
        self.hub.close()

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """What a function that reads from the disk gives, without holding up the loop."""
        return await self.readers.do(function, *arguments)

    async def write(self, change: Change) -> None:
        """Have a change on the disk."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.writer.submit(change, written)
        try:
            await written
        except Exception as error:
            raise storage_problem(error) from None

    async def row(self, session_id: str) -> Row:
        """A session as it was started; 404 if there is none."""
        if session_id in self._live:
            return self._live[session_id][0].row
        if _ID.fullmatch(session_id):
            row = await self.read(self.log.find, session_id)
            if row is not None:
                return row
        raise Problem(404, "There is no such session: start one with POST /v1/sessions.")

    async def session(self, session_id: str) -> Session:
        """A session in memory; it is loaded if it is not there."""
        while session_id not in self._live:
            if session_id not in self._moving:
                self._move(session_id, self._load(session_id))
            task = self._moving[session_id]
            await asyncio.wait([task])
            if error := task.exception():
                raise error
        session, _ = self._live[session_id]
        self.keep(session)
        return session

    def keep(self, session: Session) -> None:
        """Have a session in memory as the one that was used last."""
        self._live[session.row.id] = (session, time.monotonic())
        self._live.move_to_end(session.row.id)
        excess = len(self._live) - self.limits.max_loaded
        if excess > 0:
            others = [each for each, _ in self._live.values() if not each.busy]
            for other in [each for each in others if each is not session][:excess]:
                self._unload(other)

    async def delete(self, session_id: str) -> None:
        """Delete a session with all that belongs to it."""
        row = await self.row(session_id)
        while session_id in self._moving:
            await asyncio.wait([self._moving[session_id]])
        live = self._live.pop(session_id, None)
        self._move(session_id, self._delete(row, live and live[0]))
        await self._moving[session_id]

    def image_path(self, session_id: str, step: int) -> Path:
        """Where an image is kept, if it is."""
        return self.settings.data / "images" / session_id / str(step)

    async def _load(self, session_id: str) -> None:
        row = await self.row(session_id)
        learner, known, differences = await self.tools.learners.do(self.states.load, row, self.log)
        self.metrics.replay_differences.inc(differences)
        self.keep(Session(row, learner, known, self.tools))

    def _unload(self, session: Session) -> None:
        del self._live[session.row.id]
        if session.unsaved >= _WORTH_SAVING:
            self._move(session.row.id, session.save())

    async def _delete(self, row: Row, session: Session | None) -> None:
        if session is not None:
            await session.finish()
        await self.write(deleted(row.number))
        self.n_sessions -= 1
        self.hub.end(row.id, frame(0, "deleted", "{}"))
        await self.read(self.states.delete, row.id)
        await self.read(shutil.rmtree, self.image_path(row.id, 0).parent, True)

    def _move(self, session_id: str, coming: Coroutine[Any, Any, None]) -> None:
        """Whoever wants the session waits meanwhile."""
        task = self._moving[session_id] = asyncio.create_task(coming)
        task.add_done_callback(lambda _: self._moving.pop(session_id))

    def _on_broken(self, session: Session) -> None:
        live = self._live.get(session.row.id)
        if live is not None and live[0] is session:
            del self._live[session.row.id]
            self._move(session.row.id, session.finish())

    def _on_events(self, session: Session, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind == "answer":
                self.metrics.images.inc()
                self.metrics.changed.inc(event.detail["changed"])
            elif event.kind == "correction":
                self.metrics.corrections.inc()
        self.hub.publish(session.row.id, events)

    def _commit(self, changes: list[Change]) -> Sequence[Any]:
        self.metrics.commit_size.observe(len(changes))
        return self.log.commit(changes)

    async def _sweep(self) -> None:
        """Let sessions that nobody uses leave the memory, and at last the disk."""
        limits = self.limits
        pause = min(_SWEEP, limits.idle / 2, limits.expire / 2 or _SWEEP)
        while True:
            await asyncio.sleep(pause)
            try:
                if self._unload_idle(time.monotonic() - limits.idle):
                    await self.read(_give_memory_back)
                if limits.expire:
                    await self._delete_expired(time.time() - limits.expire)
            except Exception:
                _LOGGER.exception("unused sessions could not be put away")

    def _unload_idle(self, moment: float) -> bool:
        """Whether there were sessions in memory that nobody has used since."""
        sessions = [each for each, used in self._live.values() if used < moment and not each.busy]
        for session in sessions:
            self._unload(session)
        return bool(sessions)

    async def _delete_expired(self, moment: float) -> None:
        for session_id in await self.read(self.log.unused_since, moment):
            with contextlib.suppress(Problem):
                await self.delete(session_id)

    def _pool(self, workers: int, name: str) -> Workers:
        pool = Workers(workers, name)
        self._held.callback(pool.close)
        return pool


def _give_memory_back() -> None:
    """Let the system have what is free; glibc would keep it, several times what is in use."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError, TypeError):  # there is another C library
        ctypes.CDLL(None).malloc_trim(0)
