"""The addresses below /v1."""

from __future__ import annotations

import dataclasses
import re
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from msgspec import json
from starlette.types import ASGIApp, Receive, Scope, Send

import crg
from crg.methods.registry import DEFAULT, list_methods
from crg.server import schema
from crg.server.actions import Actions, Outcome
from crg.server.problems import KNOWN, Problem, answer_to
from crg.server.requests import JSON_BYTES, body_of, kind_of, named, parsed, uploads_of
from crg.server.schema import body, problems
from crg.server.service import Service
from crg.server.sse import EventStream
from crg.server.summary import brief, summarise
from crg.types import InputError

router = APIRouter(prefix="/v1")
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200)]
BINARY = {"type": "string", "format": "binary"}
_KEY = re.compile(r"[!-~]{1,200}")
_LARGE = 250_000  # bytes of a form that is taken apart in a thread
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
    return body_of(request, most, service.bytes, service.limits)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.encode(value), status, headers, media_type="application/json")


def _outcome(value: Any, outcome: Outcome) -> Response:
    return _json(value, headers={"Idempotent-Replay": "true"} if outcome.repeated else None)


def _checked(key: str | None) -> str | None:
    if key is not None and not _KEY.fullmatch(key):
        raise Problem(400, "The Idempotency-Key is not 1 to 200 visible characters: choose one.")
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
    """Learn images or features in their order, and answer what they show."""
    id, key = request.path_params["id"], _checked(request.headers.get("idempotency-key"))
    kind, actions = kind_of(request), actions_of(request)
    service = service_of(request)
    await service.row(id)
    if kind == "application/json":
        async with _body(request) as content:
            new = parsed(schema.NewFeatures, content)
            _check_views(new.features, service.limits.max_views)
            outcome = await actions.features(id, new.features, named(new.name), key, content)
    elif kind in ("multipart/form-data", "application/octet-stream") or kind[:6] == "image/":
        form = kind == "multipart/form-data"
        most = service.limits.max_request_bytes if form else service.limits.max_bytes
        async with _body(request, most) as content:
            apart = (uploads_of, request, content, service.limits)
            large = form and len(content) > _LARGE
            uploads = await service.read(*apart) if large else apart[0](*apart[1:])
            outcome = await actions.images(id, uploads, key)
    else:
        raise _unsupported(kind, "image/*, multipart/form-data or application/json")
    return _outcome({"answers": outcome.details}, outcome)


class Direct:
    """Leads requests to the busiest address past FastAPI, which takes as long as learning does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.path = "/v1/sessions/{id}/images"
        self._places = re.compile(r"/v1/sessions/([^/]+)/images")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer images here, and pass on everything else."""
        found = scope["type"] == "http" and self._places.fullmatch(scope["path"])
        if not found or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope.update(path_params={"id": found[1]}, route=self)  # the path is for the metrics
        try:
            answer = await send_images(Request(scope, receive))
        except KNOWN as error:
            answer = answer_to(error)
        await answer(scope, receive, send)


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
            "templates": service.settings.templates,
            "limits": dataclasses.asdict(service.limits),
            "keep_images": service.settings.keep_images,
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

    return _json(await service_of(request).read(listed))


@router.post(
    "/sessions",
    status_code=201,
    responses={201: {"model": schema.SessionInfo}, **problems(400, 408, 413, 415, 422, 503)},
    openapi_extra=body(schema.NewSession, {"application/octet-stream": BINARY}),
)
async def start_session(request: Request, views: Annotated[int, Query(ge=1)] = 1) -> Response:
    """Start a session with class names, or with a state that crg saved."""
    kind, limits = kind_of(request), service_of(request).limits
    if kind == "application/octet-stream":
        async with _body(request, limits.max_request_bytes) as content:
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
    return _json(await service.read(summarise, service.log, row))


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
        outcome = await actions_of(request).correct(id, new.image, new.label, key)
    return _outcome(outcome.details[0], outcome)


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
        outcome = await actions_of(request).add_class(id, new.name, key)
    return _outcome(outcome.details[0], outcome)


@router.delete(
    "/sessions/{id}/classes",
    responses={200: {"model": schema.Classes}, **problems(404, 422, 503)},
)
async def remove_class(request: Request, id: str, name: Annotated[str, Query()]) -> Response:
    """Have one class less from now on."""
    return _json((await actions_of(request).remove_class(id, name)).details[0])


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
        raise Problem(503, "The server is stopping: connect again in a moment.", retry_after=2)

    async def read(last: int) -> list[tuple[int, str, str]]:
        return await service.read(service.log.messages, row.number, last)

    service.hub.budget.take(1)
    since = after if last_event_id is None else last_event_id
    return EventStream(service.hub.watch(id, since, read), service.hub.budget)


def _check_json(request: Request) -> None:
    if kind_of(request) != "application/json":
        raise _unsupported(kind_of(request), "application/json")


def _unsupported(kind: str, wanted: str) -> Problem:
    return Problem(415, f"The body is of type {kind or 'none'!r}: send it as {wanted}.")


def _check_views(features: list[Any], most: int) -> None:
    if isinstance(features[0], list) and len(features) > most:
        raise InputError(f"The features are of {len(features)} views: give at most {most}.")
