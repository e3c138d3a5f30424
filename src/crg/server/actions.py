"""What requests do to sessions: start one, send images, correct, change classes; once only."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from msgspec import Raw, json

from crg import state_file
from crg.adapter import Adapter
from crg.classifier import Classifier
from crg.encoders.base import Vectors
from crg.images.views import Recipe
from crg.methods.registry import DEFAULT, get_method
from crg.prompts import encode_classes
from crg.server.batching import Encoded
from crg.server.event_log import Event, Key, started
from crg.server.learner import Learner
from crg.server.problems import Problem
from crg.server.service import Service
from crg.server.sessions import Session
from crg.server.summary import summarise
from crg.types import InputError

Submit = Callable[[Session, Key | None], Awaitable[list[Event]]]


@dataclass(frozen=True)
class Upload:
    """An image as it came."""

    name: str | None
    content: bytes


@dataclass(frozen=True)
class Outcome:
    """What a request came to: the details of its events as JSON, and whether they are old."""

    details: Sequence[Raw]
    repeated: bool = False


class Actions:
    """Everything that changes sessions."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def start(
        self, classes: Sequence[str], method: str | None, options: Mapping[str, Any], views: int
    ) -> dict[str, Any]:
        """Start a session with new classes."""
        service, method = self._service, method or DEFAULT
        self._check_room(len(classes), views)
        get_method(method)  # refuses an unknown one before any text is encoded
        text = await self._encode_names(classes)
        start = {
            "classes": list(classes),
            "logit_scale": service.encoder.logit_scale,
            "method": method,
            "options": dict(options),
            "views": views,
        }
        adapter = await service.read(service.states.start, start, text)
        return await self._begin(secrets.token_hex(16), start, adapter, text)

    async def start_from(self, state: bytes, views: int) -> dict[str, Any]:
        """Start a session with a state that ``crg`` saved."""
        service, session_id = self._service, secrets.token_hex(16)
        self._check_room(2, views)
        adapter = await service.texts.do(self._read_state, state)
        self._check_room(adapter.task.n_classes, views)
        await service.read(service.states.save, session_id, Learner(adapter))
        start = {
            "classes": list(adapter.task.class_names),
            "logit_scale": adapter.task.logit_scale,
            "method": adapter.name,
            "options": dataclasses.asdict(adapter.config),
            "views": views,
        }
        return await self._begin(session_id, start, adapter, None)

    async def images(self, session_id: str, uploads: Sequence[Upload], key: str | None) -> Outcome:
        """Learn images, and answer what they show."""
        service = self._service

        async def submit(session: Session, known: Key | None) -> list[Event]:
            recipe = Recipe(views=session.row.start["views"])
            encode = service.batcher.encode
            seen = [encode(each.content, recipe, place) for place, each in enumerate(uploads)]
            ready = asyncio.gather(*seen)
            events = await session.submit(ready, partial(_answer, uploads), known)
            if service.settings.keep_images:
                await service.read(self._keep, session_id, events, uploads)
            return events

        service.queue.take(len(uploads))
        try:
            contents = [
                part for each in uploads for part in ((each.name or "").encode(), each.content)
            ]
            return await self._once(session_id, key, contents, submit)
        finally:
            service.queue.give_back(len(uploads))

    async def features(
        self, session_id: str, features: Any, name: str | None, key: str | None, body: bytes
    ) -> Outcome:
        """Learn an image whose features are known, and answer what it shows."""

        def apply(learner: Learner, _: Any) -> list[Event]:
            return [learner.answer(features, name)]

        return await self._submit(session_id, key, body, apply)

    async def correct(self, session_id: str, step: int, label: str, key: str | None) -> Outcome:
        """Learn what a person says that an image shows."""
        number, log = (await self._service.row(session_id)).number, self._service.log

        def apply(learner: Learner, _: Any) -> list[Event]:
            image = log.image(number, step)
            if image is None:
                raise InputError(
                    f"There is no image {step} in this session: give the step of an answer."
                )
            return [learner.correct(image, label)]

        return await self._submit(session_id, key, json.encode(["correct", step, label]), apply)

    async def add_class(self, session_id: str, name: str, key: str | None) -> Outcome:
        """Have one class more from now on."""
        service = self._service
        await service.row(session_id)
        [feature] = await self._encode_names([name])

        def apply(learner: Learner, _: Any) -> list[Event]:
            _check_classes(learner.n_classes + 1, service.limits.max_classes)
            return [learner.add_class(name, feature)]

        return await self._submit(session_id, key, json.encode(["add", name]), apply)

    async def remove_class(self, session_id: str, name: str) -> Outcome:
        """Have one class less from now on."""

        def apply(learner: Learner, _: Any) -> list[Event]:
            return [learner.remove_class(name)]

        return await self._submit(session_id, None, b"", apply)

    async def state(self, session_id: str) -> bytes:
        """What a session has learnt, as ``crg.load`` reads it."""
        session, content = await self._service.session(session_id), b""

        def apply(learner: Learner, _: Any) -> list[Event]:
            nonlocal content
            with tempfile.TemporaryDirectory(dir=self._service.settings.data) as folder:
                path = Path(folder) / "state.crg"
                learner.save(path)
                content = path.read_bytes()
            return []

        await session.submit(_nothing(), apply)
        return content

    async def _encode_names(self, names: Sequence[str]) -> Vectors:
        service = self._service
        encode = partial(encode_classes, service.encoder, names, service.settings.templates)
        return await service.texts.do(encode)

    async def _submit(
        self,
        session_id: str,
        key: str | None,
        content: bytes,
        apply: Callable[[Learner, Any], list[Event]],
    ) -> Outcome:
        async def submit(session: Session, known: Key | None) -> list[Event]:
            return await session.submit(_nothing(), apply, known)

        return await self._once(session_id, key, [content], submit)

    async def _once(
        self, session_id: str, key: str | None, contents: Sequence[bytes], submit: Submit
    ) -> Outcome:
        """Do it, unless a request with the same key has been done; then repeat its answer."""
        if key is None:
            events = await submit(await self._service.session(session_id), None)
            return Outcome([Raw(json.encode(event.detail)) for event in events])
        service = self._service
        turn = self._turns.setdefault((session_id, key), asyncio.Lock())
        async with turn:
            row = await service.row(session_id)
            digest = await service.read(_digest, contents)
            known = await service.read(service.log.known, row.number, key)
            if known is not None:
                if known[0] != digest:
                    raise Problem(409, "This Idempotency-Key was used for another request: "
                                       "choose a new one.")  # fmt: skip
                return Outcome([Raw(detail.encode()) for _, detail in known[1]], repeated=True)
            events = await submit(await service.session(session_id), Key(key, digest))
            return Outcome([Raw(json.encode(event.detail)) for event in events])

    async def _begin(
        self, session_id: str, start: dict[str, Any], adapter: Adapter, text: Any
    ) -> dict[str, Any]:
        service = self._service
        start = {
            **start,
            "model": service.encoder.name,
            "config": dataclasses.asdict(adapter.config),
            "seen": adapter.n_steps,
        }
        created = round(time.time(), 3)
        service.n_sessions += 1
        try:
            await service.write(started(session_id, created, start, text))
        except BaseException:
            service.n_sessions -= 1
            raise
        session = await service.session(session_id)
        return await service.read(summarise, service.log, session.row)

    def _check_room(self, n_classes: int, views: int) -> None:
        service, limits = self._service, self._service.limits
        _check_classes(n_classes, limits.max_classes)
        if not 1 <= views <= limits.max_views:
            raise InputError(f"views is {views}: give a whole number from 1 to {limits.max_views}.")
        if service.n_sessions >= limits.max_sessions:
            raise Problem(429, f"There are {limits.max_sessions} sessions already: delete one.",
                          retry_after=60)  # fmt: skip

    def _read_state(self, state: bytes) -> Adapter:
        """The adapter of a state; it names no file and must fit the server's model."""
        service = self._service
        with tempfile.TemporaryDirectory(dir=service.settings.data) as folder:
            path = Path(folder) / "state.crg"
            path.write_bytes(state)
            try:
                model = state_file.read(path).model
                if model not in (None, service.encoder.name):
                    raise InputError(f"{path} was saved with the model {model}: use that one.")
                templates = service.settings.templates
                return Classifier(service.encoder, state=path, templates=templates).adapter
            except InputError as error:
                raise InputError(str(error).replace(str(path), "The state")) from None

    def _keep(self, session_id: str, events: Sequence[Event], uploads: Sequence[Upload]) -> None:
        for event, upload in zip(events, uploads, strict=True):
            path = self._service.image_path(session_id, event.detail["step"])
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(upload.content)


def _nothing() -> asyncio.Future[None]:
    """What a job waits for that waits for nothing."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def _answer(uploads: Sequence[Upload], learner: Learner, images: Sequence[Encoded]) -> list[Event]:
    return [
        learner.answer(image.features, upload.name, image.thumbnail)
        for upload, image in zip(uploads, images, strict=True)
    ]


def _check_classes(count: int, most: int) -> None:
    if count > most:
        raise InputError(f"There would be {count} classes: a session may have {most}.")


def _digest(contents: Sequence[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for content in contents:
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.digest()
