"""What can be taken away from a session: answers, state, thumbnails and images."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as Place
from fastapi.responses import FileResponse, StreamingResponse
from msgspec import json
from PIL import Image

from crg.predict.answers import csv_line, csv_row, json_line
from crg.server.problems import Problem
from crg.server.routes import BINARY, actions_of, service_of
from crg.server.schema import problems
from crg.server.service import Service

router = APIRouter(prefix="/v1/sessions/{id}")
Step = Annotated[int, Place(ge=1, lt=2**53, examples=[7])]
_FIELDS = ("step", "event", "at", "name", "label", "probability", "zero_shot_label",
           "zero_shot_probability", "changed", "corrected")  # fmt: skip
_FOR_EVER = "private, max-age=31536000, immutable"


@router.get(
    "/answers",
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
    while rows := await service.read(service.log.answers, number, after):
        after = rows[-1][0]
        found = [{**json.decode(detail), "corrected": corrected} for _, detail, corrected in rows]
        lines = [{name: each[name] for name in _FIELDS} for each in found]
        yield "".join(
            csv_line(line, _FIELDS) if suffix == "csv" else json_line(line) for line in lines
        )


@router.get(
    "/state",
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
    "/images/{step}/thumbnail",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {"schema": BINARY}}}, **problems(404, 422)},
)
async def thumbnail(request: Request, id: str, step: Step) -> Response:
    """A small copy of an image."""
    service = service_of(request)
    row = await service.row(id)
    jpeg = await service.read(service.log.thumbnail, row.number, step)
    if jpeg is None:
        raise Problem(404, f"No thumbnail of image {step} is kept: only the last ones are.")
    return Response(jpeg, headers={"Cache-Control": _FOR_EVER}, media_type="image/jpeg")


@router.get(
    "/images/{step}",
    response_class=Response,
    responses={200: {"content": {"image/*": {"schema": BINARY}}}, **problems(404, 422)},
)
async def image(request: Request, id: str, step: Step) -> Response:
    """An image as it came, if images are kept."""
    service = service_of(request)
    row = await service.row(id)
    path = service.image_path(row.id, step)
    if not path.is_file():
        raise Problem(404, f"Image {step} is not kept: crg serve --keep-images keeps them.")
    media_type = await asyncio.to_thread(_media_type, path)
    return FileResponse(path, headers={"Cache-Control": _FOR_EVER}, media_type=media_type)


def _media_type(path: Path) -> str:
    with Image.open(path) as opened:
        return Image.MIME.get(opened.format or "", "application/octet-stream")
