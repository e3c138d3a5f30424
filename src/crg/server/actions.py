"""The addresses that change something: each reads no more of a request than it may."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import APIRouter, Query, Request, Response
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
from crg.server.event_log import Event, started, summarise
from crg.server.limits import ServerConfig
from crg.server.schema import BINARY, TEXT, ProblemError, answers, body, problems
from crg.server.service import Outcome, Service, size_of
from crg.server.session import Learner
from crg.types import InputError, Task, printable

router = APIRouter(prefix="/v1")
T = TypeVar("T")
Model = TypeVar("Model", bound=Struct)
Upload: TypeAlias = tuple[str | None, bytes]  # name and content of an image
FORM, JSON, OCTETS = "multipart/form-data", "application/json", "application/octet-stream"
_NAME = 200  # characters of a file name that are kept
_FIELDS = 10  # parts of a form that are no images
_JSON_BYTES = 4_000_000  # of a request that carries no image
_LARGE = 50_000  # bytes of a body that is parsed off the event loop
_KEY = re.compile(r"[!-~]{1,200}")
_CHANGE = (400, 404, 408, 409, 413, 415, 422, 503)  # problems of requests that change a session
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


def service_of(request: Request) -> Service:
    """The service behind the application."""
    service: Service = request.app.state.service
    return service


def as_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response of JSON."""
    return Response(json.encode(value), status, headers, media_type=JSON)


@router.post(
    "/sessions/{id}/images",
    responses=answers({"answers": [schema.ANSWER]}, *_CHANGE),
    openapi_extra={**body(schema.NewFeatures, _IMAGES), "parameters": _PARAMETERS},
)
async def send_images(request: Request) -> Response:
    """Learn images or features in their order, and answer them."""
    request.scope.setdefault("route", router.routes[0])  # for the metrics
    id, key, service = request.path_params["id"], _key_of(request), service_of(request)
    row, config = await service.row(id), service.config
    kind = _kind_of(request, "image/*", FORM, OCTETS, JSON)
    most = {JSON: _JSON_BYTES, FORM: config.max_request_bytes}.get(kind, config.max_bytes)
    async with content_of(request, most) as content:
        if kind == JSON:
            new = await received(service, schema.NewFeatures, content)
            if isinstance(new.features[0], list) and len(new.features) > config.max_views:
                raise InputError(f"The features are of {len(new.features)} views: "
                                 f"give at most {config.max_views}.")  # fmt: skip
            name = _kept(new.name)
            learnt = await service.learn(
                id, lambda learner, _: [learner.answer(new.features, name)], [content], key
            )
        else:
            alone = [(_kept(request.query_params.get("name")), content)]
            parse = partial(_form, request.headers, content, config)
            uploads = await off_loop(service, content, parse) if kind == FORM else alone
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

    def encode() -> Awaitable[list[Encoded]]:
        encode, numbered = service.batcher.encode, enumerate(uploads, 1)
        return asyncio.gather(*[encode(each[1], views, place) for place, each in numbered])

    def apply(learner: Learner, images: Sequence[Encoded]) -> list[Event]:
        if service.config.keep_images:
            kept, step = [content for _, content in uploads], learner.adapter.n_steps + 1
            service.states.keep_images(session_id, step, kept)
        events = [] if task is None else learner.follow(task)
        top = () if task is None else (task.n_classes,)
        for (name, _), (features, thumbnail) in zip(uploads, images, strict=True):
            events.append(learner.answer(features, name, thumbnail, *top))
        return events

    service.queue.take(len(uploads))
    try:
        contents = [part for name, content in uploads for part in ((name or "").encode(), content)]
        return await service.learn(session_id, apply, contents, key, encode)
    finally:
        service.queue.give_back(len(uploads))


@router.post(
    "/sessions",
    status_code=201,
    responses=answers(schema.SESSION, 400, 408, 413, 415, 422, 503, status=201),
    openapi_extra=body(schema.NewSession, {OCTETS: BINARY}),
)
async def start_session(
    request: Request,
    views: Annotated[int, Query(ge=1)] = 1,
    name: Annotated[str, Query(max_length=100)] = "",
    none_of_these: Annotated[str | None, Query(examples=["auto"])] = None,
    sets: Annotated[float | None, Query(gt=0, lt=1)] = None,
) -> Response:
    """Start a session with class names, or with a state that crg saved and these parameters."""
    service, id = service_of(request), secrets.token_hex(16)
    await _start(request, id, views, name, Decisions(none_of_these, sets))
    info = await service.run(summarise, service.log, (await service.session(id)).row)
    return as_json(info, 201, {"Location": f"/v1/sessions/{id}"})


