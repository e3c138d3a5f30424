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
from crg.predict.lines import csv_line, csv_row, json_line
from crg.server import schema
from crg.server.actions import Actions
from crg.server.problems import ProblemError
from crg.server.requests import JSON_BYTES, body_of, kind_of, named, parsed, uploads_of
from crg.server.schema import body, problems
from crg.server.service import Service
from crg.server.sse import EventStream
from crg.server.summary import brief, summarise
from crg.types import InputError

router = APIRouter(prefix="/v1")
Step = Annotated[int, Path(ge=1, lt=2**53, examples=[7])]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200)]
BINARY = {"type": "string", "format": "binary"}
_FIELDS = ("step", "event", "at", "name", "label", "probability", "zero_shot_label",
           "zero_shot_probability", "changed", "corrected")  # fmt: skip
_FOR_EVER = "private, max-age=31536000, immutable"
_KEY = re.compile(r"[!-~]{1,200}")
_IMAGES = {
    "multipart/form-data": {
        "type": "object",
        "properties": {"image": {"type": "array", "items": BINARY}},
        "required": ["image"],
    },
    "image/*": BINARY,
    "application/octet-stream": BINARY,
}
_PARAMETERS = [  # of the busiest address, which FastAPI would take long to read
    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
    {
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
        "description": "Repeated with the same body, the request is answered and not learnt twice.",
    },
    {
        "name": "name",
        "in": "query",
        "schema": {"type": "string"},
        "description": "The name of an image that is the whole body.",
    },
]


def service_of(request: Request) -> Service:
    """The service behind the application."""
    service: Service = request.app.state.service
    return service


def actions_of(request: Request) -> Actions:
    """What requests do to the sessions behind the application."""
    actions: Actions = request.app.state.actions
    return actions


def _body(request: Request, most: int = JSON_BYTES) -> AbstractAsyncContextManager[bytes]:
    service = service_of(request)
    return body_of(request, most, service.bytes, service.config)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.encode(value), status, headers, media_type="application/json")


def _outcome(value: Any, repeated: bool) -> Response:
    return _json(value, headers={"Idempotent-Replay": "true"} if repeated else None)


def _checked(key: str | None) -> str | None:
    if key is not None and not _KEY.fullmatch(key):
        raise ProblemError(
            400, "The Idempotency-Key is not 1 to 200 visible characters: choose one."
        )
    return key


@router.post(
    "/sessions/{id}/images",
    responses={
        200: {"model": schema.Answers},
        **problems(400, 404, 408, 409, 413, 415, 422, 503),
    },
    openapi_extra={**body(schema.NewFeatures, _IMAGES), "parameters": _PARAMETERS},
)
async def send_images(request: Request) -> Response:
    """Learn images or features in their order, and answer them."""
    request.scope.setdefault("route", router.routes[0])  # for the metrics
    id, key = request.path_params["id"], _checked(request.headers.get("idempotency-key"))
    kind, actions = kind_of(request), actions_of(request)
    service = service_of(request)
    await service.row(id)
    if kind == "application/json":
        async with _body(request) as content:
            new = parsed(schema.NewFeatures, content)
            _check_views(new.features, service.config.max_views)
            answers, repeated = await actions.features(
                id, new.features, named(new.name), key, content
            )
    elif kind in ("multipart/form-data", "application/octet-stream") or kind[:6] == "image/":
        form, config = kind == "multipart/form-data", service.config
        async with _body(request, config.max_request_bytes if form else config.max_bytes) as body:
            uploads = await uploads_of(request, body, config)
            answers, repeated = await actions.images(id, uploads, key)
    else:
        raise _unsupported(kind, "image/*, multipart/form-data or application/json")
    return _outcome({"answers": answers}, repeated)


@router.get("", responses={200: {"model": schema.About}, **problems()})
async def about(request: Request) -> Response:
    """What this server is and allows."""
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


@router.get("/sessions", responses={200: {"model": schema.SessionList}, **problems(422)})
async def list_sessions(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int, Query(ge=1, le=2**62)] = 2**62,
) -> Response:
    """Sessions, newest first."""
    log = service_of(request).log

    def listed() -> dict[str, Any]:
        rows = log.newest(before, limit)
        following = rows[-1].number if len(rows) == limit else None
        return {"sessions": [brief(log, row) for row in rows], "next": following}

    return _json(await service_of(request).run(listed))


@router.post(
    "/sessions",
    status_code=201,
    responses={201: {"model": schema.SessionInfo}, **problems(400, 408, 413, 415, 422, 503)},
    openapi_extra=body(schema.NewSession, {"application/octet-stream": BINARY}),
)
async def start_session(request: Request, views: Annotated[int, Query(ge=1)] = 1) -> Response:
    """Start a session with class names, or with a state that crg saved."""
    kind, config = kind_of(request), service_of(request).config
    if kind == "application/octet-stream":
        async with _body(request, config.max_request_bytes) as content:
            info = await actions_of(request).start_from(content, views)
    elif kind == "application/json":
        async with _body(request) as content:
            new = parsed(schema.NewSession, content)
            info = await actions_of(request).start(new.classes, new.method, new.options, new.views)
    else:
        raise _unsupported(kind, "application/json or application/octet-stream")
    return _json(info, 201, {"Location": f"/v1/sessions/{info['id']}"})


