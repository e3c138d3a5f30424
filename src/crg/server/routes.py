"""The addresses that only read or watch, and the one that answers as Hugging Face's does."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import pathlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from msgspec import json, structs
from PIL import Image
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.types import Receive, Scope, Send

import crg
from crg.adapter import create
from crg.answer import COLUMNS
from crg.methods.registry import DEFAULT
from crg.predict.lines import csv_line, csv_row, json_line
from crg.predict.pipeline import scores_of
from crg.prompts import check_template
from crg.server import schema
from crg.server.actions import OCTETS, Here, Row, as_json, json_of, learn_images
from crg.server.event_log import Event, Learner, StoredSession
from crg.server.schema import BINARY, TEXT, ProblemError, answers, body, files
from crg.server.service import Service
from crg.server.summary import listed, size_of, summarise
from crg.shapes import ShapeImage, class_things
from crg.types import InputError, Task

router = APIRouter(prefix="/v1")
Step = Annotated[int, Path(ge=1, lt=2**53, examples=[7])]
Number = Annotated[int | None, Query(ge=0, le=2**62)]
_FIELDS = ("step", "event", "at", "name", "label", "probability", "zero_shot_label",
           "zero_shot_probability", "changed", "outside", "corrected")  # fmt: skip
_LABEL_BYTES = 4_000_000  # of a request besides its image
_FOR_EVER = "private, max-age=31536000, immutable"
_STUCK = 20.0  # seconds that a watcher may take to read what it is sent
Frames: TypeAlias = AsyncGenerator[ServerSentEvent, None]


@router.get("", responses=answers(schema.ABOUT))
async def about(service: Here) -> Response:
    """The server's version, model, methods and limits."""
    examples, settings = _examples(service), structs.asdict(service.config)
    classes = sorted({image.thing.name for image in examples})
    return as_json(
        {
            "version": crg.__version__,
            "model": service.encoder.name,
            "knows": "rendered shapes only" if examples else "what captions of photographs name",
            "examples": {"images": len(examples), "classes": classes} if examples else None,
            "width": service.encoder.width,
            "default_method": DEFAULT,
            "methods": service.states.methods(),
            "templates": service.config.templates,
            "limits": {name: n for name, n in settings.items() if type(n) is int},
            "keep_images": service.config.keep_images,
        }
    )


def _examples(service: Service) -> list[ShapeImage]:
    """Twelve images that the bundled model knows; none for any other model."""
    things = class_things()[:6] if service.encoder.name == "mini" else ()
    return [ShapeImage(0, k, things[k % 6], "night", 2) for k in range(2 * len(things))]


@router.get("/examples/{number}", **files(**{"image/png": BINARY}))
def example(service: Here, number: Step) -> Response:
    """One of the images with which the page tries the bundled model; a thread draws it."""
    images, file = _examples(service), io.BytesIO()
    if number > len(images):
        raise ProblemError(404, "There is no such example: GET /v1 says how many there are.")
    images[number - 1].draw().save(file, "PNG")
    return Response(file.getvalue(), media_type="image/png")


@router.get("/sessions", responses=answers({"sessions": [schema.SESSION_LINE], "next": 42}))
async def list_sessions(
    service: Here,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int, Query(ge=1, le=2**62)] = 2**62,
) -> Response:
    """Sessions, newest first; ``next`` continues the list as ``before``."""
    found = await service.run(listed, service.log, before, limit)
    following = found[-1][0] if len(found) == limit else None
    return as_json({"sessions": [line for _, line in found], "next": following})


@router.get("/sessions/{id}", responses=answers(schema.SESSION))
async def get_session(service: Here, row: Row) -> Response:
    """A session: how it was started, counts and curves."""
    return as_json(await service.run(summarise, service.log, row))


@router.get("/sessions/{id}/events", **files(**{"text/event-stream": TEXT}))
async def events(
    service: Here,
    row: Row,
    after: Number = None,
    last_event_id: Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=2**62)] = None,
) -> Response:
    """The events of the session, as they happen."""
    since = after if last_event_id is None else last_event_id
    if since is None:
        last = "SELECT ifnull(max(seq), 0) FROM events WHERE session = ?"
        [(since,)] = await service.run(service.log.rows, last, row.number)
    service.watchers.take(1)
    return EventStream(watch(service, row, since), lambda: service.watchers.give_back(1))


async def watch(service: Service, row: StoredSession, after: int) -> Frames:
    """The events of a session after one, as they happen, until ``deleted`` ends the stream."""
    news, flags = asyncio.Event(), service.flags.setdefault(row.id, set())
    flags.add(news)
    try:
        yield ServerSentEvent(comment="welcome")
        while True:
            news.clear()
            await service.row(row.id)  # else it was deleted
            while messages := await service.run(service.log.messages, row.number, after):
                for after, kind, detail in messages:
                    yield ServerSentEvent(detail, event=kind, id=str(after))
            await news.wait()
    except ProblemError:
        yield ServerSentEvent("{}", event="deleted", id="0")
    finally:
        flags.discard(news)


