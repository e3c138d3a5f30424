"""The addresses below /v1."""

from __future__ import annotations

import pathlib
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from msgspec import json
from PIL import Image

import crg
from crg.methods.registry import DEFAULT, list_methods
from crg.predict.answers import csv_line, csv_row, json_line
from crg.server import schema
from crg.server.actions import Actions
from crg.server.event_log import brief, summarise
from crg.server.requests import JSON_BYTES, body_of, kind_of, named, parsed, uploads_of
from crg.server.schema import BINARY, TEXT, ProblemError, answers, body, files, problems
from crg.server.service import Service
from crg.server.sse import EventStream
from crg.types import InputError

router = APIRouter(prefix="/v1")
Step = Annotated[int, Path(ge=1, lt=2**53, examples=[7])]
Number = Annotated[int | None, Query(ge=0, le=2**62)]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200)]
_FIELDS = ("step", "event", "at", "name", "label", "probability", "zero_shot_label",
           "zero_shot_probability", "changed", "corrected")  # fmt: skip
_FOR_EVER = "private, max-age=31536000, immutable"
_KEY = re.compile(r"[!-~]{1,200}")
_CHANGE = (400, 404, 408, 409, 413, 415, 422, 503)  # problems of requests that change a session
_FORM, _JSON, _OCTETS = "multipart/form-data", "application/json", "application/octet-stream"
_IMAGES = {
    _FORM: {
        "type": "object",
        "properties": {"image": {"type": "array", "items": BINARY}},
        "required": ["image"],
    },
    "image/*": BINARY,
    _OCTETS: BINARY,
}
_PARAMETERS = [  # of the busiest address, which FastAPI would take long to read
    {"name": "id", "in": "path", "required": True, "schema": TEXT},
    {
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {**TEXT, "pattern": "^[!-~]{1,200}$"},
        "description": "Repeated with the same body, the request is answered and not learnt twice.",
    },
    {
        "name": "name",
        "in": "query",
        "schema": TEXT,
        "description": "The name of an image that is the whole body.",
    },
]


def service_of(request: Request) -> Service:
    """The service behind the application."""
    service: Service = request.app.state.service
    return service


def actions_of(request: Request) -> Actions:
    """The actions on the sessions behind the application."""
    actions: Actions = request.app.state.actions
    return actions


def content_of(request: Request, most: int = JSON_BYTES) -> AbstractAsyncContextManager[bytes]:
    """The body of a request, of at most ``most`` bytes."""
    service = service_of(request)
    return body_of(request, most, service.bytes, service.config)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.encode(value), status, headers, media_type=_JSON)


def _once(value: Any, repeated: bool) -> Response:
    return _json(value, headers={"Idempotent-Replay": "true"} if repeated else None)


def _checked(key: str | None) -> str | None:
    if key is not None and not _KEY.fullmatch(key):
        sentence = "The Idempotency-Key is not 1 to 200 visible characters: choose another."
        raise ProblemError(400, sentence)
    return key


@router.post(
    "/sessions/{id}/images",
    responses=answers({"answers": [schema.ANSWER]}, *_CHANGE),
    openapi_extra={**body(schema.NewFeatures, _IMAGES), "parameters": _PARAMETERS},
)
async def send_images(request: Request) -> Response:
    """Learn images or features in their order, and answer them."""
    request.scope.setdefault("route", router.routes[0])  # for the metrics
    id, key = request.path_params["id"], _checked(request.headers.get("idempotency-key"))
    service, actions = service_of(request), actions_of(request)
    config = service.config
    await service.row(id)
    kind = kind_of(request, "image/*", _FORM, _OCTETS, _JSON)
    if kind == _JSON:
        async with content_of(request) as content:
            new = parsed(schema.NewFeatures, content)
            if isinstance(new.features[0], list) and len(new.features) > config.max_views:
                raise InputError(f"The features are of {len(new.features)} views: "
                                 f"give at most {config.max_views}.")  # fmt: skip
            learnt = await actions.features(id, new.features, named(new.name), key, content)
    else:
        most = config.max_request_bytes if kind == _FORM else config.max_bytes
        async with content_of(request, most) as content:
            uploads = await uploads_of(request, content, kind == _FORM, config)
            learnt = await actions.images(id, uploads, key)
    return _once({"answers": learnt[0]}, learnt[1])


