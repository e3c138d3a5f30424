"""Learning event by event: the same events give the same bits, live or replayed."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crg.adapter import Adapter, create, load
from crg.answer import answer_for
from crg.encoders.base import Encoder, Vectors
from crg.methods.registry import get_method
from crg.resources import TEXT_ENCODER
from crg.server.event_log import Event, Kind, Log, StoredSession
from crg.types import InputError, Task, as_floats, unit_rows

_LOGGER = logging.getLogger("crg.server")
_TOP = 5


@dataclass
class Learner:
    """The adapter of a session, and the number of the last event that it has learnt."""

    adapter: Adapter
    seq: int = 0

    def answer(self, features: Any, name: str | None, thumbnail: bytes | None = None) -> Event:
        """Learn an image, and answer it."""
        task, step = self.adapter.task, self.adapter.n_steps + 1
        rows = as_floats(features, "features")
        prediction = self.adapter.step(rows, step)
        unit = unit_rows(rows.reshape(-1, task.width), "features")
        answer = answer_for(task, prediction, unit, step)
        detail = {
            "step": step,
            "name": name,
            "label": answer.label,
            "probability": answer.probability,
            "top": [{"label": label, "probability": p} for label, p in answer.top(_TOP)],
            "zero_shot_label": answer.zero_shot_label,
            "zero_shot_probability": answer.zero_shot_probability,
            "changed": answer.changed,
            "thumbnail": thumbnail is not None,
        }
        return self._event("answer", detail, rows, thumbnail)

    def correct(self, image: Event, label: str) -> Event:
        """Learn the label that a person gives an image."""
        step = image.detail["step"]
        self.adapter.correct(image.features, label, step)
        return self._event(
            "correction", {"step": step, "label": label, "was": image.detail["label"]}
        )

    def add_class(self, name: str, text_feature: Vectors) -> Event:
        """Add a class."""
        self.adapter.add_class(name, text_feature)
        return self._event("class_added", self._classes(name), text_feature[None, :])

    def remove_class(self, name: str) -> Event:
        """Remove a class."""
        self.adapter.remove_class(name)
        return self._event("class_removed", self._classes(name))

    def replay(self, event: Event, log: Log, number: int) -> bool:
        """Learn an event of the log again; False if the answer differs."""
        detail = event.detail
        if event.kind == "answer":
            again = self.answer(event.features, detail["name"])
            again.detail["thumbnail"] = detail["thumbnail"]
        elif event.kind == "correction":
            image = log.image(number, detail["step"])
            assert image is not None
            again = self.correct(image, detail["label"])
        elif event.kind == "class_added":
            assert event.features is not None
            again = self.add_class(detail["name"], event.features[0])
        else:
            again = self.remove_class(detail["name"])
        return {**again.detail, "at": detail["at"]} == detail

    def _classes(self, name: str) -> dict[str, Any]:
        return {"name": name, "classes": list(self.adapter.task.class_names)}

    def _event(
        self,
        kind: Kind,
        detail: dict[str, Any],
        features: Vectors | None = None,
        thumbnail: bytes | None = None,
    ) -> Event:
        self.seq += 1
        at = round(time.time(), 3)
        return Event(
            self.seq, kind, at, {"event": self.seq, "at": at, **detail}, features, thumbnail
        )


class States:
    """The folder of snapshots: how a session comes back to memory."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        self._folder, self._encoder = folder, encoder
        self._resources: dict[str, Any] = {}

    def start(
        self,
        classes: Sequence[str],
        text: Vectors,
        logit_scale: float,
        method: str,
        options: Mapping[str, Any],
    ) -> Adapter:
        """A new adapter for these classes with their text features (K, D)."""
        task = Task(classes, text, logit_scale).with_resources(self._needed(method))
        return create(method, task, **options)

    def fresh(self, row: StoredSession) -> Learner:
        """The learner of a session before its first event."""
        if row.text_features is None:
            raise RuntimeError(f"The state that session {row.id} was started from is lost.")
        start = row.start
        scale, method, options = start["logit_scale"], start["method"], start["options"]
        return Learner(self.start(start["classes"], row.text_features, scale, method, options))

    def save(self, session_id: str, learner: Learner) -> None:
        """Write a snapshot; remove older ones, except the state that a session started from."""
        (self._folder / session_id).mkdir(exist_ok=True)
        learner.adapter.save(self._folder / session_id / f"{learner.seq}.crg")
        for seq, path in self._snapshots(session_id):
            if 0 < seq < learner.seq:
                path.unlink(missing_ok=True)

    def load(self, row: StoredSession, log: Log) -> tuple[Learner, int, int]:
        """The learner of a session, the last event of its snapshot, and how many replays differ."""
        learner = self._newest(row)
        known, differences = learner.seq, 0
        for some in log.events(row.number, known):
            differences += sum(not learner.replay(event, log, row.number) for event in some)
        if differences:
            _LOGGER.warning("%d answers of session %s differ when replayed", differences, row.id)
        return learner, known, differences

    def delete(self, session_id: str) -> None:
        """Remove all snapshots of a session."""
        shutil.rmtree(self._folder / session_id, ignore_errors=True)

    def clear(self, log: Log) -> None:
        """Remove temporary files, and snapshots of sessions that no longer exist."""
        for folder in self._folder.iterdir():
            if log.find(folder.name) is None:
                self.delete(folder.name)
            for partial in folder.glob(".*"):
                partial.unlink()

    def _newest(self, row: StoredSession) -> Learner:
        for seq, path in self._snapshots(row.id):
            try:
                return Learner(load(path, self._needed(row.start["method"])), seq)
            except InputError as error:
                _LOGGER.warning("a snapshot of session %s is unusable: %s", row.id, error)
        return self.fresh(row)

    def _snapshots(self, session_id: str) -> list[tuple[int, Path]]:
        """Number of the last event and path of each snapshot, newest first."""
        found = (self._folder / session_id).glob("[0-9]*.crg")
        return sorted(((int(path.stem), path) for path in found), reverse=True)

    def _needed(self, method: str) -> dict[str, Any]:
        """The text encoder of the server's model, for a method that needs one."""
        if TEXT_ENCODER not in get_method(method).needs:
            return {}
        if not self._resources and hasattr(self._encoder, "promptable"):
            self._resources = {TEXT_ENCODER: self._encoder.promptable()}
        return self._resources
