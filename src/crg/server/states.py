"""Snapshots and kept images of the sessions, and how a session comes back to memory."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import re
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from crg.adapter import STEPS_PER_COPY, Adapter, create, load
from crg.atomic import replacing, sync
from crg.encoders.base import Encoder
from crg.methods.options import build_config
from crg.methods.registry import get_method, registered
from crg.resources import TEXT_ENCODER, check_needs
from crg.server.event_log import Learner, Log, StoredSession
from crg.server.limits import ServerConfig
from crg.server.schema import ProblemError
from crg.types import InputError, Task

_LOGGER = logging.getLogger("crg.server")
_ATTEMPTS = 3  # to replay an event
_NOTE = re.compile(rb" *([0-9]+) ([0-9])")  # the event that is replayed, and how often it was


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


def _note(mark: Path, seq: int, times: int) -> None:
    """Note in a file which event is replayed; in place, which is fast and leaves no empty file."""
    with contextlib.suppress(OSError):  # on a full disk it is only not counted
        mark.parent.mkdir(exist_ok=True)
        handle = os.open(mark, os.O_WRONLY | os.O_CREAT, 0o666)
        os.pwrite(handle, b"%20d %d" % (seq, times), 0)
        os.close(handle)


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
        noted = _NOTE.fullmatch(mark.read_bytes()) if mark.exists() else None  # None: damaged
        failed, times = map(int, noted.groups()) if noted else (0, 0)
        known, differences = learner.seq, 0
        try:
            for event in chain.from_iterable(self._log.events(row.number, known)):
                before = times if event.seq == failed else 0
                _note(mark, event.seq, min(before, _ATTEMPTS) + 1)
                if before >= _ATTEMPTS:
                    raise ProblemError(500, f"This session failed {_ATTEMPTS} times at event "
                                            f"{failed} while it was loaded, and is set aside: "
                                            "download its answers, and start another.")  # fmt: skip
                beat()
                differences += not learner.replay(event)
        except (OSError, sqlite3.Error):  # the disk failed, not the event
            mark.unlink(missing_ok=True)
            raise
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