@router.get("/sessions/{id}", responses={200: {"model": schema.SessionInfo}, **problems(404, 422)})
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
    responses={
        200: {"model": schema.Correction},
        **problems(400, 404, 408, 409, 413, 415, 422, 503),
    },
    openapi_extra=body(schema.NewCorrection),
)
async def correct(request: Request, id: str, idempotency_key: IdempotencyKey = None) -> Response:
    """Learn what a person says that an image shows."""
    key = _checked(idempotency_key)
    _check_json(request)
    async with _body(request) as content:
        new = parsed(schema.NewCorrection, content)
        [event], repeated = await actions_of(request).correct(id, new.image, new.label, key)
    return _outcome(event, repeated)


@router.post(
    "/sessions/{id}/classes",
    responses={200: {"model": schema.Classes}, **problems(400, 404, 408, 409, 413, 415, 422, 503)},
    openapi_extra=body(schema.NewClass),
)
async def add_class(request: Request, id: str, idempotency_key: IdempotencyKey = None) -> Response:
    """Have one class more from now on."""
    key = _checked(idempotency_key)
    _check_json(request)
    async with _body(request) as content:
        new = parsed(schema.NewClass, content)
        [event], repeated = await actions_of(request).add_class(id, new.name, key)
    return _outcome(event, repeated)


@router.delete(
    "/sessions/{id}/classes",
    responses={200: {"model": schema.Classes}, **problems(404, 422, 503)},
)
async def remove_class(request: Request, id: str, name: Annotated[str, Query()]) -> Response:
    """Have one class less from now on."""
    [event], _ = await actions_of(request).remove_class(id, name)
    return _json(event)


@router.get(
    "/sessions/{id}/events",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **problems(404, 422, 503),
    },
)
async def events(
    request: Request,
    id: str,
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    last_event_id: Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=2**62)] = None,
) -> Response:
    """What happens in the session, as it happens."""
    service = service_of(request)
    row = await service.row(id)
    if not service.ready:
        raise ProblemError(503, "The server is stopping: connect again in a moment.", retry_after=2)

    async def read(last: int) -> list[tuple[int, str, str]]:
        return await service.run(service.log.messages, row.number, last)

    service.hub.budget.take(1)
    since = after if last_event_id is None else last_event_id
    return EventStream(service.hub.watch(id, since, read), service.hub.budget)


def _check_json(request: Request) -> None:
    if kind_of(request) != "application/json":
        raise _unsupported(kind_of(request), "application/json")


def _unsupported(kind: str, wanted: str) -> ProblemError:
    return ProblemError(415, f"The body is of type {kind or 'none'!r}: send it as {wanted}.")


def _check_views(features: list[Any], most: int) -> None:
    if isinstance(features[0], list) and len(features) > most:
        raise InputError(f"The features are of {len(features)} views: give at most {most}.")


@router.get(
    "/sessions/{id}/answers",
    response_class=Response,
    responses={
        200: {
            "description": "One line per image.",
            "content": {"application/jsonl": {"schema": {"type": "string"}},
                        "text/csv": {"schema": {"type": "string"}}},
        },
        **problems(404, 422),
    },
)  # fmt: skip
async def answers(
    request: Request,
    id: str,
    format: Annotated[str | None, Query(pattern="^(jsonl|csv)$")] = None,
) -> Response:
    """Every answer so far, with its last correction, as JSON Lines or CSV."""
    service = service_of(request)
    row = await service.row(id)
    wants_csv = _kind_wanted(request) == "text/csv"
    suffix = format or ("csv" if wants_csv else "jsonl")
    return StreamingResponse(
        _lines(service, row.number, suffix),
        headers={"Content-Disposition": f'attachment; filename="answers-{id[:8]}.{suffix}"'},
        media_type="text/csv; charset=utf-8" if suffix == "csv" else "application/jsonl",
    )


def _kind_wanted(request: Request) -> str:
    """The media type that a client names first."""
    return request.headers.get("accept", "").split(",")[0].partition(";")[0].strip().lower()


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


@router.get(
    "/sessions/{id}/state",
    response_class=Response,
    responses={
        200: {
            "description": "A state.",
            "content": {"application/octet-stream": {"schema": BINARY}},
        },
        **problems(404, 422, 503),
    },
)
async def state(request: Request, id: str) -> Response:
    """What the session has learnt, as crg.load reads it."""
    content = await actions_of(request).state(id)
    headers = {"Content-Disposition": f'attachment; filename="session-{id[:8]}.crg"'}
    return Response(content, headers=headers, media_type="application/octet-stream")


@router.get(
    "/sessions/{id}/images/{step}/thumbnail",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {"schema": BINARY}}}, **problems(404, 422)},
)
async def thumbnail(request: Request, id: str, step: Step) -> Response:
    """A small copy of an image."""
    service = service_of(request)
    row = await service.row(id)
    jpeg = await service.run(service.log.thumbnail, row.number, step)
    if jpeg is None:
        raise ProblemError(404, f"No thumbnail of image {step} is kept: only the last ones are.")
    return Response(jpeg, headers={"Cache-Control": _FOR_EVER}, media_type="image/jpeg")


@router.get(
    "/sessions/{id}/images/{step}",
    response_class=Response,
    responses={200: {"content": {"image/*": {"schema": BINARY}}}, **problems(404, 422)},
)
async def image(request: Request, id: str, step: Step) -> Response:
    """An image as it came, if images are kept."""
    service = service_of(request)
    row = await service.row(id)
    path = service.image_path(row.id, step)
    if not path.is_file():
        raise ProblemError(
            404, f"Image {step} is not kept: keep_images in the file of --config keeps them."
        )
    media_type = await service.run(_media_type, path)
    return FileResponse(path, headers={"Cache-Control": _FOR_EVER}, media_type=media_type)


def _media_type(path: pathlib.Path) -> str:
    with Image.open(path) as opened:
        return Image.MIME.get(opened.format or "", "application/octet-stream")
