"""The addresses that change something: each reads no more of a request than it may."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response
from msgspec import Struct, ValidationError, json
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from crg import state_file
from crg.classifier import Classifier
from crg.encoders.base import Vectors
from crg.methods.registry import get_method
from crg.parts.decisions import Decisions
from crg.server import schema
from crg.server.batching import Encoded
from crg.server.event_log import Event, Learner, StoredSession, started
from crg.server.schema import BINARY, TEXT, ProblemError, answers, body
from crg.server.service import Apply, Outcome, Service
from crg.server.summary import size_of, summarise
from crg.types import InputError, Task, printable

router = APIRouter(prefix="/v1")
T = TypeVar("T")
Model = TypeVar("Model", bound=Struct)
Upload: TypeAlias = tuple[str | None, bytes]  # name and content of an image
FORM, JSON, OCTETS = "multipart/form-data", "application/json", "application/octet-stream"
_NAME = 200  # characters of a file name that are kept
_FIELDS = 10  # parts of a form that are no images
_JSON_BYTES = 4_000_000  # of a request that carries no image
_VALUES = 200_000  # in JSON, about
_KEY = re.compile(r"[!-~]{1,200}")
_PARTS = {"image": {"type": "array", "items": BINARY}}
_IMAGES = {
    FORM: {"type": "object", "properties": _PARTS, "required": ["image"]},
    "image/*": BINARY,
    OCTETS: BINARY,
}
_KEYED = {
    "name": "Idempotency-Key", "in": "header", "schema": {**TEXT, "pattern": "^[!-~]{1,200}$"},
    "description": "Repeated with the same body, the request is answered and not learnt twice.",
}  # fmt: skip
_PARAMETERS = [  # of the busiest address, which FastAPI would take long to read
    {"name": "id", "in": "path", "required": True, "schema": TEXT},
    {"name": "name", "in": "query", "schema": TEXT,
     "description": "The name of an image that is the whole body."},
    _KEYED,
]  # fmt: skip


async def service_of(request: Request) -> Service:
    """The service behind the application."""
    service: Service = request.app.state.service
    return service


Here: TypeAlias = Annotated[Service, Depends(service_of)]


async def _row(service: Here, id: str) -> StoredSession:
    return await service.row(id)


Row: TypeAlias = Annotated[StoredSession, Depends(_row)]  # of the session that the address names


def as_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response of JSON."""
    return Response(json.encode(value), status, headers, media_type=JSON)


@router.post(
    "/sessions/{id}/images",
    responses=answers({"answers": [schema.ANSWER]}),
    openapi_extra={**body(schema.NewFeatures, _IMAGES), "parameters": _PARAMETERS},
)
async def send_images(request: Request) -> Response:
    """Learn images or features in their order, and answer them."""
    request.scope.setdefault("route", router.routes[0])  # for the metrics
    id, key, service = request.path_params["id"], _key_of(request), await service_of(request)
    row, config = await service.row(id), service.config
    kind = _kind_of(request, "image/*", FORM, OCTETS, JSON)
    most = {JSON: _JSON_BYTES, FORM: config.max_request_bytes}.get(kind, config.max_bytes)
    async with content_of(request, most) as content:
        if kind == JSON:
            new = await service.run(_parsed, schema.NewFeatures, content)
            config.check_room(0, len(new.features) if isinstance(new.features[0], list) else 1)
            name = _kept(new.name)

            def apply(learner: Learner, _: Any) -> list[Event]:
                image = service.states.image_path(id, learner.adapter.n_steps + 1)
                image.unlink(missing_ok=True)  # of a request that failed
                return [learner.answer(new.features, name)]

            learnt = await service.learn(id, apply, [content], key)
        else:
            uploads = [(_kept(request.query_params.get("name")), content)]
            if kind == FORM:
                uploads = await service.run(_form, request.headers, content, config.max_images)
            learnt = await learn_images(service, id, uploads, row.start["views"], key)
    return _once({"answers": learnt[0]}, learnt[1])


async def learn_images(
    service: Service,
    session_id: str,
    uploads: Sequence[Upload],
    views: int,
    key: str | None = None,
    task: Task | None = None,
) -> Outcome:
    """Learn images; the classes of ``task``, if it is given, become those of the session first."""
    images = [content for _, content in uploads]

    def apply(learner: Learner, encoded: Sequence[Encoded]) -> list[Event]:
        if service.config.keep_images:
            service.states.keep_images(session_id, learner.adapter.n_steps + 1, images)
        events = [] if task is None else _follow(learner, task)
        top = () if task is None else (task.n_classes,)
        for (name, _), (features, thumbnail) in zip(uploads, encoded, strict=True):
            events.append(learner.answer(features, name, thumbnail, *top))
        return events

    contents = [part for name, content in uploads for part in ((name or "").encode(), content)]
    encode = partial(service.batcher.encode, images, views)
    return await service.learn(session_id, apply, contents, key, encode)