@router.get("", responses=answers(schema.ABOUT))
async def about(request: Request) -> Response:
    """The server's version, model, methods and limits."""
    service = service_of(request)
    return _json(
        {
            "version": crg.__version__,
            "model": service.encoder.name,
            "width": service.encoder.width,
            "default_method": DEFAULT,
            "methods": list_methods(),
            "templates": service.config.templates,
            "limits": service.config.limits,
            "keep_images": service.config.keep_images,
        }
    )


@router.get("/sessions", responses=answers({"sessions": [schema.SESSION_LINE], "next": 42}, 422))
async def list_sessions(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int, Query(ge=1, le=2**62)] = 2**62,
) -> Response:
    """Sessions, newest first; ``next`` continues the list as ``before``."""
    log = service_of(request).log

    def listed() -> dict[str, Any]:
        rows = log.newest(before, limit)
        following = rows[-1].number if len(rows) == limit else None
        return {"sessions": [brief(log, row) for row in rows], "next": following}

    return _json(await service_of(request).run(listed))


@router.post(
    "/sessions",
    status_code=201,
    responses=answers(schema.SESSION, 400, 408, 413, 415, 422, 503, status=201),
    openapi_extra=body(schema.NewSession, {_OCTETS: BINARY}),
)
async def start_session(request: Request, views: Annotated[int, Query(ge=1)] = 1) -> Response:
    """Start a session with class names, or with a state that crg saved."""
    actions = actions_of(request)
    if kind_of(request, _JSON, _OCTETS) == _JSON:
        async with content_of(request) as content:
            new = parsed(schema.NewSession, content)
            info = await actions.start(new.classes, new.method, new.options, new.views)
    else:
        async with content_of(request, service_of(request).config.max_request_bytes) as content:
            info = await actions.start_from(content, views)
    return _json(info, 201, {"Location": f"/v1/sessions/{info['id']}"})


@router.get("/sessions/{id}", responses=answers(schema.SESSION, 404, 422))
async def get_session(request: Request, id: str) -> Response:
    """A session: how it was started, counts and curves."""
    service = service_of(request)
    row = await service.row(id)
    return _json(await service.run(summarise, service.log, row))


@router.delete("/sessions/{id}", status_code=204, responses=problems(404, 422, 503))
async def delete_session(request: Request, id: str) -> Response:
    """Delete a session with all that belongs to it."""
    await service_of(request).delete(id)
    return Response(status_code=204)


@router.post(
    "/sessions/{id}/corrections",
    responses=answers(schema.CORRECTION, *_CHANGE),
    openapi_extra=body(schema.NewCorrection),
)
async def correct(request: Request, id: str, idempotency_key: IdempotencyKey = None) -> Response:
    """Learn the label that a person gives an image."""
    key = _checked(idempotency_key)
    kind_of(request, _JSON)
    async with content_of(request) as content:
        new = parsed(schema.NewCorrection, content)
        [event], repeated = await actions_of(request).correct(id, new.image, new.label, key)
    return _once(event, repeated)


@router.post(
    "/sessions/{id}/classes",
    responses=answers(schema.CLASSES, *_CHANGE),
    openapi_extra=body(schema.NewClass),
)
async def add_class(request: Request, id: str, idempotency_key: IdempotencyKey = None) -> Response:
    """Add a class."""
    key = _checked(idempotency_key)
    kind_of(request, _JSON)
    async with content_of(request) as content:
        new = parsed(schema.NewClass, content)
        [event], repeated = await actions_of(request).add_class(id, new.name, key)
    return _once(event, repeated)