class EventStream(EventSourceResponse):
    """A stream of events; ``on_end`` is called when the watcher leaves or stops reading."""

    def __init__(self, frames: Frames, on_end: Callable[[], None]) -> None:
        super().__init__(frames, send_timeout=_STUCK)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the watcher leaves, is stuck, or the session is deleted."""
        try:
            with contextlib.suppress(SendTimeoutError):
                await super().__call__(scope, receive, send)
        finally:
            self._on_end()


@router.get("/sessions/{id}/answers", **files(**{"application/jsonl": TEXT, "text/csv": TEXT}))
async def download_answers(
    service: Here, row: Row, format: Annotated[Literal["jsonl", "csv"], Query()] = "jsonl"
) -> Response:
    """Every answer so far, with its last correction, as JSON Lines or CSV."""
    return StreamingResponse(
        _lines(service, row, format),
        headers={"Content-Disposition": f'attachment; filename="answers-{row.id[:8]}.{format}"'},
        media_type="text/csv; charset=utf-8" if format == "csv" else "application/jsonl",
    )


async def _lines(service: Service, row: StoredSession, suffix: str) -> AsyncIterator[str]:
    options = {"none_of_these": "none_of_these", "class_set": "sets"}
    asked = [name for name in options if row.start.get(options[name]) is not None]
    if suffix == "csv":
        yield csv_row([*COLUMNS, *asked])
    after = 0
    while rows := await service.run(service.log.answers, row.number, after):
        after = rows[-1][0]
        found = [{**json.decode(detail), "corrected": corrected} for _, detail, corrected in rows]
        lines = [{name: each[name] for name in (*_FIELDS, *asked)} for each in found]
        yield "".join(
            csv_line(_cells(line), [*COLUMNS, *asked]) if suffix == "csv" else json_line(line)
            for line in lines
        )


def _cells(line: dict[str, Any]) -> dict[str, Any]:
    """An answer as the tables of crg predict have it, where a person's word is the label."""
    label = line["corrected"]
    said = {} if label is None else {"label": label, "probability": 1.0, "corrected": True}
    said |= {"none_of_these": False} if said else {}
    return {**line, "path": line["name"], **said}


@router.get("/sessions/{id}/state", **files(**{OCTETS: BINARY}))
async def download_state(service: Here, id: str) -> Response:
    """The state of the session, as crg.load reads it."""
    content = b""

    def apply(learner: Learner, _: Any) -> list[Event]:
        nonlocal content
        content = learner.adapter.content()
        return []

    await service.learn(id, apply)
    headers = {"Content-Disposition": f'attachment; filename="session-{id[:8]}.crg"'}
    return Response(content, headers=headers, media_type=OCTETS)


@router.get("/sessions/{id}/images/{step}/thumbnail", **files(**{"image/jpeg": BINARY}))
async def thumbnail(service: Here, row: Row, step: Step) -> Response:
    """A small copy of an image."""
    jpeg = await service.run(service.log.thumbnail, row.number, step)
    if jpeg is None:
        raise ProblemError(404, f"No thumbnail of image {step} is kept: only the last ones are.")
    return Response(jpeg, headers={"Cache-Control": _FOR_EVER}, media_type="image/jpeg")


@router.get("/sessions/{id}/images/{step}", **files(**{"image/*": BINARY}))
async def image(service: Here, row: Row, step: Step) -> Response:
    """An image as it came, if images are kept."""
    path = service.states.image_path(row.id, step)
    answered = await service.run(service.log.image, row.number, step)
    if answered is None or not path.is_file():
        raise ProblemError(404, f"Image {step} is not kept: set keep_images in the --config file.")
    media_type = await service.run(_media_type, path)
    return FileResponse(path, headers={"Cache-Control": _FOR_EVER}, media_type=media_type)


def _media_type(path: pathlib.Path) -> str:
    with Image.open(path) as opened:
        return Image.MIME.get(opened.format or "", OCTETS)


@router.post("/zero-shot", responses=answers([schema.SCORE]), openapi_extra=body(schema.NewScores))
async def zero_shot(
    request: Request, service: Here, session: Annotated[str | None, Query()] = None
) -> Response:
    """Score candidate labels for an image, the best first.

    Without a session the scores are the model's own, and nothing is learnt or kept. A session
    learns the image, and the labels become its classes.
    """
    config, row = service.config, None if session is None else await service.row(session)
    most = config.max_bytes * 4 // 3 + _LABEL_BYTES
    async with json_of(request, schema.NewScores, most) as (new, _):
        labels, template = new.parameters.candidate_labels, new.parameters.hypothesis_template
        if row is not None and template is not None:
            raise InputError("A session has the server's templates: leave hypothesis_template out.")
        config.check_room(len(labels), 1, 0 if row is None else size_of(row, len(labels)))
        check_template(template or "{}")
        image = await service.run(_decoded, new.inputs)
        text = await service.encode_names(labels, template)
        task = Task(labels, text, service.encoder.logit_scale)
        if row is None:
            [(features, _)] = await service.batcher.encode([image], 1)
            prediction = await service.run(create("zero_shot", task).step, features)
            return as_json(scores_of(prediction, labels))
        views = row.start["views"]
        [*_, last], _ = await learn_images(service, row.id, [(None, image)], views, task=task)
    top = json.decode(last)["top"]
    return as_json([{"score": each["probability"], "label": each["label"]} for each in top])


def _decoded(text: str) -> bytes:
    try:  # browsers write data:image/png;base64, before it
        return base64.b64decode(text.rpartition(",")[2], validate=True)
    except ValueError:
        raise InputError("inputs is not base64: encode the bytes of an image file.") from None