def _follow(learner: Learner, task: Task) -> list[Event]:
    """Add and remove classes until they are those of ``task``."""
    before, now = learner.adapter.task.class_names, task.class_names
    new = [n for n, name in enumerate(now) if name not in before]
    added = [learner.add_class(now[n], task.text_features[n]) for n in new]
    return added + [learner.remove_class(name) for name in before if name not in now]


@router.post(
    "/sessions",
    status_code=201,
    responses=answers(schema.SESSION, 201),
    openapi_extra=body(schema.NewSession, {OCTETS: BINARY}),
)
async def start_session(
    request: Request,
    service: Here,
    views: Annotated[int, Query(ge=1)] = 1,
    name: Annotated[str, Query(max_length=100)] = "",
    none_of_these: Annotated[str | None, Query(examples=["auto"])] = None,
    sets: Annotated[float | None, Query(gt=0, lt=1)] = None,
) -> Response:
    """Start a session with class names, or with a state that crg saved and these parameters."""
    id, text, most = secrets.token_hex(16), None, service.config.max_sessions
    if _kind_of(request, JSON, OCTETS) == JSON:
        async with json_of(request, schema.NewSession) as (new, _):
            start, text = await _planned(service, new)
            name, asked = new.name or "", Decisions(new.none_of_these, new.sets)
    else:
        asked = Decisions(none_of_these, sets)
        async with content_of(request, service.config.max_request_bytes) as state, service.texts:
            start = await service.run(_read_state, service, state, id, views)
    start |= {"name": _kept(name), "none_of_these": asked.none_of_these, "sets": asked.sets}
    if not await service.writer.submit(started(id, start, text, service.now, most)):
        await service.run(service.states.delete, id)
        raise ProblemError(429, f"There are {most} sessions already: delete one.")
    try:
        info = await service.run(summarise, service.log, (await service.session(id)).row)
    except ProblemError:  # nobody knows its id
        await service.delete(id)
        raise
    return as_json(info, 201, {"Location": f"/v1/sessions/{id}"})


async def _planned(service: Service, new: schema.NewSession) -> tuple[dict[str, Any], Vectors]:
    """The start of a session, and the text features of its classes."""
    service.config.check_room(len(new.classes), new.views)
    get_method(new.method)  # refuses an unknown one before any text is encoded
    text = await service.encode_names(new.classes)
    task = Task(new.classes, text, service.encoder.logit_scale)
    given = service.config, new.method, task, new.options, new.views
    return await service.run(service.states.record, *given), text


def _read_state(service: Service, state: bytes, session_id: str, views: int) -> dict[str, Any]:
    """Keep a state, which must fit the server's model, as a session's first snapshot."""
    states, config = service.states, service.config
    with tempfile.TemporaryDirectory(dir=states.folder) as folder:
        path = Path(folder) / "state.crg"
        path.write_bytes(state)
        try:
            saved = state_file.read(path)
            if saved.model not in (None, service.encoder.name):
                raise InputError(f"{path} was saved with the model {saved.model}: use that one.")
            config.check_room(saved.task.n_classes, views)
            start = states.record(config, saved.method, saved.task, saved.options, views)
            adapter = Classifier(service.encoder, state=path, templates=config.templates).adapter
        except InputError as error:
            raise InputError(str(error).replace(str(path), "The state")) from None
    states.save(session_id, Learner(adapter, service.log, 0, 0, b""))
    return {**start, "seen": adapter.n_steps}


@router.patch(
    "/sessions/{id}", responses=answers(schema.RENAMED), openapi_extra=body(schema.NewName)
)
async def rename_session(request: Request, id: str) -> Response:
    """Give a session another name; an empty one removes it."""
    async with json_of(request, schema.NewName) as (new, content):
        name = _kept(new.name)
        return await _learn(request, id, lambda learner, _: [learner.rename(name)], content)


@router.delete("/sessions/{id}", status_code=204)
async def delete_session(service: Here, id: str) -> Response:
    """Delete a session with all that belongs to it."""
    await service.delete(id)
    return Response(status_code=204)


@router.post(
    "/sessions/{id}/corrections",
    responses=answers(schema.CORRECTION),
    openapi_extra={**body(schema.NewCorrection), "parameters": [_KEYED]},
)
async def correct(request: Request, id: str) -> Response:
    """Learn the label that a person gives an image."""
    async with json_of(request, schema.NewCorrection) as (new, content):
        step, label = new.image, new.label
        return await _learn(request, id, lambda learner, _: [learner.correct(step, label)], content)


@router.post(
    "/sessions/{id}/classes",
    responses=answers(schema.CLASSES),
    openapi_extra={**body(schema.NewClass), "parameters": [_KEYED]},
)
async def add_class(request: Request, service: Here, row: Row) -> Response:
    """Add a class."""
    async with json_of(request, schema.NewClass) as (new, content):
        [feature] = await service.encode_names([new.name])

        def apply(learner: Learner, _: Any) -> list[Event]:
            n = learner.adapter.task.n_classes + 1
            service.config.check_room(n, 1, size_of(row, n))
            return [learner.add_class(new.name, feature)]

        return await _learn(request, row.id, apply, content)