@router.delete("/sessions/{id}/classes", responses=answers(schema.CLASSES, 404, 422, 503))
async def remove_class(request: Request, id: str, name: Annotated[str, Query()]) -> Response:
    """Remove a class."""
    [event], _ = await actions_of(request).remove_class(id, name)
    return _json(event)


@router.get("/sessions/{id}/events", **files(404, 422, 503, **{"text/event-stream": TEXT}))
async def events(
    request: Request,
    id: str,
    after: Number = None,
    last_event_id: Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=2**62)] = None,
) -> Response:
    """The events of the session, as they happen."""
    service = service_of(request)
    row = await service.row(id)

    async def read(last: int) -> list[tuple[int, str, str]]:
        return await service.run(service.log.messages, row.number, last)

    service.hub.budget.take(1)
    since = after if last_event_id is None else last_event_id
    return EventStream(service.hub.watch(id, since, read), service.hub.budget)


@router.get(
    "/sessions/{id}/answers", **files(404, 422, **{"application/jsonl": TEXT, "text/csv": TEXT})
)
async def download_answers(
    request: Request,
    id: str,
    format: Annotated[str | None, Query(pattern="^(jsonl|csv)$")] = None,
) -> Response:
    """Every answer so far, with its last correction, as JSON Lines or CSV."""
    service = service_of(request)
    row = await service.row(id)
    wanted = request.headers.get("accept", "").split(",")[0].partition(";")[0].strip().lower()
    suffix = format or ("csv" if wanted == "text/csv" else "jsonl")
    return StreamingResponse(
        _lines(service, row.number, suffix),
        headers={"Content-Disposition": f'attachment; filename="answers-{id[:8]}.{suffix}"'},
        media_type="text/csv; charset=utf-8" if suffix == "csv" else "application/jsonl",
    )


async def _lines(service: Service, number: int, suffix: str) -> AsyncIterator[str]:
    if suffix == "csv":
        yield csv_row(_FIELDS)
    after = 0
    while rows := await service.run(service.log.answers, number, after):
        after = rows[-1][0]
        found = [{**json.decode(detail), "corrected": corrected} for _, detail, corrected in rows]
        lines = [{name: each[name] for name in _FIELDS} for each in found]
        yield "".join(
            csv_line(line, _FIELDS) if suffix == "csv" else json_line(line) for line in lines
        )


@router.get("/sessions/{id}/state", **files(404, 422, 503, **{_OCTETS: BINARY}))
async def download_state(request: Request, id: str) -> Response:
    """The state of the session, as crg.load reads it."""
    content = await actions_of(request).state(id)
    headers = {"Content-Disposition": f'attachment; filename="session-{id[:8]}.crg"'}
    return Response(content, headers=headers, media_type=_OCTETS)


@router.get("/sessions/{id}/images/{step}/thumbnail", **files(404, 422, **{"image/jpeg": BINARY}))
async def thumbnail(request: Request, id: str, step: Step) -> Response:
    """A small copy of an image."""
    service = service_of(request)
    row = await service.row(id)
    jpeg = await service.run(service.log.thumbnail, row.number, step)
    if jpeg is None:
        raise ProblemError(404, f"No thumbnail of image {step} is kept: only the last ones are.")
    return Response(jpeg, headers={"Cache-Control": _FOR_EVER}, media_type="image/jpeg")


@router.get("/sessions/{id}/images/{step}", **files(404, 422, **{"image/*": BINARY}))
async def image(request: Request, id: str, step: Step) -> Response:
    """An image as it came, if images are kept."""
    service = service_of(request)
    row = await service.row(id)
    path = service.image_path(row.id, step)
    if not path.is_file():
        raise ProblemError(404, f"Image {step} is not kept: set keep_images in the --config file.")
    media_type = await service.run(_media_type, path)
    return FileResponse(path, headers={"Cache-Control": _FOR_EVER}, media_type=media_type)


def _media_type(path: pathlib.Path) -> str:
    with Image.open(path) as opened:
        return Image.MIME.get(opened.format or "", _OCTETS)