async def _start(
    request: Request, session_id: str, views: int, name: str | None, asked: Decisions
) -> None:
    """Log a new session; one from a state has its first snapshot before that."""
    service, most = service_of(request), service_of(request).config.max_sessions
    if _kind_of(request, JSON, OCTETS) == JSON:
        async with content_of(request) as content:
            new = await received(service, schema.NewSession, content)
            name, asked = new.name, Decisions(new.none_of_these, new.sets)
            start, text = await _planned(service, new)
    else:
        text, most_bytes = None, service.config.max_request_bytes
        async with content_of(request, most_bytes) as content, service.texts:
            start = await service.run(_read_state, service, content, session_id, views)
    start |= {"name": _kept(name), "none_of_these": asked.none_of_these, "sets": asked.sets}
    if not await service.write(started(session_id, start, text, service.now, most)):
        await service.run(service.states.delete, session_id)
        raise ProblemError(429, f"There are {most} sessions already: delete one.")


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
    with tempfile.TemporaryDirectory(dir=service.states.folder) as folder:
        path = Path(folder) / "state.crg"
        path.write_bytes(state)
        try:
            saved = state_file.read(path)
            if saved.model not in (None, service.encoder.name):
                raise InputError(f"{path} was saved with the model {saved.model}: use that one.")
            service.config.check_room(saved.task.n_classes, views)
            start = service.states.record(
                service.config, saved.method, saved.task, saved.options, views
            )
            templates = service.config.templates
            adapter = Classifier(service.encoder, state=path, templates=templates).adapter
            service.states.save(session_id, Learner(adapter, service.log, 0, 0, b""))
            return {**start, "seen": adapter.n_steps}
        except InputError as error:
            raise InputError(str(error).replace(str(path), "The state")) from None


@router.patch(
    "/sessions/{id}",
    responses=answers(schema.RENAMED, *_CHANGE),
    openapi_extra=body(schema.NewName),
)
async def rename_session(request: Request, id: str) -> Response:
    """Give a session another name; an empty one removes it."""
    _kind_of(request, JSON)
    async with content_of(request) as content:
        name = _kept((await received(service_of(request), schema.NewName, content)).name)
        [event], _ = await service_of(request).learn(id, lambda learner, _: [learner.rename(name)])
    return as_json(event)


@router.delete("/sessions/{id}", status_code=204, responses=problems(404, 422, 503))
async def delete_session(request: Request, id: str) -> Response:
    """Delete a session with all that belongs to it."""
    await service_of(request).delete(id)
    return Response(status_code=204)


@router.post(
    "/sessions/{id}/corrections",
    responses=answers(schema.CORRECTION, *_CHANGE),
    openapi_extra={**body(schema.NewCorrection), "parameters": [_KEYED]},
)
async def correct(request: Request, id: str) -> Response:
    """Learn the label that a person gives an image."""
    key, _ = _key_of(request), _kind_of(request, JSON)
    async with content_of(request) as content:
        new = await received(service_of(request), schema.NewCorrection, content)
        [event], repeated = await service_of(request).learn(
            id, lambda learner, _: [learner.correct(new.image, new.label)], [content], key
        )
    return _once(event, repeated)


@router.post(
    "/sessions/{id}/classes",
    responses=answers(schema.CLASSES, *_CHANGE),
    openapi_extra={**body(schema.NewClass), "parameters": [_KEYED]},
)
async def add_class(request: Request, id: str) -> Response:
    """Add a class."""
    service, key, _ = service_of(request), _key_of(request), _kind_of(request, JSON)
    async with content_of(request) as content:
        new = await received(service, schema.NewClass, content)
        row = await service.row(id)
        [feature] = await service.encode_names([new.name])

        def apply(learner: Learner, _: Any) -> list[Event]:
            n = learner.adapter.task.n_classes + 1
            service.config.check_room(n, 1, size_of(row, n))
            return [learner.add_class(new.name, feature)]

        [event], repeated = await service.learn(id, apply, [content], key)
    return _once(event, repeated)


@router.delete("/sessions/{id}/classes", responses=answers(schema.CLASSES, 404, 422, 503))
async def remove_class(request: Request, id: str, name: Annotated[str, Query()]) -> Response:
    """Remove a class."""
    [event], _ = await service_of(request).learn(
        id, lambda learner, _: [learner.remove_class(name)]
    )
    return as_json(event)


def _once(value: Any, repeated: bool) -> Response:
    return as_json(value, headers={"Idempotent-Replay": "true"} if repeated else None)


def _key_of(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        sentence = "The Idempotency-Key is not 1 to 200 visible characters: choose another."
        raise ProblemError(400, sentence)
    return key


@contextlib.asynccontextmanager
async def content_of(request: Request, most: int = _JSON_BYTES) -> AsyncIterator[bytes]:
    """The body of a request, at most ``most`` bytes, which count as long as they are used."""
    service = service_of(request)
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


async def off_loop(service: Service, content: bytes, parse: Callable[[], T]) -> T:
    """What ``parse`` makes of a body; in a thread if it is large, because others are waiting."""
    return parse() if len(content) < _LARGE else await service.run(parse)


async def received(service: Service, model: type[Model], content: bytes) -> Model:
    """A JSON body as an instance of ``model``."""
    return await off_loop(service, content, partial(parsed, model, content))


def parsed(model: type[Model], content: bytes) -> Model:
    """JSON as an instance of ``model``."""
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


def _form(headers: Headers, content: bytes, config: ServerConfig) -> list[Upload]:
    """The images of a form: its parts with a file name."""
    boundary = parse_options_header(headers["content-type"])[1].get(b"boundary")
    if not boundary or b"--%b--" % boundary not in content:
        raise ProblemError(400, "The form does not end with its boundary: send it again.")

    async def stream() -> AsyncGenerator[bytes, None]:
        yield content

    parser = MultiPartParser(headers, stream(), max_files=config.max_images, max_fields=_FIELDS)
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
    for place, (_, image) in enumerate(uploads, 1):
        if len(image) > config.max_bytes:
            raise ProblemError(413, f"The image has more than {config.max_bytes:,} bytes: "
                                    "scale it down.", image=place)  # fmt: skip
    return uploads