@router.delete("/sessions/{id}/classes", responses=answers(schema.CLASSES))
async def remove_class(request: Request, id: str, name: Annotated[str, Query()]) -> Response:
    """Remove a class."""
    return await _learn(request, id, lambda learner, _: [learner.remove_class(name)], name.encode())


async def _learn(request: Request, session_id: str, apply: Apply, content: bytes) -> Response:
    """Learn what makes one event, and answer with that."""
    key = _key_of(request)
    service = await service_of(request)
    [event], repeated = await service.learn(session_id, apply, [content], key)
    return _once(event, repeated)


def _once(value: Any, repeated: bool) -> Response:
    return as_json(value, headers={"Idempotent-Replay": "true"} if repeated else None)


def _key_of(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        sentence = "The Idempotency-Key is not 1 to 200 visible characters: choose another."
        raise ProblemError(400, sentence)
    return key


@contextlib.asynccontextmanager
async def content_of(request: Request, most: int) -> AsyncIterator[bytes]:
    """The body of a request, at most ``most`` bytes, which count as long as they are used."""
    service = await service_of(request)
    patience = service.config.body_timeout
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > most:
        raise _too_large(most)
    chunks: list[bytes] = []
    taken = 0
    try:
        try:
            async with asyncio.timeout(patience):
                async for chunk in request.stream():
                    if taken + len(chunk) > most:
                        raise _too_large(most)
                    service.bytes.take(len(chunk))
                    taken += len(chunk)
                    chunks.append(chunk)
        except TimeoutError:
            raise ProblemError(408, f"The body did not arrive within {patience} seconds: "
                                    "send it faster or in parts.") from None  # fmt: skip
        yield b"".join(chunks)
    finally:
        service.bytes.give_back(taken)


def _too_large(most: int) -> ProblemError:
    return ProblemError(413, f"The request has more than {most:,} bytes: send less at once.")


@contextlib.asynccontextmanager
async def json_of(
    request: Request, model: type[Model], most: int = _JSON_BYTES
) -> AsyncIterator[tuple[Model, bytes]]:
    """A JSON body of at most ``most`` bytes, as an instance of ``model`` and as it came."""
    _kind_of(request, JSON)
    service = await service_of(request)
    async with content_of(request, most) as content:
        yield await service.run(_parsed, model, content), content


def _parsed(model: type[Model], content: bytes) -> Model:
    """JSON as an instance of ``model``; nothing else runs while it is decoded."""
    if sum(map(content.count, b",[{")) > _VALUES:
        raise ProblemError(413, f"The body has more than {_VALUES:,} values: send fewer.")
    try:
        return json.decode(content, type=model)
    except ValidationError as error:
        raise ProblemError(422, f"The body is not valid ({error}): see /openapi.json.") from None
    except (ValueError, RecursionError) as error:
        raise ProblemError(400, f"The body is not JSON ({error}): correct it.") from None


def _kind_of(request: Request, *wanted: str) -> str:
    """The media type of the body, which must be one of ``wanted``; any image is ``image/*``."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    found = "image/*" if kind.startswith("image/") else kind
    if found not in wanted:
        listed = " or ".join(filter(None, (", ".join(wanted[:-1]), wanted[-1])))
        raise ProblemError(415, f"The body is of type {kind or 'none'!r}: send it as {listed}.")
    return found


def _kept(name: str | None) -> str | None:
    """A file name as it is kept: one line of text, not too long; it never names a file here."""
    return printable(name[:_NAME])[:_NAME] if name else None


def _form(headers: Headers, content: bytes, most: int) -> list[Upload]:
    """The images of a form: its parts with a file name."""
    boundary = parse_options_header(headers["content-type"])[1].get(b"boundary")
    if not boundary or b"--%b--" % boundary not in content:
        raise ProblemError(400, "The form does not end with its boundary: send it again.")

    async def stream() -> AsyncGenerator[bytes, None]:
        yield content

    parser = MultiPartParser(headers, stream(), max_files=most, max_fields=_FIELDS)
    parser.spool_max_size = len(content) + 1  # so that no file is written, and nothing waits
    try:
        parser.parse().send(None)
    except StopIteration as done:
        form: FormData = done.value
    except MultiPartException as error:
        status = 413 if error.message.startswith("Too many") else 400
        reason = error.message.rstrip(".").replace(". ", ", ")
        raise ProblemError(status, f"The form is refused ({reason}): send another.") from None
    files = [file for _, file in form.multi_items() if isinstance(file, UploadFile)]
    uploads = [(_kept(file.filename), file.file.read()) for file in files]
    for file in files:
        file.file.close()
    if not uploads:
        raise ProblemError(422, "The request holds no image: send a part with a file name.")
    return uploads
