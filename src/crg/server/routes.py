"""The addresses that only read."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from msgspec import json
from PIL import Image

import crg
from crg.answer import COLUMNS
from crg.methods.registry import DEFAULT, list_methods
from crg.predict.lines import csv_line, csv_row, json_line
from crg.server import schema
from crg.server.actions import OCTETS, as_json, service_of
from crg.server.event_log import Event, listed, summarise
from crg.server.schema import BINARY, TEXT, ProblemError, answers, files
from crg.server.service import Service
from crg.server.session import Learner
from crg.server.sse import EventStream, Message, watch

router = APIRouter(prefix="/v1")
Step = Annotated[int, Path(ge=1, lt=2**53, examples=[7])]
Number = Annotated[int | None, Query(ge=0, le=2**62)]
_FIELDS = ("step", "event", "at", "name", "label", "probability", "zero_shot_label",
           "zero_shot_probability", "changed", "corrected")  # fmt: skip
_FOR_EVER = "private, max-age=31536000, immutable"


@router.get("", responses=answers(schema.ABOUT))
async def about(request: Request) -> Response:
    """The server's version, model, methods and limits."""
    service = service_of(request)
    return as_json(
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
    service = service_of(request)
    found = await service.run(listed, service.log, before, limit)
    following = found[-1][0] if len(found) == limit else None
    return as_json({"sessions": [line for _, line in found], "next": following})


@router.get("/sessions/{id}", responses=answers(schema.SESSION, 404, 422))
async def get_session(request: Request, id: str) -> Response:
    """A session: how it was started, counts and curves."""
    service = service_of(request)
    row = await service.row(id)
    return as_json(await service.run(summarise, service.log, row))


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

    async def read(last: int) -> list[Message]:
        await service.row(id)  # else it was deleted
        return await service.run(service.log.messages, row.number, last)

    since = after if last_event_id is None else last_event_id
    if since is None:
        since = await service.run(service.log.last, row.number)
    service.watchers.take(1)
    frames = watch(service.flags.setdefault(id, set()), since, read)
    return EventStream(frames, lambda: service.watchers.give_back(1))


@router.get(
    "/sessions/{id}/answers", **files(404, 422, **{"application/jsonl": TEXT, "text/csv": TEXT})
)
async def download_answers(
    request: Request,
    id: str,
    format: Annotated[Literal["jsonl", "csv"], Query()] = "jsonl",
) -> Response:
    """Every answer so far, with its last correction, as JSON Lines or CSV."""
    service = service_of(request)
    row = await service.row(id)
    return StreamingResponse(
        _lines(service, row.number, format),
        headers={"Content-Disposition": f'attachment; filename="answers-{id[:8]}.{format}"'},
        media_type="text/csv; charset=utf-8" if format == "csv" else "application/jsonl",
    )


async def _lines(service: Service, number: int, suffix: str) -> AsyncIterator[str]:
    if suffix == "csv":
        yield csv_row(COLUMNS)
    after = 0
    while rows := await service.run(service.log.answers, number, after):
        after = rows[-1][0]
        found = [{**json.decode(detail), "corrected": corrected} for _, detail, corrected in rows]
        lines = [{name: each[name] for name in _FIELDS} for each in found]
        yield "".join(
            csv_line(_cells(line), COLUMNS) if suffix == "csv" else json_line(line)
            for line in lines
        )


def _cells(line: dict[str, Any]) -> dict[str, Any]:
    """An answer as the tables of crg predict have it, where a person's word is the label."""
    label = line["corrected"]
    said = {} if label is None else {"label": label, "probability": 1.0, "corrected": True}
    return {**line, "path": line["name"], **said}


@router.get("/sessions/{id}/state", **files(404, 422, 503, **{OCTETS: BINARY}))
async def download_state(request: Request, id: str) -> Response:
    """The state of the session, as crg.load reads it."""
    service, content = service_of(request), b""

    def apply(learner: Learner, _: Any) -> list[Event]:
        nonlocal content
        content = learner.adapter.content()
        return []

    await service.learn(id, apply)
    headers = {"Content-Disposition": f'attachment; filename="session-{id[:8]}.crg"'}
    return Response(content, headers=headers, media_type=OCTETS)


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
    path = service.states.image_path(row.id, step)
    answered = await service.run(service.log.image, row.number, step)
    if answered is None or not path.is_file():
        raise ProblemError(404, f"Image {step} is not kept: set keep_images in the --config file.")
    media_type = await service.run(_media_type, path)
    return FileResponse(path, headers={"Cache-Control": _FOR_EVER}, media_type=media_type)


def _media_type(path: pathlib.Path) -> str:
    with Image.open(path) as opened:
        return Image.MIME.get(opened.format or "", OCTETS)
