"""A session in memory: its requests take turns, learn, and are answered once the log has them.

The same events give the same bits, live or replayed. Learning continues while the log is written.
If that fails, the session is broken: it leaves memory, and comes back as the log has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from crg.adapter import STEPS_PER_COPY, Adapter, create, load
from crg.answer import answer_for
from crg.atomic import replacing, sync
from crg.encoders.base import Encoder, Vectors
from crg.methods.options import build_config
from crg.methods.registry import get_method, registered
from crg.resources import TEXT_ENCODER, check_needs
from crg.server.event_log import Event, Key, Kind, Log, StoredSession, chained, happened
from crg.server.limits import ServerConfig
from crg.server.schema import ProblemError
from crg.types import InputError, Task, as_floats, unit_rows

if TYPE_CHECKING:
    from crg.server.service import Service

_LOGGER = logging.getLogger("crg.server")
_TOP = 5
_ATTEMPTS = 3  # to replay an event


@dataclass
class Learner:
    """The adapter of a session, and the number of the last event that it has learnt."""

    adapter: Adapter
    log: Log
    number: int  # of the session in the log
    seq: int
    digest: bytes  # of that event

    def answer(
        self, features: Any, name: str | None, thumbnail: bytes | None = None, top: int = _TOP
    ) -> Event:
        """Learn an image, and answer it with the ``top`` most probable classes."""
        task, step = self.adapter.task, self.adapter.n_steps + 1
        rows = as_floats(features, "features")
        prediction = self.adapter.step(rows, step)
        unit = unit_rows(rows.reshape(-1, task.width), "features")
        answer = answer_for(task, prediction, unit, step)
        detail = {
            "step": step, "name": name, "label": answer.label, "probability": answer.probability,
            "top": [{"label": label, "probability": p} for label, p in answer.top(top)],
            "zero_shot_label": answer.zero_shot_label,
            "zero_shot_probability": answer.zero_shot_probability,
            "changed": answer.changed, **answer.decisions, "thumbnail": thumbnail is not None,
        }  # fmt: skip
        return self._event("answer", detail, rows, thumbnail)

    def correct(self, step: int, label: str) -> Event:
        """Learn the label that a person gives an image."""
        image = self.log.image(self.number, step)
        if image is None:
            raise InputError(f"There is no image {step} in this session: give an answer's step.")
        self.adapter.correct(image.features, label, step)
        detail = {"step": step, "label": label, "was": image.detail["label"]}
        return self._event("correction", detail)

    def add_class(self, name: str, text_feature: Vectors) -> Event:
        """Add a class."""
        self.adapter.add_class(name, text_feature)
        return self._event("class_added", {"name": name}, text_feature[None, :])

    def remove_class(self, name: str) -> Event:
        """Remove a class."""
        self.adapter.remove_class(name)
        return self._event("class_removed", {"name": name})

    def follow(self, task: Task) -> list[Event]:
        """Add and remove classes until they are those of ``task``."""
        before, now = self.adapter.task.class_names, task.class_names
        new = [n for n, name in enumerate(now) if name not in before]
        added = [self.add_class(now[n], task.text_features[n]) for n in new]
        return added + [self.remove_class(name) for name in before if name not in now]

    def rename(self, name: str | None) -> Event:
        """Give the session another name, or none."""
        return self._event("renamed", {"name": name})

    def replay(self, event: Event) -> bool:
        """Learn an event of the log again; False if the answer differs."""
        detail = event.detail
        if event.kind == "answer":
            again = self.answer(event.features, detail["name"], None, len(detail["top"]))
            again.detail["thumbnail"] = detail["thumbnail"]
        elif event.kind == "correction":
            again = self.correct(detail["step"], detail["label"])
        elif event.kind == "class_added":
            assert event.features is not None
            again = self.add_class(detail["name"], event.features[0])
        elif event.kind == "renamed":
            again = self.rename(detail["name"])
        else:
            again = self.remove_class(detail["name"])
        self.digest = event.digest
        return {**again.detail, "at": detail["at"]} == detail

    def _event(
        self,
        kind: Kind,
        detail: dict[str, Any],
        features: Vectors | None = None,
        thumbnail: bytes | None = None,
    ) -> Event:
        self.seq += 1
        public = {"event": self.seq, "at": round(time.time(), 3), **detail}
        event = Event(kind, public, features, thumbnail)
        self.digest = chained(self.digest, event)
        return replace(event, digest=self.digest)


Apply: TypeAlias = Callable[[Learner, Any], list[Event]]  # with what the request waited for


class Session:
    """One session in memory. Everything belongs to the event loop, except learning."""

    def __init__(self, service: Service, row: StoredSession, learner: Learner, saved: int) -> None:
        self.row, self.learner, self._saved, self._service = row, learner, saved, service
        self.broken = False
        self._turn = asyncio.Lock()  # first come, first served
        self._requests: set[asyncio.Task[list[Event]]] = set()
        self._unwritten: set[asyncio.Future[Any]] = set()

    @property
    def busy(self) -> bool:
        """Whether a request is not answered yet."""
        return bool(self._requests)

    @property
    def unsaved(self) -> int:
        """How many events came after the last snapshot."""
        return self.learner.seq - self._saved

    async def submit(self, apply: Apply, ready: Awaitable[Any] | None, key: Key) -> list[Event]:
        """Learn after the requests that came before, with what ``ready`` gives; then log it."""
        request = asyncio.create_task(self._answer(apply, ready, key))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        return await asyncio.shield(request)  # whatever becomes of the caller

    async def finish(self) -> None:
        """Wait until every request is answered."""
        while self._requests:
            await asyncio.wait(self._requests)

    async def save(self) -> None:
        """Write a snapshot once the log has every event; the caller lets no request learn."""
        if self._unwritten:
            await asyncio.wait(self._unwritten)
        if self.broken:
            return
        states, seq = self._service.states, self.learner.seq
        try:
            await self._service.run(states.save, self.row.id, self.learner)
        except Exception as error:  # nothing is lost: the log has it
            _LOGGER.warning("no snapshot of session %s was saved: %s", self.row.id, error)
        self._saved = seq

    async def _answer(self, apply: Apply, ready: Awaitable[Any] | None, key: Key) -> list[Event]:
        async with self._turn:
            events = await self._learn(apply, None if ready is None else await ready)
            if not events:
                return events
            thumbnails, now = self._service.config.thumbnails, self._service.now
            write = happened(self.row.number, events, key, thumbnails, now)
            # Once it is broken, the log lacks what the events build on.
            written = self._service.writer.submit(lambda log: not self.broken and write(log))
            self._unwritten.add(written)
            written.add_done_callback(self._on_written)
            if self.unsaved >= self._service.config.snapshot_every:
                await self.save()
        try:
            kept = await written
        except Exception as error:
            raise not_kept(error) from None
        if not kept:
            raise not_kept("an answer before it was not kept")
        self._service.on_events(self.row.id, events)
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

    def _on_written(self, written: asyncio.Future[Any]) -> None:
        self._unwritten.discard(written)
        if written.exception() is not None:
            self._break()

    def _break(self) -> None:
        self.broken = True
        self._service.on_broken(self)


def not_kept(reason: object) -> ProblemError:
    """The problem of an answer that is not on the disk."""
    return ProblemError(503, f"The answer could not be kept ({reason}): make room, and repeat.")


def planned(method: str, task: Task, options: Mapping[str, Any]) -> tuple[Any, int]:
    """The configuration of a method, and about how many bytes it will remember, before it does.

    Sizes grow in proportion to whole numbers among the options: small ones are measured.
    """
    kind = get_method(method)
    config = build_config(method, kind.Config, options)
    check_needs(method, kind.needs, task)
    few = {name: min(4, each) for name, each in vars(config).items() if type(each) is int}

    def measured(**more: int) -> int:
        return len(pickle.dumps(kind(task, replace(config, **few | more)).state()))

    size = least = 0 if kind.forgets else measured()
    for name, each in few.items() if size else ():
        if each < (asked := getattr(config, name)):
            size += (asked - each) * (measured(**{name: each + 1}) - least)
    return config, size


class States:
    """A folder per session, of snapshots and kept images: how it comes back to memory."""

    def __init__(self, folder: Path, encoder: Encoder, log: Log) -> None:
        self.folder, self._encoder, self._log = folder, encoder, log
        self._resources: dict[str, Any] = {}

    def record(
        self, limits: ServerConfig, method: str, task: Task, options: Mapping[str, Any], views: int
    ) -> dict[str, Any]:
        """The start of a new session, which must keep to the limits, also in memory."""
        config, size = planned(method, task.with_resources(self.needed(method)), options)
        samples = STEPS_PER_COPY * views * task.width * 4
        size = 2 * (size + task.text_features.nbytes) + samples  # with a copy, if a step fails
        limits.check_room(task.n_classes, views, size)
        return {
            "classes": task.class_names, "logit_scale": task.logit_scale,
            "model": self._encoder.name, "method": method, "options": asdict(config),
            "views": views, "seen": 0, "size": size,
        }  # fmt: skip

    def fresh(self, row: StoredSession) -> Learner:
        """The learner of a session before its first event."""
        start, text = row.start, self._log.text_features(row.number)
        if text is None:
            raise RuntimeError(f"The state that session {row.id} was started from is lost.")
        method, task = start["method"], Task(start["classes"], text, start["logit_scale"])
        adapter = create(method, task.with_resources(self.needed(method)), **start["options"])
        return self._learner(adapter, row, 0)

    def _learner(self, adapter: Adapter, row: StoredSession, seq: int) -> Learner:
        adapter.decide(row.start.get("none_of_these"), row.start.get("sets"))
        return Learner(adapter, self._log, row.number, seq, self._log.digest(row.number, seq))

    def save(self, session_id: str, learner: Learner) -> None:
        """Write a snapshot; remove older ones, except the state that a session started from."""
        (self.folder / session_id).mkdir(exist_ok=True)
        name = f"{learner.seq}-{learner.digest.hex()}.crg"
        learner.adapter.save(self.folder / session_id / name)
        for older, path in self._snapshots(session_id):
            if 0 < older < learner.seq:
                path.unlink(missing_ok=True)

    def load(self, row: StoredSession, beat: Callable[[], None]) -> tuple[Learner, int, int]:
        """The learner of a session, the last event of its snapshot, and how many replays differ.

        ``beat`` is called at each event. An event at which three replays ended, whatever ended
        them, sets the session aside.
        """
        learner, mark = self._newest(row), self.folder / row.id / "replaying"
        noted = mark.read_text().split() if mark.exists() else ()  # perhaps only half of it
        failed, times = [*map(int, noted), 0, 0][:2]
        known, differences = learner.seq, 0
        for some in self._log.events(row.number, known):
            for event in some:
                before = times if event.seq == failed else 0
                with contextlib.suppress(OSError):  # on a full disk it is only not counted
                    mark.parent.mkdir(exist_ok=True)
                    mark.write_text(f"{event.seq} {before + 1}")
                if before >= _ATTEMPTS:
                    raise ProblemError(500, f"This session failed {_ATTEMPTS} times at event "
                                            f"{failed} while it was loaded, and is set aside: "
                                            "download its answers, and start another.")  # fmt: skip
                beat()
                differences += not learner.replay(event)
        mark.unlink(missing_ok=True)
        if differences:
            _LOGGER.warning("%d answers of session %s differ when replayed", differences, row.id)
        return learner, known, differences

    def image_path(self, session_id: str, step: int) -> Path:
        """The file of an image, if images are kept."""
        return self.folder / session_id / "images" / str(step)

    def keep_images(self, session_id: str, step: int, contents: Sequence[bytes]) -> None:
        """Write images, the first of which is ``step``; they are on the disk at the end."""
        for number, content in enumerate(contents, step):
            path = self.image_path(session_id, number)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                partial.write_bytes(content)
        for folder in (self.folder, self.folder / session_id):
            sync(folder)

    def delete(self, session_id: str) -> None:
        """Remove all files of a session."""
        shutil.rmtree(self.folder / session_id, ignore_errors=True)

    def clear(self) -> None:
        """Remove temporary files, and all files of sessions that no longer exist."""
        for folder in self.folder.iterdir():
            if self._log.find(folder.name) is None:
                self.delete(folder.name)
            for partial in folder.rglob(".*"):
                partial.unlink()

    def _newest(self, row: StoredSession) -> Learner:
        for seq, path in self._snapshots(row.id):
            if seq and self._log.digest(row.number, seq).hex() != path.stem.partition("-")[2]:
                raise ProblemError(500, "The log is older than a snapshot of this session: restore "
                                        "--data from one copy, or delete the session.")  # fmt: skip
            try:
                adapter = load(path, self.needed(row.start["method"]))
                return self._learner(adapter, row, seq)
            except InputError as error:
                _LOGGER.warning("a snapshot of session %s is unusable: %s", row.id, error)
        return self.fresh(row)

    def _snapshots(self, session_id: str) -> list[tuple[int, Path]]:
        """Number of the last event and path of each snapshot, newest first."""
        found = (self.folder / session_id).glob("[0-9]*.crg")
        named = [(int(path.stem.partition("-")[0]), path) for path in found]
        return sorted(named, reverse=True)

    def methods(self) -> list[str]:
        """The methods that sessions can use: nothing that they need is missing here."""
        has_gradients = hasattr(self._encoder, "promptable") and find_spec("torch")
        met = {TEXT_ENCODER} if has_gradients else set()
        return sorted(name for name, kind in registered().items() if met.issuperset(kind.needs))

    def needed(self, method: str) -> dict[str, Any]:
        """The text encoder of the server's model, for a method that needs one."""
        if TEXT_ENCODER not in get_method(method).needs:
            return {}
        if not self._resources and hasattr(self._encoder, "promptable"):
            self._resources = {TEXT_ENCODER: self._encoder.promptable()}
        return self._resources
