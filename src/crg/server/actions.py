"""Actions on sessions: start, send images, correct, change classes; each once only."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from msgspec import Raw, json

from crg import state_file
from crg.adapter import Adapter
from crg.classifier import Classifier
from crg.encoders.base import Vectors
from crg.images.views import Recipe
from crg.methods.registry import DEFAULT, get_method
from crg.server.batching import Encoded
from crg.server.event_log import Event, started, summarise
from crg.server.learner import Learner
from crg.server.requests import Upload
from crg.server.schema import ProblemError
from crg.server.service import Service
from crg.server.session import Apply, Session
from crg.types import InputError

Outcome: TypeAlias = tuple[list[Raw], bool]  # details of events as JSON; is it a repetition?


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
        text = await service.encode_names(classes)
        scale = service.encoder.logit_scale
        adapter = await service.run(service.states.start, classes, text, scale, method, options)
        return await self._begin(secrets.token_hex(16), adapter, views, text)

    async def start_from(self, state: bytes, views: int) -> dict[str, Any]:
        """Start a session with a state that ``crg`` saved."""
        service, session_id = self._service, secrets.token_hex(16)
        self._check_room(2, views)
        adapter = await service.run_with_texts(self._read_state, state)
        self._check_room(adapter.task.n_classes, views)
        await service.run(service.states.save, session_id, Learner(adapter))
        return await self._begin(session_id, adapter, views, None)

    async def images(self, session_id: str, uploads: Sequence[Upload], key: str | None) -> Outcome:
        """Learn images, and answer them."""
        service = self._service

        def encode(session: Session) -> Awaitable[list[Encoded]]:
            recipe, encode = Recipe(views=session.row.start["views"]), service.batcher.encode
            return asyncio.gather(
                *[encode(content, recipe, place) for place, (_, content) in enumerate(uploads)]
            )

        def apply(learner: Learner, images: Sequence[Encoded]) -> list[Event]:
            events = [
                learner.answer(features, name, thumbnail)
                for (name, _), (features, thumbnail) in zip(uploads, images, strict=True)
            ]
            if service.config.keep_images:
                for event, (_, content) in zip(events, uploads, strict=True):
                    path = service.image_path(session_id, event.detail["step"])
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(content)
            return events

        service.queue.take(len(uploads))
        try:
            contents = [part for name, content in uploads
                        for part in ((name or "").encode(), content)]  # fmt: skip
            return await self._once(session_id, key, contents, apply, encode)
        finally:
            service.queue.give_back(len(uploads))

    async def features(
        self, session_id: str, features: Any, name: str | None, key: str | None, body: bytes
    ) -> Outcome:
        """Learn an image whose features are known, and answer it."""

        def apply(learner: Learner, _: Any) -> list[Event]:
            return [learner.answer(features, name)]

        return await self._once(session_id, key, [body], apply)

    async def correct(self, session_id: str, step: int, label: str, key: str | None) -> Outcome:
        """Learn the label that a person gives an image."""
        number, log = (await self._service.row(session_id)).number, self._service.log

        def apply(learner: Learner, _: Any) -> list[Event]:
            image = log.image(number, step)
            if image is None:
                raise InputError(
                    f"There is no image {step} in this session: give the step of an answer."
                )
            return [learner.correct(image, label)]

        content = json.encode(["correct", step, label])
        return await self._once(session_id, key, [content], apply)

    async def add_class(self, session_id: str, name: str, key: str | None) -> Outcome:
        """Add a class."""
        service = self._service
        await service.row(session_id)
        [feature] = await service.encode_names([name])

        def apply(learner: Learner, _: Any) -> list[Event]:
            _check_classes(learner.adapter.task.n_classes + 1, service.config.max_classes)
            return [learner.add_class(name, feature)]

        return await self._once(session_id, key, [json.encode(["add", name])], apply)

    async def remove_class(self, session_id: str, name: str) -> Outcome:
        """Remove a class."""

        def apply(learner: Learner, _: Any) -> list[Event]:
            return [learner.remove_class(name)]

        return await self._once(session_id, None, [], apply)

    async def state(self, session_id: str) -> bytes:
        """The state of a session, as ``crg.load`` reads it."""
        session, content = await self._service.session(session_id), b""

        def apply(learner: Learner, _: Any) -> list[Event]:
            nonlocal content
            with tempfile.TemporaryDirectory(dir=self._service.data) as folder:
                path = Path(folder) / "state.crg"
                learner.adapter.save(path)
                content = path.read_bytes()
            return []

        await session.submit(apply)
        return content

    async def _once(
        self,
        session_id: str,
        key: str | None,
        contents: Sequence[bytes],
        apply: Apply,
        prepare: Callable[[Session], Awaitable[Any]] | None = None,
    ) -> Outcome:
        """Learn, unless a request with the same key was answered; then repeat its answer."""
        service, keyed = self._service, None
        async with contextlib.AsyncExitStack() as held:
            if key is not None:
                turn = self._turns.setdefault((session_id, key), asyncio.Lock())
                await held.enter_async_context(turn)
                row = await service.row(session_id)
                keyed = key, await service.run(_digest, contents)
                known = await service.run(service.log.known, row.number, key)
                if known is not None and known[0] != keyed[1]:
                    raise ProblemError(409, "This Idempotency-Key was used for another request: "
                                            "choose a new one.")  # fmt: skip
                if known is not None:
                    return [Raw(detail.encode()) for detail in known[1]], True
            session = await service.session(session_id)
            events = await session.submit(apply, prepare and prepare(session), keyed)
        return [Raw(json.encode(event.detail)) for event in events], False

    async def _begin(
        self, session_id: str, adapter: Adapter, views: int, text: Vectors | None
    ) -> dict[str, Any]:
        service = self._service
        start = {
            "classes": adapter.task.class_names,
            "logit_scale": adapter.task.logit_scale,
            "model": service.encoder.name,
            "method": adapter.name,
            "options": dataclasses.asdict(adapter.config),
            "views": views,
            "seen": adapter.n_steps,
        }
        service.n_sessions += 1
        try:
            await service.write(started(session_id, round(time.time(), 3), start, text))
        except BaseException:
            service.n_sessions -= 1
            raise
        session = await service.session(session_id)
        return await service.run(summarise, service.log, session.row)

    def _check_room(self, n_classes: int, views: int) -> None:
        service, limits = self._service, self._service.config
        _check_classes(n_classes, limits.max_classes)
        if not 1 <= views <= limits.max_views:
            raise InputError(f"views is {views}: give a whole number from 1 to {limits.max_views}.")
        if service.n_sessions >= limits.max_sessions:
            sentence = f"There are {limits.max_sessions} sessions already: delete one."
            raise ProblemError(429, sentence, retry_after=60)

    def _read_state(self, state: bytes) -> Adapter:
        """The adapter of a state; it names no file and must fit the server's model."""
        service = self._service
        with tempfile.TemporaryDirectory(dir=service.data) as folder:
            path = Path(folder) / "state.crg"
            path.write_bytes(state)
            try:
                model = state_file.read(path).model
                if model not in (None, service.encoder.name):
                    raise InputError(f"{path} was saved with the model {model}: use that one.")
                templates = service.config.templates
                return Classifier(service.encoder, state=path, templates=templates).adapter
            except InputError as error:
                raise InputError(str(error).replace(str(path), "The state")) from None


def _check_classes(count: int, most: int) -> None:
    if count > most:
        raise InputError(f"There would be {count} classes: a session may have {most}.")


def _digest(contents: Sequence[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for content in contents:
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.digest()
